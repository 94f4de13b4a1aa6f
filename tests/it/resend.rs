//! Sending again under the same key what may have been executed: only where the channel's policy says so,
//! only while the bank remembers the key, and without taking a refusal for proof.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::{ChannelName, RefundId, State};
use refundd::store::{ClaimRequest, RecoveryMove};

use crate::harness::anywhere::{add_address, claim_of, unlimited};
use crate::harness::{Scratch, TestNode, is, until};

const RESENDS: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "3s"
connect_timeout = "1s"
retry = { base = "20ms", cap = "100ms", sends = 5 }
on_unknown = "resend"
key_retention = "1h"
"#;

fn with_inquiry() -> String {
    format!("{RESENDS}inquiry = {{ url = \"http://{{bank}}/acme/refunds/{{request_id}}\" }}\n")
}

async fn outcomes(scratch: &Scratch) -> String {
    scratch
        .text("select string_agg(concat_ws(' ', number, outcome, moved_to), ', ' order by id) from refundd.attempts")
        .await
}

#[tokio::test]
async fn what_may_have_happened_is_sent_again_under_the_same_key_and_paid_once() {
    let scratch = Scratch::new().await;
    scratch.bank.remembers("acme", Duration::from_hours(1));
    for refund in 1..=3 {
        let faults = [Step::pays_but_says_500(), Step::silence(), Step::resets()];
        scratch.bank.next_for("acme", &format!("R-{refund}"), faults);
    }
    let node = TestNode::start(&scratch, "a", RESENDS).await;
    scratch.insert("acme", "R-", 3).await;
    is(&scratch, State::Succeeded, 3).await;
    let ledger = scratch.bank.ledger();
    assert_eq!(ledger.repeated(), [("R-1", 4), ("R-2", 4), ("R-3", 4)]);
    assert!(ledger.doubled().is_empty() && ledger.altered().is_empty());
    assert!(ledger.all().iter().all(|arrival| (1..=4).contains(&arrival.attempt)));
    node.stop().await;
}

#[tokio::test]
async fn a_refusal_of_a_resend_is_no_proof_about_the_first_send() {
    for refusal in
        [Step::rejects(), Step::answers(409, r#"{"error":"duplicate"}"#), Step::answers(404, "<html>")]
    {
        let scratch = Scratch::new().await;
        scratch.bank.next("acme", [Step::pays_but_says_500(), refusal.clone()]);
        let node = TestNode::start(&scratch, "a", RESENDS).await;
        scratch.insert("acme", "R-", 1).await;
        is(&scratch, State::Review, 1).await;
        assert_eq!(scratch.bank.ledger().repeated(), [("R-1", 2)], "no further resend: {refusal:?}");
        assert!(scratch.bank.ledger().doubled().is_empty());
        node.stop().await;
    }
}

#[tokio::test]
async fn after_a_refused_resend_the_bank_is_asked_where_it_can_be() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500(), Step::answers(409, "{}")]);
    let node = TestNode::start(&scratch, "a", &with_inquiry()).await;
    scratch.insert("acme", "R-", 1).await;
    until("an inquiry is planned", async || {
        scratch
            .number("select count(*) from refundd.refunds where state = 'unknown' and inquire_at is not null")
            .await
            == 1
    })
    .await;
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    is(&scratch, State::Succeeded, 1).await;
    assert_eq!(scratch.bank.ledger().repeated(), [("R-1", 2)]);
    node.stop().await;
}

#[tokio::test]
async fn a_resend_that_was_not_executed_is_unknown_again_and_never_ready() {
    let scratch = Scratch::new().await;
    scratch.bank.remembers("acme", Duration::from_hours(1));
    scratch.bank.next("acme", [Step::pays_but_says_500(), Step::too_many(1), Step::unauthorised()]);
    let node = TestNode::start(&scratch, "a", RESENDS).await;
    scratch.insert("acme", "R-", 1).await;
    until("the channel pauses itself", async || scratch.suspensions().await == 1).await;
    is(&scratch, State::Unknown, 1).await;
    assert_eq!(outcomes(&scratch).await, "1 unknown unknown, 2 not_executed unknown, 2 not_executed unknown");
    scratch.resume("acme").await;
    is(&scratch, State::Succeeded, 1).await;
    assert!(scratch.bank.ledger().doubled().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn past_the_retention_nothing_is_sent_again() {
    let scratch = Scratch::new().await;
    // The bank has forgotten the key: a repeat would be a second refund.
    scratch.bank.then("acme", Step::pays_but_says_500());
    let slow = RESENDS.replace("base = \"20ms\", cap = \"100ms\"", "base = \"1h\", cap = \"1h\"");
    let node = TestNode::start(&scratch, "a", &slow).await;
    scratch.insert("acme", "R-", 2).await;
    is(&scratch, State::Unknown, 2).await;
    // One lease before the end of the hour is too late as well, for the answer has to come before.
    scratch
        .sql("update refundd.refunds set first_sent_at = now() - interval '59 minutes 50 seconds', due_at = now() where id = 1")
        .await;
    scratch.sql("update refundd.refunds set first_sent_at = now() - interval '59 minutes', due_at = now() where id = 2").await;
    is(&scratch, State::Review, 1).await;
    until("the other is sent again", async || scratch.bank.look(|l| l.all().len()) == 3).await;
    assert_eq!(scratch.bank.ledger().repeated(), [("R-2", 2)]);
    node.stop().await;
}

#[tokio::test]
async fn when_the_sends_are_used_up_a_person_is_asked() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::answers(500, "{}"));
    let node = TestNode::start(&scratch, "a", RESENDS).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Review, 1).await;
    assert_eq!(scratch.bank.ledger().repeated(), [("R-1", 5)]);
    node.stop().await;
}

