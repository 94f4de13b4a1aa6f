//! A bank that refuses requests as too many: the channel slows down, and the rate climbs back.

use std::time::Duration;

use playground::bank::Step;

use super::channel;
use crate::harness::{Scratch, TestNode, one_try_succeeds, until};

/// Two refusals of requests that were under way together are one, and one of so many costs next to nothing.
#[tokio::test]
async fn one_refusal_costs_a_paced_channel_less_than_a_twentieth_of_its_rate() {
    one_try_succeeds(3, async || {
        let (share, gaps) = share_after_a_refusal().await;
        let is_enough = share > 0.95 && gaps > 200;
        if is_enough { Ok(()) } else { Err(format!("{share} of the rate in {gaps} gaps")) }
    })
    .await;
}

/// What part of its rate a channel has from a refusal on, and in how many gaps between two requests.
async fn share_after_a_refusal() -> (f64, usize) {
    let scratch = Scratch::new().await;
    let rule = "algorithm = \"paced\"\npermits = 20";
    let node = TestNode::start(&scratch, "a", &channel(rule)).await;
    scratch.insert("acme", "R-", 500).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 40).await);
    scratch.bank.next("acme", [Step::answers(429, r#"{"error":"too many requests"}"#)]);
    assert!(
        scratch
            .bank
            .until(Duration::from_secs(10), |l| l.all().iter().any(|a| a.answered == Some(429)))
            .await
    );
    let counted = "select (refusals + coalesce(slow_ceiling, 0) * 100)::bigint from refundd.channels";
    until("it counts", async || scratch.number(counted).await == 10_001).await;
    let times_from_the_refusal = |l: &playground::bank::Ledger| {
        let mut times: Vec<i64> = l.all().iter().map(|a| a.at_us).collect();
        times.sort_unstable();
        let refused_us = l.all().iter().find(|a| a.answered == Some(429)).map_or(0, |a| a.at_us);
        times.split_off(times.partition_point(|at| *at < refused_us))
    };
    // As many as the full rate sends in fifteen seconds.
    assert!(scratch.bank.until(Duration::from_secs(40), |l| times_from_the_refusal(l).len() > 272).await);
    let times = scratch.bank.look(times_from_the_refusal);
    // While the machine stood still, nothing was sent. The first gaps are the pause that the refusal costs, so they count in any case.
    let is_counted = |nth: usize, us: i64| nth < 5 || us < 200_000;
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]).enumerate();
    let gaps: Vec<i64> = gaps.filter(|(nth, us)| is_counted(*nth, *us)).map(|(_, us)| us).collect();
    let counted_s = gaps.iter().sum::<i64>() as f64 / 1e6;
    let share = gaps.len() as f64 / counted_s / (20.0 / 1.1);
    println!("{} gaps in {counted_s:.3} s: {share:.3} of the rate", gaps.len());
    node.stop().await;
    (share, gaps.len())
}

#[tokio::test]
async fn a_refused_refund_goes_first_when_the_pause_is_over() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("algorithm = \"paced\"\npermits = 5")).await;
    scratch
        .bank
        .next("acme", [Step::pays(), Step::pays(), Step::answers(429, r#"{"error":"too many requests"}"#)]);
    scratch.insert("acme", "R-", 60).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 8).await);
    let sent = scratch.bank.look(|l| l.all().iter().map(|a| a.refund_ref.to_string()).collect::<Vec<_>>());
    assert!(sent[3..6].contains(&sent[2]), "{sent:?}");
    node.stop().await;
}

/// Two requests one slot apart after each pause would be refused for ever.
#[tokio::test]
async fn a_bank_that_takes_half_of_the_rate_gets_most_of_what_it_takes() {
    let scratch = Scratch::new().await;
    scratch.bank.refuses_within("acme", Duration::from_millis(100), 429);
    let node = TestNode::start(&scratch, "a", &channel("algorithm = \"paced\"\npermits = 20")).await;
    scratch.insert("acme", "R-", 500).await;
    let of = |l: &playground::bank::Ledger| {
        let refused = l.all().iter().filter(|a| a.answered == Some(429)).count();
        (l.all().len() - refused, refused)
    };
    assert!(scratch.bank.until(Duration::from_secs(30), |l| of(l).0 >= 20).await);
    let (before, began) = (scratch.bank.look(of), std::time::Instant::now());
    assert!(scratch.bank.until(Duration::from_secs(30), |l| of(l).0 >= before.0 + 60).await);
    let (rate, refused) = (60.0 / began.elapsed().as_secs_f64(), scratch.bank.look(of).1);
    println!("{rate:.1} of 10 a second, {refused} refused in all");
    assert!(rate > 4.0 && refused <= 15, "{rate} of 10 a second, {refused} refused");
    node.stop().await;
}

