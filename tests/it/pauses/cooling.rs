//! A person ends the wait that a bank asked for: it may be back long before the end that it named.

use std::time::Duration;

use playground::bank::Step;
use refundd::store::{Refusal, Resumed, SuspendedBy};
use serde_json::{Value, json};

use super::{acme, are_sent, causes, run};
use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, TestNode, until};

/// With a limit, so that the bank's refusal also lowers the rate.
const LIMITED: &str = r#"
[limit.acme]
permits = 20
per = "1s"
lateness = "100ms"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = ["acme"]
max_in_flight = 1
timeout = "2s"
connect_timeout = "1s"
"#;

const RESUME: &str = "/v1/channels/acme/resume";

/// The refusal of a request that begins now.
const REFUSAL: Refusal<'_> = Refusal {
    named: None,
    reason: "HTTP 503",
    slow: true,
    spacing: Some(Duration::from_millis(50)),
    step: Some(Duration::from_millis(50)),
    cool_down: Duration::from_mins(1),
    age: Duration::ZERO,
};

#[tokio::test]
async fn a_person_ends_the_wait_that_a_bank_asked_for_and_the_lower_rate() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::too_many(86_400)]);
    let a = TestNode::start(&scratch, "a", LIMITED).await;
    let b = TestNode::start(&scratch, "b", LIMITED).await;
    scratch.insert("acme", "R-", 1).await;
    until("the channel cools", async || causes(&scratch).await == ["cooling"]).await;
    scratch.insert("acme", "S-", 5).await;
    let kept = a.post(RESUME, &json!({ "by": "ann" })).await.json();
    assert_eq!(kept["result"], "was_not_suspended", "a plain resume does not end it: {kept}");
    let message = kept["message"].as_str().unwrap_or_default();
    assert!(message.contains(r#"POST /v1/channels/acme/resume with {"lift": "cooling"}"#), "{kept}");
    let cooling = &kept["suspensions"][0];
    assert_eq!(
        (&cooling["lift"], &cooling["end_with"]),
        (&json!("cooling"), &json!("refundd resume acme --cooling")),
        "{kept}"
    );
    let seen = cooling["until"].clone();
    let end = async |seen: &Value| {
        let asks = json!({ "by": "ann", "lift": "cooling", "reason": "the bank is back", "seen": seen });
        a.post(RESUME, &asks).await
    };
    let other = end(&json!("2026-01-01T00:00:00Z")).await;
    assert_eq!(
        (other.status.as_u16(), &other.json()["suspension"]["until"]),
        (409, &seen),
        "another one does not end"
    );
    assert_eq!(causes(&scratch).await, ["cooling"]);
    let full_rate = "select count(*) from refundd.channels where slow_percent is null and slow_since is null and refusals = 1";
    assert_eq!(scratch.number(full_rate).await, 0, "it is slowed");
    let ended = end(&seen).await.json();
    assert_eq!((&ended["result"], &ended["ended"]["until"]), (&json!("resumed"), &seen), "{ended}");
    let message = ended["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("channel `acme` is not cooling any more; nothing suspends it"), "{ended}");
    assert_eq!(scratch.number(full_rate).await, 1, "and the next refusal is a repeated one");
    are_sent(&scratch, 6).await;
    assert_eq!(end(&Value::Null).await.json()["result"], "was_not_suspended");
    let events = "select string_agg(kind || ' by ' || who, ', ' order by event_id) from refundd.events where kind like 'cool%'";
    assert_eq!(scratch.text(events).await, "cooled by its bank, cooling_ended by ann");
    let says = "select count(*) from refundd.events
                 where kind = 'cooling_ended' and reason = 'the bank is back' and (before ->> 'until')::timestamptz > now() + interval '23 hours'
                   and (after ->> 'until')::timestamptz <= now()
                   and (before ->> 'slowed_to_percent')::integer = 90";
    assert_eq!(scratch.number(says).await, 1);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_channel_does_not_cool_for_ever_for_refunds_that_its_bank_refuses_alone() {
    let scratch = Scratch::new().await;
    let node = NodeProcess::start(&scratch, "a", LIMITED);
    // Two of one card, say.
    for refund_ref in ["R-1", "R-2"] {
        scratch.bank.next_for("acme", refund_ref, std::iter::repeat_n(Step::too_many(1), 99));
    }
    scratch.insert("acme", "R-", 2).await;
    let refused = |refund_ref: &str| {
        scratch.bank.look(|ledger| ledger.all().iter().filter(|one| &*one.refund_ref == refund_ref).count())
    };
    let refused = || refused("R-1").min(refused("R-2"));
    until("both were refused four times", async || refused() >= 4).await;
    scratch.insert("acme", "S-", 1).await;
    are_sent(&scratch, 1).await;
    let before = scratch.text("select coalesce(cool_until, now())::text from refundd.channels").await;
    // The bank asks for one second each time.
    let grown = "select count(*) from refundd.refunds r
                  where r.due_at >= interval '4 seconds' + (select max(a.finished_at) from refundd.attempts a where a.refund_id = r.id)";
    until("they are refused again and again, and their waits grow", async || {
        scratch.number(grown).await == 2
    })
    .await;
    let again = format!("select count(*) from refundd.channels where cool_until > '{before}'");
    assert_eq!(scratch.number(&again).await, 0, "the channel goes on");
    for id in [1, 2] {
        let words = format!("refuses refund {id} again and again");
        until("the log says so", async || node.log().iter().any(|line| line.contains(&words))).await;
    }
    scratch.insert("acme", "T-", 1).await;
    are_sent(&scratch, 2).await;
}

#[tokio::test]
async fn the_command_ends_a_cooling_and_says_what_the_bank_asked_for() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let cools = "update refundd.channels set cool_until = now() + interval '1 day', cool_reason = 'HTTP 503'";
    scratch.sql(cools).await;
    let (_, said) = run(&scratch, UNLIMITED, &["status"]);
    assert!(said.contains("End it with: refundd resume acme --cooling"), "{said}");
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "acme"]);
    assert_eq!(code, Some(3), "{said}");
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "acme", "--cooling", "--by", "ann"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Ended: acme was to cool until 2"), "{said}");
    assert!(said.contains("Z: the bank answered HTTP 503\n"), "{said}");
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "acme", "--cooling"]);
    assert_eq!((code, said.as_str()), (Some(3), "Channel acme was not cooling; nothing was changed.\n"));
    assert_eq!(run(&scratch, UNLIMITED, &["resume", "--all", "--cooling"]).0, Some(2));
}

