//! Limits that nodes count by shares, beside limits that Redis counts.

use std::time::{Duration, Instant};

use playground::bank::Step;

use crate::harness::{Scratch, TestNode, one_try_succeeds, until};

/// Such a node asks for a permit up to 75 ms before the permit opens, and a permit lives for 20 ms.
const FAR_AHEAD: &str =
    "per = \"1s\"\nlateness = \"40ms\"\nahead = \"100ms\"\nplacement = \"local_share\"\nnodes = 1\n";

#[tokio::test]
async fn permits_of_a_share_and_of_a_limit_in_redis_open_together() {
    one_try_succeeds(3, twenty_need_few_permits).await;
}

async fn twenty_need_few_permits() -> Result<(), String> {
    let scratch = Scratch::new().await;
    let file = format!(
        "[limit.own]\nalgorithm = \"paced\"\npermits = 10\n{FAR_AHEAD}\
         [limit.hourly]\nalgorithm = \"sliding_window\"\npermits = 1000\nper = \"1h\"\nlateness = \"40ms\"\nahead = \"100ms\"\n\
         [channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"own\", \"hourly\"]\nmax_in_flight = 50\n"
    );
    let node = TestNode::start(&scratch, "a", &file).await;
    scratch.insert("acme", "R-", 20).await;
    scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= 20).await;
    let arrived = scratch.bank.look(|l| l.all().len());
    let spent = "select count(*) from refundd.permits where limit_name = 'hourly'";
    let spent = scratch.number(spent).await;
    node.stop().await;
    let is_enough = arrived >= 20 && spent <= 40;
    if is_enough { Ok(()) } else { Err(format!("{arrived} of 20 arrived, {spent} permits are spent")) }
}

#[tokio::test]
async fn a_channel_under_a_share_reaches_the_lower_rate_after_a_429() {
    one_try_succeeds(3, half_of_the_lower_rate_is_reached).await;
}

async fn half_of_the_lower_rate_is_reached() -> Result<(), String> {
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
    scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= before + 40).await;
    let rate = (sent() - before) as f64 / began.elapsed().as_secs_f64();
    node.stop().await;
    if rate >= 8.7 { Ok(()) } else { Err(format!("{rate:.1} a second, and 17.3 are allowed")) }
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
