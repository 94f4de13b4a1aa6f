//! Each step of a proposal is an event of its refund.

use refundd::refund::{RefundId, State};
use refundd::store::{Approved, Decision, Withdrawn};
use serde_json::json;

use super::{SEEN, approve, propose, ready, uncertain, withdraw};
use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

/// What the events of a refund say, oldest first.
async fn said(scratch: &Scratch, refund: i64) -> String {
    let all = "string_agg(kind || ' by ' || who || coalesce(': ' || reason, ''), '; ' order by event_id)";
    scratch.text(&format!("select coalesce({all}, '') from refundd.events where refund_id = {refund}")).await
}

/// Lets all proposals of a refund reach their end.
pub(super) async fn age(scratch: &Scratch, refund: i64) {
    let trigger = "alter table refundd.proposals disable trigger proposals_only_end";
    scratch.sql(trigger).await;
    scratch.sql(&format!("update refundd.proposals set expires_at = now() where refund_id = {refund}")).await;
    scratch.sql(&trigger.replace("disable", "enable")).await;
}

#[tokio::test]
async fn each_step_of_a_proposal_is_an_event_with_who_and_why() {
    let scratch = uncertain(4).await;
    let proposal = propose(&scratch, &ready(1, "ann")).await;
    assert!(matches!(approve(&scratch, proposal.id, "bob").await, Approved::Done(..)));
    assert_eq!(
        said(&scratch, 1).await,
        "proposed by ann: acme has no such refund; decided by ann and bob: acme has no such refund; approved by bob: acme told me, too"
    );
    let proposal = propose(&scratch, &ready(2, "ann")).await;
    assert!(matches!(withdraw(&scratch, proposal.id, "bob").await, Withdrawn::Done(_)));
    assert_eq!(
        said(&scratch, 2).await,
        "proposed by ann: acme has no such refund; withdrawn by bob: acme found it"
    );
    let expired = propose(&scratch, &ready(3, "ann")).await;
    age(&scratch, 3).await;
    // The refund of this one has moved since.
    propose(&scratch, &ready(4, "ann")).await;
    age(&scratch, 4).await;
    scratch.decide(RefundId(4), State::Failed, "acme found it", "eve").await;
    assert_eq!(scratch.store.expire_proposals().await.unwrap(), 2);
    assert_eq!(scratch.store.expire_proposals().await.unwrap(), 0, "each ends once");
    assert_eq!(
        said(&scratch, 3).await,
        "proposed by ann: acme has no such refund; expired by refundd: nobody approved it in time"
    );
    assert_eq!(
        said(&scratch, 4).await,
        "proposed by ann: acme has no such refund; decided by eve: acme found it; \
         void by refundd: the refund changed, and nobody had approved it"
    );
    assert!(matches!(approve(&scratch, expired.id, "bob").await, Approved::Expired(_)));
    let withdrawn = withdraw(&scratch, expired.id, "bob").await;
    assert!(matches!(withdrawn, Withdrawn::Ended(proposal) if proposal.end() == "has expired"));
}

#[tokio::test]
async fn a_proposal_that_its_refund_left_behind_ends_with_an_event_long_before_its_time_is_over() {
    const VOID: &str = "void by refundd: the refund changed, and nobody had approved it";
    let scratch = uncertain(3).await;
    let approved = propose(&scratch, &ready(1, "ann")).await;
    propose(&scratch, &ready(1, "eve")).await;
    assert!(matches!(approve(&scratch, approved.id, "bob").await, Approved::Done(..)));
    let void = propose(&scratch, &ready(2, "ann")).await;
    scratch.decide(RefundId(2), State::Failed, "acme found it", "eve").await;
    propose(&scratch, &ready(3, "ann")).await;
    // An approval in vain ends it at once, and another one does not end it again.
    for _ in 0..2 {
        assert!(matches!(approve(&scratch, void.id, "bob").await, Approved::Changed(..)));
        assert_eq!(
            said(&scratch, 2).await,
            format!("proposed by ann: acme has no such refund; decided by eve: acme found it; {VOID}")
        );
    }
    let number = "select (before ->> 'proposal')::bigint from refundd.events where kind = 'void'";
    assert_eq!(scratch.number(number).await, void.id.0);
    let withdrawn = withdraw(&scratch, void.id, "bob").await;
    assert!(
        matches!(&withdrawn, Withdrawn::Ended(proposal) if proposal.end() == "is void, because its refund has changed"),
        "{withdrawn:?}"
    );
    assert_eq!(scratch.store.expire_proposals().await.unwrap(), 1, "that of eve about refund 1");
    assert!(said(&scratch, 1).await.ends_with(&format!("approved by bob: acme told me, too; {VOID}")));
    assert_eq!(said(&scratch, 3).await, "proposed by ann: acme has no such refund", "it waits");
    assert_eq!(scratch.store.expire_proposals().await.unwrap(), 0, "each ends once");
}

