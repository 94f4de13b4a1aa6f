//! Pauses with an end, and coolings, while Postgres's clock is set and corrected.

use std::time::{Duration, Instant};

use refundd::limiter::{Counted, Permit, PermitNumber, Span};
use refundd::refund::{ChannelName, LimitName};
use refundd::store::{ClockWitness, Pause, Refusal, Seen, Spent, Store, SuspendedBy};

use super::{clocked, step};
use crate::harness::anywhere::{RULE, add_address, add_limit, claim_of, unlimited};
use crate::harness::{Scratch, until};

/// Whether a pause refuses a claim, and whether it refuses a request for permits of other services.
async fn refuses(scratch: &Scratch, store: &Store) -> [bool; 2] {
    let claimed = store.claim_among(&claim_of("a", &[unlimited(1)]), &[]).await.unwrap();
    let now_us = scratch.now_us().await;
    let number = PermitNumber {
        limit: LimitName::new("acme").unwrap(),
        window_start_us: now_us / 1_000_000 * 1_000_000,
        ordinal: 1,
        generation: 1,
        own_rule: RULE.into(),
        stricter_rule: None,
        counted: Counted::default(),
    };
    let (opens, closes) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    let span = Span { opens_us: now_us, closes_us: now_us + 1_000_000, opens, closes };
    let permits = [Permit { numbers: vec![number], span: Some(span) }];
    let spent = store.spend(&permits, "checkout", "a", Duration::from_secs(5), &["acme"]).await.unwrap();
    [claimed.is_suspended, spent == Spent::Paused]
}

#[tokio::test]
async fn a_pause_does_not_end_because_postgres_was_set_forward() {
    let (postgres, scratch) = clocked("pauses").await;
    scratch.publish("acme").await;
    add_address(&scratch, "acme").await;
    scratch.insert("acme", "R-", 1).await;
    add_limit(&scratch, "acme").await;
    let node = || scratch.store.clone().witnessed_by(ClockWitness::default());
    let (store, starting) = (node(), node());
    let watch = async || store.watch_clock("a#1", None, false).await.unwrap();
    assert_eq!(watch().await, None);
    for channel in [Some("acme"), None] {
        let pause = Pause { reason: "a look", who: "ann", lasts: Some(Duration::from_hours(1)) };
        scratch.store.pause_seen(channel, &pause, Seen::Unsaid).await.unwrap();
        // For a day the clock is wrong by a day; a heartbeat notices the step, and the correction.
        for seconds in [86400, -86400] {
            step(&postgres, seconds);
            for node in [&store, &starting] {
                node.end_pauses().await.unwrap();
                let refuses = refuses(&scratch, node).await;
                assert_eq!(refuses, [true; 2], "{channel:?} {seconds}: before the step is written down");
                let known = node.suspensions_of(channel).await.unwrap();
                assert_eq!(known.len(), 1, "{channel:?} {seconds}: a node that knows it asks for no permits");
            }
            assert!(watch().await.is_some());
            for node in [&store, &scratch.store] {
                node.end_pauses().await.unwrap();
                let refuses = refuses(&scratch, node).await;
                assert_eq!(refuses, [true; 2], "{channel:?} {seconds}: a step that is written down");
            }
            let left = scratch.store.suspensions_of(channel).await.unwrap()[0].left.unwrap();
            assert!(left > Duration::from_mins(55), "{channel:?} {seconds}: {left:?}");
            assert!(seconds < 0 || left < Duration::from_mins(65), "{channel:?}: {left:?}");
        }
        match channel {
            Some(channel) => drop(scratch.store.resume(channel, "ann", None).await.unwrap()),
            None => scratch.resume_all("ann").await,
        }
        assert_eq!(scratch.suspensions().await, 0);
        assert_eq!(refuses(&scratch, &store).await, [false; 2], "{channel:?}: a person ended it");
    }
}

#[tokio::test]
async fn a_pause_that_is_over_is_over_although_postgres_was_set_forward() {
    let (postgres, scratch) = clocked("over").await;
    scratch.publish("acme").await;
    add_address(&scratch, "acme").await;
    let store = scratch.store.clone().witnessed_by(ClockWitness::default());
    assert_eq!(store.watch_clock("a#1", None, false).await.unwrap(), None);
    let pause = Pause { reason: "a look", who: "ann", lasts: Some(Duration::from_millis(1)) };
    store.pause("acme", &pause).await.unwrap();
    let over =
        "select count(*) from refundd.channels where pause_until < clock_timestamp() - interval '1 second'";
    until("the pause is over", async || scratch.number(over).await == 1).await;
    step(&postgres, 86400);
    assert!(store.watch_clock("a#1", None, false).await.unwrap().is_some());
    store.end_pauses().await.unwrap();
    assert_eq!(scratch.number("select count(*) from refundd.channels where paused_at is null").await, 1);
}

#[tokio::test]
async fn a_cooling_lasts_as_long_as_the_bank_said_although_postgres_was_set() {
    let (postgres, scratch) = clocked("coolings").await;
    scratch.publish("acme").await;
    add_address(&scratch, "acme").await;
    scratch.insert("acme", "R-", 1).await;
    let store = scratch.store.clone().witnessed_by(ClockWitness::default());
    let watch = async || store.watch_clock("a#1", None, false).await.unwrap();
    assert_eq!(watch().await, None);
    let refusal = Refusal {
        named: Some(Duration::from_hours(1)),
        reason: "HTTP 429",
        slow: true,
        spacing: Some(Duration::from_secs(1)),
        step: Some(Duration::from_secs(1)),
        cool_down: Duration::from_mins(1),
        age: Duration::ZERO,
    };
    assert!(store.refused(&ChannelName::new("acme").unwrap(), &refusal).await.unwrap().is_some());
    for seconds in [86400, -86400, -86400] {
        step(&postgres, seconds);
        assert!(watch().await.is_some());
        let left = store.suspensions_of(Some("acme")).await.unwrap()[0].left.unwrap();
        assert!(left > Duration::from_mins(55) && left < Duration::from_mins(65), "{seconds}: {left:?}");
        let climbs_then = "select count(*) from refundd.channels where slow_since = cool_until";
        assert_eq!(scratch.number(climbs_then).await, 1);
    }
    scratch.pause("acme", "a look", "ann").await;
    step(&postgres, 3600);
    assert!(watch().await.is_some());
    let still = "select count(*) from refundd.channels where paused_at is not null and pause_until is null and cool_until > now()";
    assert_eq!(scratch.number(still).await, 1, "a pause without an end gets none");
    scratch.resume("acme").await;
    scratch.sql("update refundd.channels set cool_until = now() - interval '1 second'").await;
    step(&postgres, -3600);
    assert!(watch().await.is_some());
    let claimed = store.claim_among(&claim_of("a", &[unlimited(1)]), &[]).await.unwrap();
    assert!(!claimed.is_suspended, "a cooling that was over does not go on");
    for seconds in [3600, -3600, -3600] {
        let acme = ChannelName::new("acme").unwrap();
        assert!(store.refused(&acme, &refusal).await.unwrap().is_some(), "{seconds}");
        store.release("acme", SuspendedBy::Cooling, "ann", None).await.unwrap();
        step(&postgres, seconds);
        assert!(watch().await.is_some());
        let claimed = store.claim_among(&claim_of("a", &[unlimited(1)]), &[]).await.unwrap();
        assert!(!claimed.is_suspended, "{seconds}: a person ended it");
    }
}
