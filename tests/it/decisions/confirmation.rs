//! What may have been executed is sent again only after a person confirmed that it was not.

use playground::bank::Step;
use refundd::refund::{RefundId, State};
use refundd::store::{Decided, Decision};
use serde_json::json;

use super::{again, one_in_review, result, shown, version};
use crate::dispatch::{UNLIMITED, impatient};
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn what_may_have_been_executed_is_sent_again_only_when_somebody_confirms_that_it_was_not() {
    let (scratch, node) = one_in_review().await;
    let unconfirmed = |version: i64| {
        let mut decision = again(1, version);
        decision.as_object_mut().unwrap().remove("confirm");
        decision
    };
    let reply = node.post("/v1/review", &unconfirmed(version(&node, 1).await)).await.json();
    let verdict = &reply["results"][0];
    assert_eq!(
        (verdict["result"].as_str(), verdict["state"].as_str()),
        (Some("unconfirmed"), Some("review"))
    );
    let message = verdict["message"].as_str().unwrap();
    assert!(message.contains("500") && message.contains("\"confirm\": \"not_executed\""), "{message}");
    // Nor by the way round: first called failed, then opened again.
    let mut failed = unconfirmed(version(&node, 1).await);
    failed["state"] = json!("failed");
    assert_eq!(result(&node, &failed).await, "decided");
    assert_eq!(result(&node, &unconfirmed(version(&node, 1).await)).await, "unconfirmed");
    assert_eq!(scratch.bank.ledger().all().len(), 1);
    assert_eq!(result(&node, &again(1, version(&node, 1).await)).await, "decided");
    shown(&scratch, 2).await;
    node.stop().await;
}

/// What `ready` without a word about earlier sends comes to, after the only send came to that.
async fn ready_after(step: Step, extra: &str) -> &'static str {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [step]);
    let node = TestNode::start(&scratch, "a", &format!("{}{extra}", impatient())).await;
    scratch.insert("acme", "R-", 1).await;
    until("it is shown, or has ended", async || {
        let counts = scratch.counts().await;
        counts.contains_key(&State::Review) || counts.contains_key(&State::Failed)
    })
    .await;
    let refund = scratch.store.refund(RefundId(1)).await.unwrap().unwrap();
    node.stop().await;
    let decision = Decision {
        id: refund.id,
        seen: refund.version,
        next: State::Ready,
        not_executed: false,
        why: "once more",
        who: "ann",
    };
    match scratch.store.decide(&decision).await.unwrap() {
        Decided::Done(refund) => {
            assert!(refund.uncertain_since.is_none());
            "decided"
        }
        Decided::Unconfirmed(_) => "unconfirmed",
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_an_answer_that_leaves_it_open_needs_the_confirmation() {
    // A proxy's page, an echo of another amount, a time-out, a connection cut off.
    let echo = Step::answers(200, r#"{"status":"succeeded","amount_minor":1}"#);
    for step in [Step::answers(404, "<html>"), echo, Step::silence(), Step::resets()] {
        assert_eq!(ready_after(step.clone(), "").await, "unconfirmed", "{step:?}");
    }
    assert_eq!(ready_after(Step::rejects(), "").await, "decided", "the bank itself refused it");
    // By the bank's own word to an inquiry, too.
    let inquires = "on_unknown = \"inquire\"\n[channel.acme.inquiry]\nurl = \"http://{bank}/acme/refunds/{request_id}\"\n";
    let step = Step { refuses: true, ..Step::answers(500, "{}") };
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [step]);
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}{inquires}")).await;
    scratch.insert("acme", "R-", 1).await;
    until("an inquiry is planned", async || {
        scratch.number("select count(*) from refundd.refunds where inquire_at is not null").await == 1
    })
    .await;
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    until("the bank refused it", async || scratch.count(State::Failed).await == 1).await;
    let refund = scratch.store.refund(RefundId(1)).await.unwrap().unwrap();
    assert_eq!((refund.state, refund.uncertain_since), (State::Failed, None));
    node.stop().await;
}

#[tokio::test]
async fn what_never_left_is_sent_again_without_a_confirmation() {
    let scratch = Scratch::with_refunds(1).await;
    // As an older version left what a bank refused to connect for.
    scratch.lease("true", "attempts = 1").await;
    scratch.release("true", "state = 'review'").await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let refund = scratch.store.refund(RefundId(1)).await.unwrap().unwrap();
    assert_eq!(refund.uncertain_since, None);
    let mut decision = again(1, i64::from(refund.version));
    decision.as_object_mut().unwrap().remove("confirm");
    assert_eq!(result(&node, &decision).await, "decided");
    node.stop().await;
}

#[tokio::test]
async fn the_database_itself_keeps_what_may_have_been_executed_from_becoming_ready() {
    let scratch = Scratch::with_refunds(1).await;
    scratch.lease("true", "attempts = 1, first_sent_at = now()").await;
    scratch.release("true", "state = 'review'").await;
    let error = scratch.sql_error("update refundd.refunds set state = 'ready'").await;
    assert!(error.to_string().contains("only by a decision that confirms it was not"), "{error}");
    scratch.sql("update refundd.refunds set state = 'failed', settled_at = now()").await;
    let error = scratch.sql_error("update refundd.refunds set state = 'ready', settled_at = null").await;
    assert!(error.to_string().contains("only by a decision that confirms it was not"), "{error}");
}
