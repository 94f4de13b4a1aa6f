//! Limits that nodes count by shares, beside limits that Redis counts.

use std::time::{Duration, Instant};

use playground::bank::Step;

use crate::harness::{Scratch, TestNode, until};

/// Such a node asks for a permit up to 75 ms before the permit opens, and a permit lives for 20 ms.
const FAR_AHEAD: &str =
    "per = \"1s\"\nlateness = \"40ms\"\nahead = \"100ms\"\nplacement = \"local_share\"\nnodes = 1\n";

#[tokio::test]
async fn permits_of_a_share_and_of_a_limit_in_redis_open_together() {
    let scratch = Scratch::new().await;
    let file = format!(
        "[limit.own]\nalgorithm = \"paced\"\npermits = 10\n{FAR_AHEAD}\
         [limit.hourly]\nalgorithm = \"sliding_window\"\npermits = 1000\nper = \"1h\"\nlateness = \"40ms\"\nahead = \"100ms\"\n\
         [channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"own\", \"hourly\"]\nmax_in_flight = 50\n"
    );
    let node = TestNode::start(&scratch, "a", &file).await;
    scratch.insert("acme", "R-", 20).await;
    let all_came = scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= 20).await;
    let spent = "select count(*) from refundd.permits where limit_name = 'hourly'";
    let spent = scratch.number(spent).await;
    assert!(all_came, "{} of 20 arrived, {spent} permits are spent", scratch.bank.look(|l| l.all().len()));
    assert!(spent <= 40, "{spent} permits of the hour for 20 refunds");
    node.stop().await;
}

#[tokio::test]
async fn a_channel_under_a_share_reaches_the_lower_rate_after_a_429() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::too_many(1)]);
    let file = format!(
        "[limit.acme]\nalgorithm = \"sliding_log\"\npermits = 20\n{FAR_AHEAD}\
         [channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\nmax_in_flight = 50\n"
    );
    let node = TestNode::start(&scratch, "a", &file).await;
    scratch.insert("acme", "R-", 300).await;
    // The channel stays slowed while the test looks.
    let noted = "select count(*) from refundd.channels where slow_percent = 90";
    until("the refusal is noted", async || scratch.number(noted).await == 1).await;
    scratch.sql("update refundd.channels set slow_since = now() + interval '1 hour'").await;
    until("it is slowed", async || {
        node.get("/v1/channels").await.json()["channels"][0]["slowed_to_percent"] == 90
    })
    .await;
    let sent = || scratch.bank.look(|l| l.all().len());
    // The pause after the refusal is over when more requests come.
    let refused = sent();
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= refused + 3).await);
    let (before, began) = (sent(), Instant::now());
    assert!(
        scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= before + 40).await,
        "{} of 40 arrived",
        sent() - before
    );
    let rate = 40.0 / began.elapsed().as_secs_f64();
    assert!(rate >= 8.7, "{rate:.1} a second, and 17.3 are allowed");
    node.stop().await;
}

/// The permits of a window are open for as long as the window, so each permit of Redis meets one of them.
#[tokio::test]
async fn a_channel_under_a_window_of_its_own_gets_a_fair_part_of_a_limit_that_others_share() {
    let scratch = Scratch::new().await;
    let file = "[limit.own]\nalgorithm = \"fixed_window\"\npermits = 100\nper = \"1s\"\nplacement = \"local_share\"\nnodes = 1\n\
                [limit.both]\nalgorithm = \"paced\"\npermits = 100\nper = \"1s\"\n\
                [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"own\", \"both\"]\nmax_in_flight = 50\n\
                [channel.best]\nendpoint = \"http://{bank}/best/refunds\"\nlimits = [\"both\"]\nmax_in_flight = 50\n";
    let node = TestNode::start(&scratch, "a", file).await;
    scratch.insert("acme", "A-", 800).await;
    scratch.insert("best", "B-", 800).await;
    assert!(scratch.bank.until(Duration::from_secs(30), |l| l.all().len() >= 600).await);
    let sent = |channel: &str| scratch.bank.look(|l| l.arrivals(channel).count());
    let (acme, best) = (sent("acme"), sent("best"));
    assert!(acme * 3 >= best, "{acme} requests beside {best} of the channel without a share");
    node.stop().await;
}