#[tokio::test]
async fn a_lapsed_resend_is_unknown_and_a_resend_taken_back_too() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 2).await;
    let leased = "state = 'sending', attempts = attempts + 1, lease_epoch = lease_epoch + 1, lease_node = 'a#1/1', lease_until = now() - interval '1 second', first_sent_at = coalesce(first_sent_at, now())";
    scratch.sql(&format!("update refundd.refunds set {leased}")).await;
    assert_eq!(scratch.store.recover(RecoveryMove::Lapse, 10, &[]).await.unwrap().len(), 2);
    scratch.sql(&format!("update refundd.refunds set {leased}")).await;
    assert_eq!(scratch.store.unclaim(&[RefundId(1)], "a#1/1").await.unwrap(), 1);
    let kept = "select string_agg(code || ' ' || moved_to, ', ' order by id) from refundd.attempts where refund_id = 1";
    assert_eq!(scratch.text(kept).await, "lease_lapsed unknown, taken_back unknown");
    assert_eq!(scratch.store.recover(RecoveryMove::Lapse, 10, &[]).await.unwrap().len(), 1);
    assert_eq!(scratch.count(State::Unknown).await, 2);
    // Whoever writes the statement.
    scratch.sql(&format!("update refundd.refunds set {leased}")).await;
    let error = scratch
        .sql_error("update refundd.refunds set state = 'ready', lease_node = null, lease_until = null")
        .await;
    assert!(error.to_string().contains("cannot become ready"), "{error}");
}

#[tokio::test]
async fn a_refund_that_the_bank_has_by_a_late_answer_is_not_resent() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", RESENDS).await;
    node.stop().await;
    scratch.insert("acme", "R-", 1).await;
    scratch.sql("update refundd.refunds set state = 'sending', attempts = 2, lease_epoch = 2, lease_node = 'b', lease_until = now(), first_sent_at = now()").await;
    // The answer to an earlier send comes while the refund is sent again, and that send becomes uncertain.
    scratch
        .sql(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, code)
             select id, 'acme', 'send', 1, 1, 'a', now(), 'succeeded', 'mapped' from refundd.refunds",
        )
        .await;
    scratch.sql("update refundd.refunds set state = 'unknown', lease_node = null, lease_until = null, due_at = now()").await;
    let node = TestNode::start(&scratch, "a", RESENDS).await;
    // Refunds that are sent again go first, so the node would have sent the first one before this one, or beside it.
    scratch.insert("acme", "S-", 1).await;
    is(&scratch, State::Succeeded, 1).await;
    node.stop().await;
    let row =
        "select state || ' ' || split_part(reason, ':', 1) from refundd.refunds where refund_ref = 'R-1'";
    assert_eq!(scratch.text(row).await, "review said_paid");
    let ledger = scratch.bank.ledger();
    let sent: Vec<&str> = ledger.all().iter().map(|arrival| &*arrival.refund_ref).collect();
    assert_eq!(sent, ["S-1"]);
}

#[tokio::test]
async fn only_a_channel_that_resends_feeds_what_is_unknown() {
    let scratch = Scratch::new().await;
    let acme = ChannelName::new("acme").unwrap();
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 3).await;
    scratch.lease("id < 3", "attempts = 1, first_sent_at = now()").await;
    scratch.release("id < 3", "state = 'unknown'").await;
    assert_eq!(scratch.store.due(&acme, 10).await.unwrap(), [RefundId(3)]);
    scratch.sql("update refundd.refunds set due_at = now() + interval '1 hour' where id = 3").await;
    assert!(scratch.store.channels_with_due().await.unwrap().is_empty());
    scratch.sql("update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour'").await;
    assert_eq!(scratch.store.due(&acme, 10).await.unwrap(), [RefundId(1), RefundId(2)]);
    assert_eq!(scratch.store.channels_with_due().await.unwrap(), ["acme"]);
    scratch.sql("update refundd.refunds set deadline_at = now() where id = 1").await;
    assert_eq!(scratch.store.due(&acme, 10).await.unwrap(), [RefundId(2)], "nothing goes past its deadline");
}

