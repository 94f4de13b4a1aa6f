//! Claims and settling, called directly.

mod elsewhere;
mod forgotten;
mod late;
mod lies;
mod lost;
mod mixed_up;
mod permits;
mod refused;
mod resends;
mod settling;
mod spans;
mod taken_back;
mod too_slow;
mod twice;

use std::sync::Arc;
use std::time::{Duration, Instant};

use refundd::limiter::Permit;
use refundd::refund::{
    Answer, Code, Leased, OnUnknown, Outcome, Policy, RefundId, Sending, Settlement, State,
};
use refundd::store::{Claimed, Decided, RecoveryMove, Settled};

use crate::harness::anywhere::{acme, add_address, add_limit, claim_of, numbered, unlimited, window};
use crate::harness::{Scratch, until};

async fn limited_scratch_with(refunds: u32) -> Scratch {
    let scratch = Scratch::with_refunds(refunds).await;
    add_address(&scratch, "acme").await;
    for limit in ["acme", "day"] {
        add_limit(&scratch, limit).await;
    }
    scratch
}

async fn claim(scratch: &Scratch, node: &str, taken: &[(RefundId, Permit)]) -> Claimed {
    scratch.store.claim_among(&claim_of(node, taken), &[]).await.unwrap()
}

/// Ends the lease of the one refund that has one, as recovery does.
async fn lapse(scratch: &Scratch) {
    scratch.sql("update refundd.refunds set lease_until = now() - interval '1 second'").await;
    assert_eq!(scratch.store.recover(RecoveryMove::Lapse, 1, &[]).await.unwrap().len(), 1);
}

fn settled(claimed: &Claimed, outcome: Outcome) -> Settled {
    settlement_of(&claimed.leased[0], outcome)
}

/// An outcome under this reference of the bank.
fn answered(claimed: &Claimed, outcome: Outcome, bank_ref: Option<&str>) -> Vec<Settled> {
    let mut one = settled(claimed, outcome);
    one.answer.bank_ref = bank_ref.map(str::to_owned);
    vec![one]
}

fn settled_all(claimed: &Claimed, outcome: &Outcome) -> Vec<Settled> {
    claimed.leased.iter().map(|lease| settlement_of(lease, outcome.clone())).collect()
}

fn settlement_of(lease: &Leased, outcome: Outcome) -> Settled {
    let code = if outcome == Outcome::Review { Code::EchoDiffers } else { Code::Unmapped };
    let answer = Answer::new(outcome, code, "test");
    let policy = Policy {
        retry: refundd::refund::retry::RetryPolicy::default(),
        cool_down: Duration::ZERO,
        on_unknown: OnUnknown::Review,
        inquires: false,
    };
    let uncounted_leases = lease.uncounted_leases();
    let sending = Sending { number: 1, is_resend: lease.is_resend, uncounted_leases };
    let settlement = Settlement::of(&answer, sending, &policy, 0.0);
    Settled {
        id: lease.id,
        refund_ref: lease.expected.refund_ref.clone(),
        money: lease.expected.money.clone(),
        request_id: lease.request_id,
        epoch: lease.epoch,
        holder: Arc::clone(&lease.holder),
        channel: acme(),
        attempt: lease.attempt,
        started: Some(Instant::now()),
        is_first: lease.is_first,
        permit: None,
        answer,
        settlement,
        duration: Duration::ZERO,
        waited: Duration::ZERO,
    }
}

#[tokio::test]
async fn of_two_nodes_that_claim_the_same_refund_one_gets_it() {
    let scratch = limited_scratch_with(50).await;
    let taken: Vec<_> = (1..=50).map(unlimited).collect();
    let (a, b) = tokio::join!(claim(&scratch, "a", &taken), claim(&scratch, "b", &taken));
    let mut ids: Vec<i64> = a.leased.iter().chain(&b.leased).map(|l| l.id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=50).collect::<Vec<i64>>());
    assert_eq!(scratch.count(State::Sending).await, 50);
}

