//! Deadlines of first sends, while Postgres's clock is set back.

use refundd::refund::RefundId;
use refundd::store::ClockWitness;

use super::{clocked, step};
use crate::harness::anywhere::{add_address, claim_of, unlimited};

#[tokio::test]
async fn no_refund_is_sent_after_its_deadline_because_postgres_was_set_back() {
    let (postgres, scratch) = clocked("deadline").await;
    scratch.publish("acme").await;
    add_address(&scratch, "acme").await;
    let store = scratch.store.clone().witnessed_by(ClockWitness::default());
    assert_eq!(store.watch_clock("a#1", None, false).await.unwrap(), None);
    step(&postgres, -40);
    // By the clock before the step, the first deadline was 20 s ago, and the second comes in 20 s.
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, deadline_at)
             values ('R-1', 'acme', 'P', 1, 'EUR', now() + interval '20 seconds'),
                    ('R-2', 'acme', 'P', 1, 'EUR', now() + interval '60 seconds')",
        )
        .await;
    let taken = [1, 2].map(unlimited);
    let claimed = store.claim_among(&claim_of("a", &taken), &[]).await.unwrap();
    assert_eq!(claimed.leased.iter().map(|leased| leased.id).collect::<Vec<_>>(), [RefundId(2)]);
    assert_eq!(claimed.stale, [RefundId(1)]);
}
