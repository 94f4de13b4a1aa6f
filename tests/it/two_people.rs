//! What one person proposes, another approves: above an amount, and before anything is sent again that may have been
//! executed.

mod amounts;
mod attacks;
mod events;
mod in_a_browser;
mod races;
mod reopened;
mod shown;

use refundd::refund::{ProposalId, RefundId, State};
use refundd::store::{
    Approved, Decided, Decision, Evidence, EvidenceKind, Proposal, ProposalAnswer, ProposalEnd, Withdrawn,
};
use serde_json::json;
use sqlx::{Connection, PgConnection, Row};

use crate::cli::{file, refundd, text};
use crate::decisions::{again, one_in_review, shown, version};
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

/// The version of a refund that [`uncertain`] made.
const SEEN: i32 = 3;

/// So many refunds in review after a send that may have been executed, and no node.
async fn uncertain(count: u32) -> Scratch {
    let scratch = Scratch::with_refunds(count).await;
    scratch.lease("true", "attempts = 1, first_sent_at = now()").await;
    scratch.release("true", "state = 'review'").await;
    scratch
}

/// A decision that the refund is sent again.
fn ready(id: i64, who: &str) -> Decision<'_> {
    Decision {
        id: RefundId(id),
        seen: SEEN,
        next: State::Ready,
        not_executed: true,
        why: "acme has no such refund",
        who,
    }
}

/// The proposal that a person's decision became.
async fn propose(scratch: &Scratch, decision: &Decision<'_>) -> Proposal {
    match scratch.store.decide(decision).await.unwrap() {
        Decided::Proposed(_, proposal) => proposal,
        other => panic!("{other:?}"),
    }
}

async fn approve(scratch: &Scratch, id: ProposalId, who: &str) -> Approved {
    let answer = ProposalAnswer { id, why: "acme told me, too", who };
    scratch.store.approve(&answer, SEEN).await.unwrap()
}

async fn withdraw(scratch: &Scratch, id: ProposalId, who: &str) -> Withdrawn {
    let answer = ProposalAnswer { id, why: "acme found it", who };
    scratch.store.withdraw(&answer).await.unwrap()
}

/// The lines that people left in the journal: who, what, and where to.
fn people(journal: &[Evidence]) -> Vec<(&str, &str, Option<&str>)> {
    let lines = journal.iter().filter(|line| line.kind == EvidenceKind::Manual);
    lines.map(|line| (line.node.as_str(), line.outcome.as_str(), line.moved_to.as_deref())).collect()
}