#[tokio::test]
async fn what_is_sent_again_goes_before_a_backlog_that_would_outlast_the_banks_memory() {
    let scratch = Scratch::new().await;
    let acme = ChannelName::new("acme").unwrap();
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 5).await;
    scratch.sql("update refundd.refunds set due_at = now() - interval '2 days' where id < 4").await;
    scratch.lease("id > 3", "attempts = 1, first_sent_at = now()").await;
    scratch.release("id > 3", "state = 'unknown'").await;
    scratch.sql("update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour'").await;
    let ids = |ids: &[i64]| ids.iter().map(|id| RefundId(*id)).collect::<Vec<_>>();
    assert_eq!(scratch.store.due(&acme, 10).await.unwrap(), ids(&[4, 5, 1, 2, 3]));
    assert_eq!(scratch.store.due(&acme, 1).await.unwrap(), ids(&[4]));
    let before = async |head| scratch.store.left_before(&[(&acme, RefundId(head))], 10).await.unwrap();
    let left = |expected: &[i64]| [(acme.clone(), ids(expected))];
    assert_eq!(before(2).await, left(&[4, 5, 1]), "recovery puts these in front of the line");
    assert_eq!(
        before(5).await,
        left(&[4]),
        "the backlog is not left behind when one that is sent again is at the head"
    );
}

#[tokio::test]
async fn the_claim_refuses_a_resend_past_its_retention_although_its_id_was_taken() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    add_address(&scratch, "acme").await;
    scratch.insert("acme", "R-", 5).await;
    scratch.lease("true", "attempts = 1, first_sent_at = now()").await;
    scratch.release("true", "state = 'unknown'").await;
    for (id, change) in [
        (1, "first_sent_at = now() - interval '1 hour'"),
        (2, "first_sent_at = null"),
        (3, "attempts = 12"),
        (4, "inquire_at = now()"),
    ] {
        scratch.sql(&format!("update refundd.refunds set {change} where id = {id}")).await;
    }
    let taken = [1, 2, 3, 4, 5].map(unlimited);
    let claim = async |resend_within| {
        let request = ClaimRequest { resend_within, ..claim_of("a", &taken) };
        scratch.store.claim_among(&request, &[]).await.unwrap().leased
    };
    assert!(claim(None).await.is_empty(), "a channel that does not resend");
    let leased = claim(Some(Duration::from_hours(1))).await;
    assert_eq!(leased.iter().map(|l| l.id).collect::<Vec<_>>(), [RefundId(5)]);
    assert!(leased[0].is_resend && !leased[0].is_first);
}

#[tokio::test]
async fn on_a_channel_that_is_paused_for_good_what_would_be_sent_again_is_shown_in_time() {
    for asks in [false, true] {
        let scratch = Scratch::new().await;
        scratch.bank.then("acme", Step::pays_but_says_500());
        let slow = if asks { with_inquiry() } else { RESENDS.to_owned() };
        let slow = slow.replace("base = \"20ms\", cap = \"100ms\"", "base = \"1h\", cap = \"1h\"");
        let node = TestNode::start(&scratch, "a", &slow).await;
        scratch.insert("acme", "R-", 2).await;
        is(&scratch, State::Unknown, 2).await;
        scratch.pause("acme", "for good", "test").await;
        // The bank remembers the key of the second refund for some more minutes.
        let aged = "first_sent_at = now() - interval '1 hour', uncertain_at = now() - interval '1 hour'";
        scratch.sql(&format!("update refundd.refunds set {aged}, due_at = now() where id = 1")).await;
        if asks {
            until("an inquiry is planned", async || {
                scratch
                    .number("select count(*) from refundd.refunds where id = 1 and inquire_at <= now()")
                    .await
                    == 1
            })
            .await;
            assert_eq!(scratch.count(State::Unknown).await, 2, "the inquiry has its week");
            scratch
                .sql("update refundd.refunds set uncertain_at = now() - interval '7 days 11 minutes' where id = 1")
                .await;
        }
        is(&scratch, State::Review, 1).await;
        assert_eq!(scratch.count(State::Unknown).await, 1, "the other one is in time");
        assert_eq!(scratch.bank.look(|l| l.all().len()), 2, "a paused channel sends and asks nothing");
        node.stop().await;
    }
}