#[tokio::test]
async fn claiming_and_settling_read_no_more_of_a_table_that_has_grown_since_they_were_planned() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    add_address(&scratch, "acme").await;
    scratch.sql("alter table refundd.refunds set (autovacuum_enabled = off)").await;
    // The workers who keep this index read the table, too.
    scratch.sql("alter index refundd.refunds_by_time_of_end set (autosummarize = off)").await;
    let work = async |ids: std::ops::RangeInclusive<i64>| {
        let claimed = claim(&scratch, "a", &ids.map(unlimited).collect::<Vec<_>>()).await;
        let leased = claimed.leased.len();
        let outcomes: Vec<Settled> = settled_all(&claimed, &Outcome::Succeeded);
        assert_eq!(scratch.store.settle("a", &outcomes, false).await.unwrap().moved.len(), leased);
        leased
    };
    // Planned now, while there is hardly anything, and never again.
    scratch.insert("acme", "R-", 300).await;
    assert_eq!(work(1..=256).await, 256);
    scratch.insert("acme", "S-", 20_000).await;
    let counted =
        |what| format!("select {what} from pg_stat_user_tables where relid = 'refundd.refunds'::regclass");
    until("the first are counted", async || scratch.number(&counted("n_tup_upd")).await >= 512).await;
    let read = counted("seq_tup_read + coalesce(idx_tup_fetch, 0)");
    let before = scratch.number(&read).await;
    let walked = scratch.number(&counted("seq_tup_read")).await;
    for first in (1001..2025).step_by(256) {
        assert_eq!(work(first..=first + 255).await, 256);
    }
    until("the others are counted", async || scratch.number(&counted("n_tup_upd")).await >= 2560).await;
    assert_eq!(scratch.number(&counted("seq_tup_read")).await, walked);
    let each = (scratch.number(&read).await - before) / 1024;
    assert!(each < 10, "{each} rows were read for each refund");
}

#[tokio::test]
async fn a_paused_or_cooling_channel_lets_no_claim_through() {
    let scratch = limited_scratch_with(1).await;
    scratch.pause("acme", "maintenance", "ops").await;
    assert!(claim(&scratch, "a", &[unlimited(1)]).await.is_suspended);
    scratch.resume("acme").await;
    scratch
        .sql("update refundd.channels set cool_until = now() + interval '1 minute', cool_reason = 'HTTP 429'")
        .await;
    assert!(claim(&scratch, "a", &[unlimited(1)]).await.is_suspended);
    scratch.sql("update refundd.channels set cool_until = now() - interval '1 second'").await;
    assert_eq!(claim(&scratch, "a", &[unlimited(1)]).await.leased.len(), 1);
}

#[tokio::test]
async fn a_refund_that_is_not_due_or_past_its_deadline_is_not_claimed() {
    let scratch = limited_scratch_with(2).await;
    scratch.sql("update refundd.refunds set due_at = now() + interval '1 hour' where id = 1").await;
    scratch.sql("update refundd.refunds set deadline_at = now() - interval '1 second' where id = 2").await;
    let claimed = claim(&scratch, "a", &[unlimited(1), unlimited(2)]).await;
    assert_eq!(claimed.stale, [RefundId(1), RefundId(2)]);
}

#[tokio::test]
async fn a_claim_from_an_address_that_postgres_does_not_have_leases_nothing() {
    let scratch = Scratch::with_refunds(1).await;
    let lost = claim(&scratch, "a", &[unlimited(1)]).await;
    assert!(lost.is_address_lost && lost.leased.is_empty());
    add_address(&scratch, "acme").await;
    let found = claim(&scratch, "a", &[unlimited(1)]).await;
    assert!(!found.is_address_lost && found.leased.len() == 1);
}

