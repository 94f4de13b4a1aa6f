//! To reopen a refund opens no way around the rules about what is sent.

use refundd::caller::Names;
use refundd::refund::{RefundId, State};
use refundd::store::{Approved, Cancelled, Canceller, Decided, Decision, NeededFor, ProposalAnswer};

use super::amounts::bounds;
use crate::harness::Scratch;

/// What becomes of ann's decision about the refund as it is now. She confirms that nothing was executed if she chooses `ready`.
async fn decide(scratch: &Scratch, id: i64, next: State) -> Decided {
    let id = RefundId(id);
    let seen = scratch.store.refund(id).await.unwrap().unwrap().version;
    let not_executed = next == State::Ready;
    let decision = Decision { id, seen, next, not_executed, why: "on the statement", who: "ann" };
    scratch.store.decide(&decision).await.unwrap()
}

#[tokio::test]
async fn a_cancelled_refund_that_is_reopened_is_never_sent() {
    let scratch = Scratch::with_refunds(2).await;
    for id in [1, 2] {
        let cancelled = scratch.store.cancel(RefundId(id), None, &Canceller::producer(Names::All)).await;
        assert!(matches!(cancelled.unwrap(), Cancelled::Now(_)));
    }
    // Refund 1 is of 1.01 EUR, and refund 2 of 1.02 EUR.
    scratch.store.publish_second_person("a", &bounds(&[("EUR", 101)])).await.unwrap();
    let Decided::Done(refund) = decide(&scratch, 1, State::Review).await else {
        panic!("it is one person's")
    };
    assert_eq!((refund.state, refund.settled_at), (State::Review, None));
    assert!(refund.uncertain_since.is_some(), "the bank may have paid it");
    assert!(matches!(decide(&scratch, 1, State::Ready).await, Decided::WasCancelled(_)));
    // Nor by the way round, first called failed.
    assert!(matches!(decide(&scratch, 1, State::Failed).await, Decided::Done(_)));
    assert!(matches!(decide(&scratch, 1, State::Ready).await, Decided::WasCancelled(_)));
    assert!(matches!(decide(&scratch, 1, State::Review).await, Decided::Done(_)));
    assert!(matches!(decide(&scratch, 1, State::Ready).await, Decided::WasCancelled(_)));
    assert!(matches!(decide(&scratch, 1, State::Succeeded).await, Decided::Done(_)));
    // Where the amount needs two people, two reopen it.
    let Decided::Proposed(refund, proposal) = decide(&scratch, 2, State::Review).await else {
        panic!("the amount needs two people")
    };
    assert_eq!((refund.state, proposal.needed_for), (State::Cancelled, NeededFor::Amount));
    let answer = |who| ProposalAnswer { id: proposal.id, why: "seen, too", who };
    let own = scratch.store.approve(&answer("ann"), proposal.version).await.unwrap();
    assert!(matches!(own, Approved::SamePerson(_)), "{own:?}");
    let approved = scratch.store.approve(&answer("bob"), proposal.version).await.unwrap();
    assert!(matches!(&approved, Approved::Done(refund, _) if refund.state == State::Review), "{approved:?}");
    assert!(matches!(decide(&scratch, 2, State::Ready).await, Decided::WasCancelled(_)));
    assert!(
        matches!(decide(&scratch, 2, State::Succeeded).await, Decided::Proposed(_, p) if p.needed_for == NeededFor::Amount)
    );
    assert_eq!((scratch.count(State::Ready).await, scratch.count(State::Review).await), (0, 1));
}

#[tokio::test]
async fn a_failed_refund_that_is_reopened_is_sent_again_only_by_two_people() {
    let scratch = Scratch::with_refunds(2).await;
    scratch
        .sql("update refundd.refunds set state = 'failed', settled_at = now(), reason = 'deadline_passed'")
        .await;
    // No byte of it ever left, and nobody reopened it.
    assert!(matches!(decide(&scratch, 1, State::Ready).await, Decided::Done(_)));
    // A person who reopens a refund says that the bank may have paid it.
    assert!(matches!(decide(&scratch, 2, State::Review).await, Decided::Done(_)));
    for by_way_of in [None, Some(State::Failed)] {
        if let Some(state) = by_way_of {
            assert!(matches!(decide(&scratch, 2, state).await, Decided::Done(_)));
        }
        let again = decide(&scratch, 2, State::Ready).await;
        assert!(
            matches!(&again, Decided::Proposed(_, p) if p.needed_for == NeededFor::Uncertain),
            "{again:?}"
        );
    }
}