#[tokio::test]
async fn a_refusal_from_before_a_person_ended_the_cooling_does_not_bring_it_back() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let refused = async |age| {
        let refusal = Refusal { named: Some(Duration::from_hours(24)), age, ..REFUSAL };
        scratch.store.refused(&acme(), &refusal).await.unwrap()
    };
    assert!(refused(Duration::ZERO).await.is_some());
    let ended = scratch.store.release("acme", SuspendedBy::Cooling, "ann", None).await.unwrap();
    assert!(matches!(&ended, Resumed::Now(cooling) if cooling.reason == "HTTP 503"), "{ended:?}");
    let full_rate = "select count(*) from refundd.channels where slow_percent is null and slow_since is null";
    assert_eq!(scratch.number(full_rate).await, 1);
    // Another node could not write it before.
    assert!(refused(Duration::from_mins(1)).await.is_none());
    assert_eq!(causes(&scratch).await, [""; 0]);
    let (left, is_new) = refused(Duration::ZERO).await.unwrap();
    assert!(is_new && left > Duration::from_hours(23), "the bank refuses again: {left:?}");
    assert_eq!(causes(&scratch).await, ["cooling"]);
    // The clock was set back since a person ended a cooling.
    scratch.sql("update refundd.channels set cooling_ended_at = now() + interval '1 hour'").await;
    assert!(
        refused(Duration::ZERO).await.is_some(),
        "an end that is still to come says nothing of this refusal"
    );
}

