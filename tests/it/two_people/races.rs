//! Two people answer at the same time: exactly one answer has an effect.

use refundd::refund::{RefundId, State};
use refundd::store::{Approved, Decided, Decision, Withdrawn};
use sqlx::Executor;

use super::{SEEN, approve, people, propose, ready, uncertain, withdraw};
use crate::harness::{Scratch, until};

/// Lets two answers about refund 1 begin, and go on once both wait for the refund.
async fn at_once<A, B>(
    scratch: &Scratch,
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> (A, B) {
    let mut blocker = scratch.connect().await;
    blocker.execute("begin; select from refundd.refunds where id = 1 for update").await.unwrap();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let release = async {
        until("both wait", async || scratch.number(waiting).await == 2).await;
        blocker.execute("commit").await.unwrap();
    };
    let (one, other, ()) = tokio::join!(one, other, release);
    (one, other)
}

#[tokio::test]
async fn of_two_approvals_at_once_one_moves_the_refund() {
    let scratch = uncertain(1).await;
    let id = propose(&scratch, &ready(1, "ann")).await.id;
    let answers = at_once(&scratch, approve(&scratch, id, "bob"), approve(&scratch, id, "eve")).await;
    let by = match &answers {
        (Approved::Done(..), Approved::Ended(_)) => "bob",
        (Approved::Ended(_), Approved::Done(..)) => "eve",
        other => panic!("{other:?}"),
    };
    let journal = scratch.store.evidence(RefundId(1)).await.unwrap();
    assert_eq!(people(&journal), [("ann", "proposed", None), (by, "decided", Some("ready"))]);
    assert_eq!(scratch.store.refund(RefundId(1)).await.unwrap().unwrap().version, SEEN + 1);
}

#[tokio::test]
async fn of_an_approval_and_a_withdrawal_at_once_one_has_an_effect() {
    let scratch = uncertain(1).await;
    let id = propose(&scratch, &ready(1, "ann")).await.id;
    let answers = at_once(&scratch, approve(&scratch, id, "bob"), withdraw(&scratch, id, "ann")).await;
    let (state, last) = match &answers {
        (Approved::Done(..), Withdrawn::Ended(_)) => (State::Ready, ("bob", "decided", Some("ready"))),
        (Approved::Ended(_), Withdrawn::Done(_)) => (State::Review, ("ann", "withdrawn", None)),
        other => panic!("{other:?}"),
    };
    let journal = scratch.store.evidence(RefundId(1)).await.unwrap();
    assert_eq!(people(&journal), [("ann", "proposed", None), last]);
    assert_eq!(scratch.count(state).await, 1);
}

#[tokio::test]
async fn of_an_approval_and_a_decision_of_one_person_at_once_one_has_an_effect() {
    let scratch = uncertain(1).await;
    let id = propose(&scratch, &ready(1, "ann")).await.id;
    let failed = Decision { next: State::Failed, not_executed: false, ..ready(1, "eve") };
    let answers = at_once(&scratch, approve(&scratch, id, "bob"), scratch.store.decide(&failed)).await;
    let state = match &answers {
        (Approved::Done(..), Ok(Decided::Changed(_))) => State::Ready,
        (Approved::Changed(..), Ok(Decided::Done(_))) => State::Failed,
        other => panic!("{other:?}"),
    };
    assert_eq!(scratch.count(state).await, 1);
    let journal = scratch.store.evidence(RefundId(1)).await.unwrap();
    assert_eq!(journal.iter().filter(|line| line.moved_to.is_some()).count(), 1, "{journal:?}");
}

#[tokio::test]
async fn a_proposal_that_comes_twice_at_once_is_kept_once() {
    let scratch = uncertain(1).await;
    let (one, other) = (ready(1, "ann"), ready(1, "ann"));
    let (one, other) = at_once(&scratch, propose(&scratch, &one), propose(&scratch, &other)).await;
    assert_eq!(one, other);
    assert_eq!(scratch.number("select count(*) from refundd.proposals").await, 1);
    assert_eq!(people(&scratch.store.evidence(RefundId(1)).await.unwrap()).len(), 1);
}
