//! Limits over long times of which much is left.

use std::time::Duration;

use crate::harness::{Scratch, TestNode};

#[tokio::test]
async fn a_long_limit_that_has_permits_left_lets_a_burst_of_any_size_go_at_once() {
    for algorithm in ["sliding_log\"\n", "sliding_window\"\n", "token_bucket\"\nburst = 5000\n"] {
        let scratch = Scratch::new().await;
        let file = format!(
            "[limit.acme]\nalgorithm = \"{algorithm}permits = 5000\nper = \"1d\"\n\
             [channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\nmax_in_flight = 128\n"
        );
        let node = TestNode::start(&scratch, "a", &file).await;
        scratch.insert("acme", "R-", 600).await;
        let all_came = scratch.bank.until(Duration::from_secs(15), |l| l.all().len() >= 600).await;
        assert!(all_came, "{algorithm}: {} of 600 arrived", scratch.bank.look(|l| l.all().len()));
        node.stop().await;
    }
}