#[tokio::test]
async fn ready_after_an_uncertain_send_needs_two_people_at_every_door() {
    let (scratch, node) = one_in_review().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let seen = version(&node, 1).await;
    // HTTP.
    let proposed = node.post("/v1/review", &again(1, seen)).await.json();
    let result = &proposed["results"][0];
    assert_eq!((&proposed["decided"], &proposed["proposed"]), (&json!(0), &json!(1)), "{proposed}");
    assert_eq!((&result["result"], &result["state"]), (&json!("proposed"), &json!("review")), "{proposed}");
    let message = result["message"].as_str().unwrap();
    assert!(
        message.contains("may have been executed") && message.contains("/v1/proposals/approve"),
        "{message}"
    );
    let named = json!([{ "id": result["proposal"], "version": seen }]);
    let second = |by: &str| json!({ "proposals": named, "reason": "acme told me, too", "by": by });
    let own = node.post("/v1/proposals/approve", &second("ann")).await.json();
    assert_eq!((&own["done"], &own["results"][0]["result"]), (&json!(0), &json!("same_person")), "{own}");
    // The command.
    let (id, proposal) = (format!("1@{seen}"), format!("{}@{seen}", result["proposal"]));
    let settle = [
        "review",
        "settle",
        &id,
        "--as",
        "ready",
        "--reason",
        "it never arrived",
        "--confirm",
        "not-executed",
    ];
    let settled = refundd(config.path(), &settle);
    assert!(
        settled.status.success() && text(&settled).contains("another person must approve"),
        "{}",
        text(&settled)
    );
    assert!(text(&settled).contains(&format!("refundd review approve {proposal}")), "{}", text(&settled));
    let approved = refundd(config.path(), &["review", "approve", &proposal, "--reason", "again"]);
    assert_eq!(approved.status.code(), Some(1));
    assert!(text(&approved).contains("another person must approve it"), "{}", text(&approved));
    // SQL, as the role of nodes.
    let mut role = PgConnection::connect(&scratch.database_url).await.unwrap();
    let decided = format!("select * from refundd.decide(1, 'ready', 'why', 'ann', {seen}, true)");
    assert!(sqlx::raw_sql(sqlx::AssertSqlSafe(decided)).fetch_all(&mut role).await.unwrap().is_empty());
    for who in ["ann", " Ann", "ＡＮＮ"] {
        let approved =
            format!("select (refundd.approve({}, {seen}, 'why', '{who}')).result", result["proposal"]);
        let row = sqlx::raw_sql(sqlx::AssertSqlSafe(approved)).fetch_one(&mut role).await.unwrap();
        assert_eq!(row.get::<&str, _>("result"), "same_person", "{who}");
    }
    // Nor by the way round, first called failed.
    let mut failed = again(1, seen);
    failed["state"] = json!("failed");
    failed.as_object_mut().unwrap().remove("confirm");
    assert_eq!(node.post("/v1/review", &failed).await.json()["decided"], 1);
    let opened = node.post("/v1/review", &again(1, seen + 1)).await.json();
    assert_eq!(opened["results"][0]["result"], "proposed", "{opened}");
    assert_eq!((version(&node, 1).await, scratch.bank.ledger().all().len()), (seen + 1, 1));
    // Two people.
    let named = json!([{ "id": opened["results"][0]["proposal"], "version": seen + 1 }]);
    let second = json!({ "proposals": named, "reason": "acme told me, too", "by": "bob" });
    let approved = node.post("/v1/proposals/approve", &second).await.json();
    assert_eq!(
        (&approved["done"], &approved["results"][0]["result"]),
        (&json!(1), &json!("approved")),
        "{approved}"
    );
    shown(&scratch, 2).await;
    let repeated = node.post("/v1/proposals/approve", &second).await.json();
    assert_eq!(
        (&repeated["done"], &repeated["results"][0]["result"]),
        (&json!(0), &json!("ended")),
        "{repeated}"
    );
    assert_eq!(scratch.bank.ledger().all().len(), 2);
    node.stop().await;
}

#[tokio::test]
async fn both_people_stand_in_the_journal_and_in_the_refund() {
    let scratch = uncertain(1).await;
    let proposal = propose(&scratch, &ready(1, "ann")).await;
    let Approved::Done(refund, _) = approve(&scratch, proposal.id, "bob").await else { panic!() };
    assert_eq!(refund.reason.as_deref(), Some("decided by ann and bob: acme has no such refund"));
    assert_eq!((refund.state, refund.version, refund.uncertain_since), (State::Ready, SEEN + 1, None));
    let journal = scratch.store.evidence(RefundId(1)).await.unwrap();
    assert_eq!(people(&journal), [("ann", "proposed", None), ("bob", "decided", Some("ready"))]);
    let [proposed, decided] = &journal[..] else { panic!("{journal:?}") };
    for line in [proposed, decided] {
        assert_eq!((line.number, line.code.as_deref()), (SEEN, Some("confirmed_not_executed")), "{line:?}");
    }
    assert_eq!(proposed.message, Some(format!("proposal {}, ready: acme has no such refund", proposal.id)));
    assert_eq!(decided.message, Some(format!("approves proposal {} of ann: acme told me, too", proposal.id)));
}

