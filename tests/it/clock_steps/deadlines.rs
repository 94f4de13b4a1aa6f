//! Deadlines of first sends, while Postgres's clock is set back.

use std::time::Duration;

use refundd::limiter::Permit;
use refundd::refund::{ChannelName, RefundId};
use refundd::store::{ClaimRequest, ClockWitness};

use super::{clocked, step};
use crate::harness::anywhere::{ANYWHERE, add_address};

#[tokio::test]
async fn no_refund_is_sent_after_its_deadline_because_postgres_was_set_back() {
    let (postgres, scratch) = clocked("deadline").await;
    let acme = ChannelName::new("acme").unwrap();
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
    let taken = [1, 2].map(|id| (RefundId(id), Permit { numbers: Vec::new(), span: None }));
    let request = ClaimRequest {
        channel: &acme,
        node: "a",
        holder: "a",
        lease: Duration::from_secs(30),
        clock_tolerance: Duration::from_secs(5),
        taken: &taken,
        resend_within: None,
        most_sends: 12,
        bank_address: &ANYWHERE,
    };
    let claimed = store.claim_among(&request, &[]).await.unwrap();
    assert_eq!(claimed.leased.iter().map(|leased| leased.id).collect::<Vec<_>>(), [RefundId(2)]);
    assert_eq!(claimed.stale, [RefundId(1)]);
}