/// Not a test: the figures of docs/limits.md. A bank that takes less than the channel's limit, by the gap to the last
/// request that it took.
#[tokio::test]
#[ignore = "measures for two minutes"]
async fn what_a_bank_gets_that_takes_less_than_the_limit() {
    let cases = [
        ("algorithm = \"paced\"\npermits = 20", 100, 429, "paced 20/s, the bank takes 10/s"),
        ("permits = 1", 1000, 429, "fixed_window 1/s, the bank takes 1/s by the gap"),
    ];
    for (rule, gap, status, what) in cases {
        let scratch = Scratch::new().await;
        scratch.bank.refuses_within("acme", Duration::from_millis(gap), status);
        let file = channel(rule).replace("lateness = \"100ms\"", "lateness = \"20ms\"");
        let node = TestNode::start(&scratch, "a", &file).await;
        scratch.insert("acme", "R-", 2000).await;
        let mut before = (0, 0);
        for quarter in 1..=4 {
            tokio::time::sleep(Duration::from_secs(15)).await;
            let now = scratch.bank.look(|l| {
                let refused = l.all().iter().filter(|a| a.answered == Some(status)).count();
                (l.all().len() - refused, refused)
            });
            println!(
                "{what}: quarter {quarter}: {:.2}/s taken, {} refused",
                (now.0 - before.0) as f64 / 15.0,
                now.1 - before.1
            );
            before = now;
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn after_a_429_the_rate_climbs_back_to_what_is_configured() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::too_many(1)]);
    let a = TestNode::start(&scratch, "a", &channel("permits = 20")).await;
    let b = TestNode::start(&scratch, "b", &channel("permits = 20")).await;
    scratch.insert("acme", "R-", 200).await;
    let slowed = async || a.get("/v1/channels").await.json()["channels"][0]["slowed_to_percent"].clone();
    // A first refusal is over within a second or so; it is held here, so that a busy machine sees it.
    let noted = "select count(*) from refundd.channels where slow_percent = 90";
    until("the refusal is noted", async || scratch.number(noted).await == 1).await;
    scratch.sql("update refundd.channels set slow_since = now() + interval '1 hour'").await;
    until("it says that it is slowed", async || slowed().await == 90).await;
    scratch.sql("update refundd.channels set slow_since = now() - interval '1 minute'").await;
    until("it is back at its full rate", async || slowed().await.is_null()).await;
    let before = scratch.bank.look(|l| l.all().len());
    let began = std::time::Instant::now();
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= before + 40).await);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?} for 40 at 20 a second", began.elapsed());
    a.stop().await;
    b.stop().await;
}

/// Nodes publish at a start as at a reload.
#[tokio::test]
async fn other_limits_in_the_file_end_the_lower_rate_and_other_keys_do_not() {
    let scratch = Scratch::new().await;
    let file = channel("permits = 20");
    TestNode::start(&scratch, "a", &file).await.stop().await;
    let slow = "update refundd.channels
                   set slow_percent = 40, slow_ceiling = 50, slow_step_us = 30000000, slow_since = now() + interval '1 hour'";
    scratch.sql(slow).await;
    let slowed = "select count(*) from refundd.channels where slow_percent = 40 and slow_since > now()";
    let elsewhere = file.replace("/acme/refunds", "/acme/v2/refunds");
    for (other, left) in [
        (format!("{file}cool_down = \"1s\"\n"), 1),
        (elsewhere.clone(), 0),
        (elsewhere.replace("permits = 20", "permits = 10"), 0),
    ] {
        TestNode::start(&scratch, "a", &other).await.stop().await;
        assert_eq!(scratch.number(slowed).await, left, "{other}");
        scratch.sql(slow).await;
    }
}