/// As under `100 per 1d`, after the pause that the refusal began.
#[tokio::test]
async fn a_person_ends_a_lower_rate_whose_pause_is_over() {
    let scratch = Scratch::new().await;
    let day = LIMITED.replace("permits = 20\nper = \"1s\"", "permits = 100\nper = \"1d\"");
    let node = TestNode::start(&scratch, "a", &format!("{day}cool_down = \"100ms\"\n")).await;
    scratch.bank.next("acme", [Step::answers(429, r#"{"error":"too many requests"}"#)]);
    scratch.insert("acme", "R-", 1).await;
    let slowed = "select count(*) from refundd.channels
                   where slow_percent = 90 and slow_step_us = 30000000 and repeated_within_us = 30::bigint * 864000000";
    until("it is slowed", async || scratch.number(slowed).await == 1).await;
    until("the pause is over", async || causes(&scratch).await.is_empty()).await;
    let percent = async || node.get("/v1/channels/acme").await.json()["slowed_to_percent"].clone();
    until("it says so", async || percent().await == 90).await;
    // Who saw a wait that ended by itself meant that wait.
    let seen =
        node.post(RESUME, &json!({ "by": "ann", "lift": "cooling", "seen": "2026-01-01T00:00:00Z" })).await;
    assert_eq!(seen.json()["result"], "was_not_suspended", "{seen:?}");
    assert_eq!(scratch.number(slowed).await, 1);
    let asks = ["resume", "acme", "--cooling", "--by", "ann", "--reason", "the bank takes them"];
    let (code, said) = run(&scratch, LIMITED, &asks);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("Ended: acme sent at a lower rate, because the bank had asked for slower\n")
            && said.ends_with("Channel acme sends at its full rate within a second.\n"),
        "{said}"
    );
    until("all nodes know", async || percent().await.is_null()).await;
    let says = "select count(*) from refundd.events
                 where kind = 'cooling_ended' and who = 'ann' and reason = 'the bank takes them' and after is null
                   and before ->> 'slowed_to_percent' = '90' and not before ? 'until'";
    assert_eq!(scratch.number(says).await, 1);
    assert_eq!(run(&scratch, LIMITED, &["resume", "acme", "--cooling"]).0, Some(3));
    node.stop().await;
}

/// Recovery clears coolings that are over. That must not make a repeated refusal a first one.
#[tokio::test]
async fn a_refusal_within_thirty_permits_of_the_last_pause_is_a_repeated_one_also_after_a_clearing() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    // Thirty permits take a minute here, and thirty steps less than two seconds.
    let refusal = Refusal { spacing: Some(Duration::from_secs(2)), ..REFUSAL };
    let is_refused = async || assert!(scratch.store.refused(&acme(), &refusal).await.unwrap().is_some());
    let ended_before = async |ago: &str| {
        let ended = format!("update refundd.channels set cool_until = now() - interval '{ago}'");
        scratch.sql(&ended).await;
        scratch.store.clear_cooling().await.unwrap();
    };
    let refusals = async || scratch.number("select refusals::bigint from refundd.channels").await;
    is_refused().await;
    ended_before("30 seconds").await;
    assert_eq!(refusals().await, 1, "the cooling is kept");
    is_refused().await;
    assert_eq!(refusals().await, 2, "the refusal is a repeated one");
    ended_before("61 seconds").await;
    assert_eq!(refusals().await, 0, "the cooling is cleared");
    is_refused().await;
    assert_eq!(refusals().await, 1, "the refusal is a first one");
    // Nodes of the last version wrote the steps alone.
    scratch.sql("update refundd.channels set repeated_within_us = null, slow_step_us = 2000000").await;
    ended_before("30 seconds").await;
    assert_eq!(refusals().await, 1, "thirty steps are not over");
    ended_before("61 seconds").await;
    assert_eq!(refusals().await, 0);
}
