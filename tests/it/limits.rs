//! Every kind of limit at the bank's door, on two nodes that share it.

use std::time::Duration;

use crate::harness::{Scratch, TestNode};

const SECOND: Duration = Duration::from_secs(1);

fn channel(rule: &str) -> String {
    format!(
        "[limit.acme]\n{rule}\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\n\
         limits = [\"acme\"]\nmax_in_flight = 50\n"
    )
}

/// Sends under a rule from two nodes until `count` arrived; answers the scratch with the bank's ledger.
async fn saturate(rule: &str, count: usize) -> Scratch {
    let scratch = Scratch::new().await;
    let channels = channel(rule);
    let a = TestNode::start(&scratch, "a", &channels).await;
    let b = TestNode::start(&scratch, "b", &channels).await;
    scratch.insert("acme", "R-", u32::try_from(count).unwrap() + 50).await;
    let arrived = scratch.bank.until(Duration::from_secs(30), |l| l.all().len() >= count).await;
    assert!(arrived, "{rule}: {} of {count} arrived", scratch.bank.look(|l| l.all().len()));
    a.stop().await;
    b.stop().await;
    scratch
}

fn fullest_span(scratch: &Scratch) -> usize {
    scratch.bank.look(|l| l.worst_rolling_span("acme", SECOND).map_or(0, |w| w.count))
}

fn rate(scratch: &Scratch) -> f64 {
    scratch.bank.look(|l| l.rate("acme")).unwrap_or_default()
}

#[tokio::test]
async fn paced_sends_no_more_than_its_number_in_any_second_and_evenly() {
    let scratch = saturate("algorithm = \"paced\"\npermits = 50", 200).await;
    assert!(fullest_span(&scratch) <= 50, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 45.0, "{}", rate(&scratch));
    // Two sends are never closer than the spacing less the permit's life and what the way may vary.
    let mut times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).collect());
    times.sort_unstable();
    let close = times.windows(2).filter(|pair| pair[1] - pair[0] < 400).count();
    assert!(close * 20 < times.len(), "{close} of {} gaps below 0.4 ms", times.len());
}

#[tokio::test]
async fn sliding_log_sends_no_more_than_its_number_in_any_second() {
    let scratch = saturate("algorithm = \"sliding_log\"\npermits = 50", 220).await;
    assert!(fullest_span(&scratch) <= 50, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 45.0, "{}", rate(&scratch));
}

#[tokio::test]
async fn sliding_window_sends_no_more_than_its_number_in_any_second() {
    let scratch = saturate("algorithm = \"sliding_window\"\npermits = 50", 220).await;
    assert!(fullest_span(&scratch) <= 50, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 42.0, "{}", rate(&scratch));
}

#[tokio::test]
async fn token_bucket_sends_its_burst_and_then_at_its_rate() {
    let scratch = saturate("algorithm = \"token_bucket\"\nburst = 30\npermits = 50", 220).await;
    let fullest = fullest_span(&scratch);
    assert!((51..=80).contains(&fullest), "{fullest}");
    assert!(rate(&scratch) > 45.0, "{}", rate(&scratch));
}

#[tokio::test]
async fn fixed_window_sends_no_more_than_its_number_in_each_second() {
    let scratch = saturate("permits = 50", 220).await;
    let fullest = scratch.bank.look(|l| l.worst_aligned_window("acme", SECOND).map_or(0, |w| w.count));
    assert!(fullest <= 50, "{fullest}");
}