#[tokio::test]
async fn an_approval_of_a_void_proposal_is_refused_with_that_reason_by_every_way_in() {
    let scratch = uncertain(1).await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let proposal = propose(&scratch, &ready(1, "ann")).await;
    scratch.decide(RefundId(1), State::Failed, "acme found it", "eve").await;
    let named = json!([{ "id": proposal.id.0, "version": SEEN }]);
    let second = json!({ "proposals": named, "reason": "acme told me, too", "by": "bob" });
    let answered = node.post("/v1/proposals/approve", &second).await.json();
    let result = &answered["results"][0];
    assert_eq!((&answered["done"], &result["result"]), (&json!(0), &json!("changed")), "{answered}");
    assert!(result["message"].as_str().unwrap().starts_with("it is void"), "{answered}");
    let config = file(&scratch.file("cli", UNLIMITED));
    let seen = format!("{}@{SEEN}", proposal.id);
    let output = refundd(config.path(), &["review", "approve", &seen, "--reason", "r", "--by", "bob"]);
    assert_eq!(output.status.code(), Some(1));
    let told = format!("proposal {} is void: refund 1 has changed", proposal.id);
    assert!(text(&output).contains(&told), "{}", text(&output));
    let events = node.get("/v1/events?refund_id=1").await.json();
    assert_eq!(
        (&events["events"][0]["kind"], &events["events"][0]["before"]["who"]),
        (&json!("void"), &json!("ann")),
        "{events}"
    );
    node.stop().await;
}

#[tokio::test]
async fn another_proposal_of_the_same_person_is_an_event_of_the_first_one_too() {
    let scratch = uncertain(1).await;
    scratch.store.publish_second_person("a", &super::amounts::bounds(&[("EUR", 1)])).await.unwrap();
    propose(&scratch, &ready(1, "ann")).await;
    propose(&scratch, &ready(1, "ann")).await;
    propose(&scratch, &Decision { next: State::Succeeded, not_executed: false, ..ready(1, "ann") }).await;
    assert_eq!(
        said(&scratch, 1).await,
        "proposed by ann: acme has no such refund; replaced by ann: the proposer made another proposal; \
         proposed by ann: acme has no such refund"
    );
}

#[tokio::test]
async fn the_log_and_the_interface_show_the_proposals_of_a_refund() {
    let scratch = uncertain(1).await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let proposal = propose(&scratch, &ready(1, "ann")).await;
    withdraw(&scratch, proposal.id, "bob").await;
    let events = node.get("/v1/events?refund_id=1").await.json();
    let [withdrawn, proposed] = &events["events"].as_array().unwrap()[..] else { panic!("{events}") };
    assert_eq!((&proposed["kind"], &proposed["who"]), (&json!("proposed"), &json!("ann")));
    assert_eq!(
        (&proposed["after"]["proposal"], &proposed["after"]["state"]),
        (&json!(proposal.id.0), &json!("ready"))
    );
    assert_eq!((&withdrawn["kind"], &withdrawn["before"]["who"]), (&json!("withdrawn"), &json!("ann")));
    let config = file(&scratch.file("cli", UNLIMITED));
    let log = text(&refundd(config.path(), &["log", "R-1"]));
    // The first line says which refund it is.
    let lines: Vec<&str> = log.lines().skip(1).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].contains("withdrawn") && lines[0].ends_with(": \"acme found it\""), "{log}");
    assert!(lines[1].contains("proposed") && lines[1].ends_with(": \"acme has no such refund\""), "{log}");
    node.stop().await;
}

#[tokio::test]
async fn a_second_decision_of_the_same_people_in_the_same_words_is_an_event_of_its_own() {
    let scratch = uncertain(1).await;
    // Both decisions need two people then, so their reasons in the row are the same text.
    scratch.store.publish_second_person("a", &super::amounts::bounds(&[("EUR", 0)])).await.unwrap();
    scratch.decide(RefundId(1), State::Failed, "per acme's mail", "ann").await;
    scratch.decide(RefundId(1), State::Ready, "per acme's mail", "ann").await;
    let decided =
        "select string_agg((before ->> 'state') || ' ' || (after ->> 'state'), ', ' order by event_id)
                     from refundd.events where refund_id = 1 and kind = 'decided'";
    assert_eq!(scratch.text(decided).await, "review failed, failed ready");
}