#[tokio::test]
async fn the_body_and_the_key_are_the_same_on_every_attempt() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    add_address(&scratch, "acme").await;
    scratch
        .sql(r#"insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, payload)
                values ('R-1', 'acme', 'P-1', 1250, 'EUR', '{"b": 1.50, "a": "é", "big": 12345678901234567890}')"#)
        .await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.store.settle("a", &[settled(&first, Outcome::HandedBack)], false).await.unwrap();
    let second = claim(&scratch, "b", &[unlimited(1)]).await;
    assert_eq!(first.leased[0].body, second.leased[0].body);
    assert_eq!(first.leased[0].request_id, second.leased[0].request_id);
    let body = String::from_utf8(first.leased[0].body.to_vec()).unwrap();
    assert!(body.starts_with(r#"{"refund_id":1,"refund_ref":"R-1","channel":"acme","payment_ref":"P-1","amount_minor":1250,"currency":"EUR","payload":{"#), "{body}");
    assert!(body.contains("12345678901234567890") && body.contains("1.50"), "{body}");
}

#[tokio::test]
async fn a_claim_whose_commit_was_not_seen_is_taken_back() {
    let scratch = limited_scratch_with(2).await;
    claim(&scratch, "a#1/1", &[unlimited(1), unlimited(2)]).await;
    assert_eq!(
        scratch.store.unclaim(&[RefundId(1), RefundId(2)], "a#1/2").await.unwrap(),
        0,
        "another claim of the same process"
    );
    assert_eq!(scratch.store.unclaim(&[RefundId(1)], "a#1/1").await.unwrap(), 1);
    assert_eq!(scratch.count(State::Ready).await, 1);
    assert_eq!(scratch.number("select attempts::bigint from refundd.refunds where id = 1").await, 0);
}

#[tokio::test]
async fn a_person_decides_only_what_the_legal_moves_allow_and_the_journal_keeps_why() {
    let scratch = limited_scratch_with(2).await;
    let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
    assert!(
        matches!(scratch.decide(RefundId(1), State::Succeeded, "why", "ann").await, Decided::Illegal(_)),
        "a node holds it"
    );
    scratch.store.settle("a", &[settled(&claimed, Outcome::Review)], false).await.unwrap();
    let done = scratch.decide(RefundId(1), State::Succeeded, "the bank's report of Monday", "ann").await;
    assert!(matches!(done, Decided::Done(r) if r.state == State::Succeeded && r.settled_at.is_some()));
    let evidence = scratch.store.evidence(RefundId(1)).await.unwrap();
    let last = evidence.last().unwrap();
    assert_eq!(
        (last.kind.as_str(), last.node.as_str(), last.message.as_deref()),
        ("manual", "ann", Some("the bank's report of Monday"))
    );
    assert!(matches!(scratch.decide(RefundId(1), State::Ready, "again", "ann").await, Decided::Illegal(_)));
    assert!(
        matches!(scratch.decide(RefundId(2), State::Failed, "no", "ann").await, Decided::Illegal(_)),
        "it is ready"
    );
    assert!(matches!(scratch.decide(RefundId(99), State::Failed, "no", "ann").await, Decided::NoSuchRefund));
}

#[tokio::test]
async fn one_refund_costs_at_most_five_row_versions() {
    let scratch = limited_scratch_with(1).await;
    let w = window(&scratch).await;
    let claimed = claim(&scratch, "a", &[numbered(1, w, 1)]).await;
    scratch.store.settle("a", &[settled(&claimed, Outcome::Succeeded)], false).await.unwrap();
    // Counters reach the view when a connection ends.
    scratch.store.close().await;
    let written = "select coalesce(sum(n_tup_ins + n_tup_upd), 0)::bigint from pg_stat_user_tables
                    where schemaname = 'refundd' and (relname = 'refunds' or relname like any(array['attempts%', 'permits%']))";
    until("the statistics say 5", async || scratch.number(written).await >= 5).await;
    assert_eq!(scratch.number(written).await, 5);
}

#[tokio::test]
async fn taking_an_old_claim_back_does_not_touch_a_newer_one_of_the_same_process() {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a#1/1", &[unlimited(1)]).await;
    scratch.store.settle("a#1", &[settled(&first, Outcome::HandedBack)], false).await.unwrap();
    claim(&scratch, "a#1/2", &[unlimited(1)]).await;
    assert_eq!(scratch.store.unclaim(&[RefundId(1)], "a#1/1").await.unwrap(), 0);
    assert_eq!(scratch.count(State::Sending).await, 1);
}

#[tokio::test]
async fn a_refund_that_is_handed_back_keeps_its_place_in_the_order() {
    let scratch = limited_scratch_with(3).await;
    scratch.sql("update refundd.refunds set due_at = now() - interval '1 day' where id = 2").await;
    let claimed = claim(&scratch, "a", &[unlimited(2)]).await;
    scratch.store.settle("a", &[settled(&claimed, Outcome::HandedBack)], false).await.unwrap();
    assert_eq!(scratch.store.due(&acme(), 1).await.unwrap(), [RefundId(2)]);
}

#[tokio::test]
async fn leases_before_the_first_byte_of_a_refund_are_no_refusals_of_its_bank() {
    let scratch = limited_scratch_with(1).await;
    let lease = async || claim(&scratch, "a", &[unlimited(1)]).await;
    let settle = async |one: Settled| scratch.store.settle("a", &[one], false).await.unwrap();
    for _ in 0..5 {
        settle(Settled { started: None, ..settled(&lease().await, Outcome::HandedBack) }).await;
    }
    let refused = settled(&lease().await, Outcome::SlowDown { retry_after: None });
    assert_eq!(refused.settlement.wait, Duration::ZERO, "the refund keeps its place at its first refusal");
    settle(refused).await;
    assert_eq!(lease().await.leased[0].uncounted_leases(), 6);
}
