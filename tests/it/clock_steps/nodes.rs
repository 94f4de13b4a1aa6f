//! A node whose clock is wrong, and is set while it sends, beside one whose clock is right.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use playground::Clock;
use playground::bank::Step;
use refundd::refund::State;
use rustix::process::Signal;
use serde_json::Value;

use crate::faults::{PERMITS, algorithms, always, channels, hold};
use crate::harness::{NodeProcess, Scratch, within};

/// So many refunds of each channel take about twenty seconds at least.
const SAVED: u32 = 20 * PERMITS;

/// Waits until the node with the wrong clock has sent ten more refunds of each channel.
async fn it_sends(scratch: &Scratch) {
    let since = scratch.number("select coalesce(max(id), 0) from refundd.attempts").await;
    let sending = format!(
        "select count(*) from (
             select channel from refundd.attempts
              where id > {since} and node like 'wrong%' and kind = 'send' and outcome = 'succeeded'
              group by channel having count(*) >= 10
         ) sending"
    );
    let all = i64::try_from(algorithms().len()).unwrap();
    within(Duration::from_mins(4), "the node with the wrong clock sends in every channel", async || {
        scratch.number(&sending).await == all
    })
    .await;
}

/// How far the clock was ahead that dated the last line of the log with these words, a moment ago.
fn seconds_ahead(node: &NodeProcess, words: &str) -> i64 {
    node.wait_for_line(words);
    let line = node.log().into_iter().rfind(|line| line.contains(words)).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    let dated: Timestamp = line["timestamp"].as_str().unwrap().parse().unwrap();
    dated.as_second() - Timestamp::now().as_second()
}

#[tokio::test]
async fn a_node_whose_clock_is_an_hour_ahead_and_then_an_hour_behind_breaks_no_limit_of_any_kind() {
    let scratch = Scratch::new().await;
    // The slow bank, and few refunds in flight: no node can use up a window alone, even if it always asks first.
    let channels =
        channels(PERMITS).replace("max_in_flight = 60", &format!("max_in_flight = {}", PERMITS / 2));
    for (name, _) in algorithms() {
        scratch.bank.then(name, Step::pays().after(Duration::from_millis(600)));
    }
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::new(folder.path()).unwrap_or_else(|error| panic!("{error}"));
    clock.set(SignedDuration::from_hours(1)).unwrap();
    let mut right = NodeProcess::start(&scratch, "right", &channels);
    let mut wrong = NodeProcess::start_under(&clock, &scratch, "wrong", &channels);
    let ahead = seconds_ahead(&wrong, "HTTP on");
    assert!((3_500..=3_600).contains(&ahead), "{ahead} s ahead");
    for (name, _) in algorithms() {
        scratch.insert(name, &format!("{name}-"), SAVED).await;
    }
    it_sends(&scratch).await;
    clock.set(SignedDuration::from_hours(-1)).unwrap();
    it_sends(&scratch).await;
    let all = i64::from(SAVED) * i64::try_from(algorithms().len()).unwrap();
    within(Duration::from_mins(5), "every refund is sent and settled", async || {
        scratch.count(State::Succeeded).await == all
    })
    .await;
    wrong.signal(Signal::TERM);
    let ahead = seconds_ahead(&wrong, "Stopping");
    assert!((-3_700..=-3_600).contains(&ahead), "{ahead} s ahead");
    right.signal(Signal::TERM);
    for node in [&mut right, &mut wrong] {
        node.wait();
    }
    hold(&scratch, &[], always).await;
    let paid = scratch.bank.look(|ledger| ledger.paid_by_key().len());
    assert_eq!(i64::try_from(paid).unwrap(), all, "each refund was paid");
}