#[tokio::test]
async fn an_approval_of_a_stale_version_is_refused() {
    let scratch = uncertain(2).await;
    let proposal = propose(&scratch, &ready(1, "ann")).await;
    let answer = ProposalAnswer { id: proposal.id, why: "acme told me, too", who: "bob" };
    for other in [SEEN - 1, SEEN + 1] {
        let approved = scratch.store.approve(&answer, other).await.unwrap();
        assert!(matches!(approved, Approved::Changed(..)), "{approved:?}");
    }
    // An answer that comes late is evidence that neither of the two has seen.
    scratch
        .sql("insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code)
              values (1, 'acme', 'send', 1, 1, 'a', 'succeeded', 'succeeded')")
        .await;
    for seen in [SEEN, SEEN + 1] {
        let approved = scratch.store.approve(&answer, seen).await.unwrap();
        assert!(
            matches!(&approved, Approved::Changed(refund, _) if refund.version == SEEN + 1),
            "{approved:?}"
        );
    }
    assert_eq!(
        scratch.store.proposals(&listed()).await.unwrap(),
        [],
        "it cannot be approved, so it is not shown"
    );
    // Somebody else has decided.
    let proposal = propose(&scratch, &ready(2, "ann")).await;
    let failed = Decision { next: State::Failed, not_executed: false, ..ready(2, "eve") };
    assert!(matches!(scratch.store.decide(&failed).await.unwrap(), Decided::Done(_)));
    assert!(matches!(approve(&scratch, proposal.id, "bob").await, Approved::Changed(..)));
    assert_eq!((scratch.count(State::Review).await, scratch.count(State::Failed).await), (1, 1));
}

fn listed() -> refundd::store::ProposalFilter {
    refundd::store::ProposalFilter {
        limit: 100,
        ..refundd::store::ProposalFilter::of(refundd::caller::Names::All)
    }
}

#[tokio::test]
async fn a_repeated_proposal_stands_once_and_another_one_of_the_same_person_replaces_it() {
    let scratch = uncertain(1).await;
    scratch.store.publish_second_person("a", &amounts::bounds(&[("EUR", 1)])).await.unwrap();
    let first = propose(&scratch, &ready(1, "ann")).await;
    let repeated = propose(&scratch, &Decision { why: "in other words", ..ready(1, "Ann ") }).await;
    assert_eq!(repeated, first);
    let paid = Decision { next: State::Succeeded, not_executed: false, ..ready(1, "ann") };
    let second = propose(&scratch, &paid).await;
    assert_ne!(second.id, first.id);
    assert!(
        matches!(approve(&scratch, first.id, "bob").await, Approved::Ended(old) if old.ended.as_ref().unwrap().0 == ProposalEnd::Replaced)
    );
    // Another person's proposal stands beside it, and each can approve the other's.
    let other = propose(&scratch, &ready(1, "bob")).await;
    let waiting: Vec<_> = scratch.store.proposals(&listed()).await.unwrap();
    assert_eq!(waiting.iter().map(|one| one.proposal.id).collect::<Vec<_>>(), [second.id, other.id]);
    assert!(matches!(approve(&scratch, other.id, "bob").await, Approved::SamePerson(_)));
    assert!(
        matches!(approve(&scratch, second.id, "bob").await, Approved::Done(refund, _) if refund.state == State::Succeeded)
    );
    assert!(
        matches!(approve(&scratch, other.id, "ann").await, Approved::Changed(..)),
        "the refund has moved"
    );
    let journal = scratch.store.evidence(RefundId(1)).await.unwrap();
    let expected = [
        ("ann", "proposed", None),
        ("ann", "proposed", None),
        ("bob", "proposed", None),
        ("bob", "decided", Some("succeeded")),
    ];
    assert_eq!(people(&journal), expected);
}

#[tokio::test]
async fn a_withdrawn_and_an_expired_proposal_cannot_be_approved() {
    let scratch = uncertain(2).await;
    let withdrawn = propose(&scratch, &ready(1, "ann")).await;
    assert!(matches!(withdraw(&scratch, withdrawn.id, "bob").await, Withdrawn::Done(_)));
    assert!(matches!(withdraw(&scratch, withdrawn.id, "ann").await, Withdrawn::Ended(_)));
    assert!(matches!(approve(&scratch, withdrawn.id, "eve").await, Approved::Ended(_)));
    assert!(matches!(withdraw(&scratch, ProposalId(99), "ann").await, Withdrawn::NoSuchProposal));
    assert!(matches!(approve(&scratch, ProposalId(99), "ann").await, Approved::NoSuchProposal));
    let journal = scratch.store.evidence(RefundId(1)).await.unwrap();
    assert_eq!(people(&journal), [("ann", "proposed", None), ("bob", "withdrawn", None)]);
    let expired = propose(&scratch, &ready(2, "ann")).await;
    // A week later. Only a test moves the time of a proposal.
    let aged = "alter table refundd.proposals disable trigger proposals_only_end";
    scratch.sql(aged).await;
    scratch.sql("update refundd.proposals set expires_at = now() where refund_id = 2").await;
    scratch.sql(&aged.replace("disable", "enable")).await;
    assert!(matches!(approve(&scratch, expired.id, "bob").await, Approved::Expired(_)));
    assert_eq!(scratch.store.proposals(&listed()).await.unwrap(), []);
    assert_eq!(scratch.count(State::Review).await, 2);
    let anew = propose(&scratch, &ready(2, "ann")).await;
    assert_ne!(anew.id, expired.id);
    assert!(matches!(approve(&scratch, anew.id, "bob").await, Approved::Done(..)));
}
