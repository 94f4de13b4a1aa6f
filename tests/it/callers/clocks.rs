//! Tokens on a node whose clock is wrong.

use jiff::{SignedDuration, Timestamp};
use playground::Clock;

use super::{CallerTables, TWO_CHANNELS, get_at};
use crate::harness::{NodeProcess, Scratch};

#[tokio::test]
async fn a_token_ends_by_the_clock_of_the_node_that_is_asked() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let token = callers.caller("shop", "may = [\"look\"]\nchannels = [\"acme\"]");
    callers.tokens("shop", &[(&token, Timestamp::now() - SignedDuration::from_mins(30))]);
    let channels = callers.with_channels(TWO_CHANNELS);
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::new(folder.path()).unwrap_or_else(|error| panic!("{error}"));
    clock.set(SignedDuration::from_hours(-1)).unwrap();
    let right = NodeProcess::start(&scratch, "right", &channels);
    let behind = NodeProcess::start_under(&clock, &scratch, "behind", &channels);
    let ask = async |node: &NodeProcess| {
        let (status, _) = get_at(&node.address().unwrap(), Some(&token), "/v1/refunds").await;
        status
    };
    assert_eq!([ask(&right).await, ask(&behind).await], [401, 200]);
    clock.set(SignedDuration::ZERO).unwrap();
    assert_eq!(ask(&behind).await, 401, "its clock is right again");
}
