//! An inquiry about a send that a failover lost with its claim, while the next send of the refund is asked about.

use refundd::refund::State;
use refundd::refund::inquiry::InquiryOutcome;

use super::{inquired, lease, uncertain, unlimited};

#[tokio::test]
async fn what_a_bank_says_of_a_lost_send_moves_nothing_although_the_next_inquiry_has_its_number() {
    for outcome in [InquiryOutcome::NotFound, InquiryOutcome::Rejected] {
        let scratch = uncertain(1).await;
        let lost = lease(&scratch, &[unlimited(1)]).await;
        // As the standby has it, and then as it is after the next send.
        for step in [
            "state = 'ready', attempts = 0, lease_epoch = 0, inquiries = 0, first_sent_at = null, due_at = now()",
            "state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'b', lease_until = now()",
            "state = 'unknown', lease_node = null, lease_until = null, inquire_at = now()",
        ] {
            scratch.sql(&format!("update refundd.refunds set {step}")).await;
        }
        let next = lease(&scratch, &[unlimited(1)]).await;
        let (lost, next) = (&lost.leased[0], &next.leased[0]);
        assert_eq!((lost.state, lost.epoch, lost.number), (next.state, next.epoch, next.number));
        let late = inquired(lost, outcome);
        assert_eq!(scratch.store.settle_inquiry("a", &late).await.unwrap(), None);
        assert_eq!(scratch.count(State::Unknown).await, 1);
        let own = inquired(next, InquiryOutcome::Succeeded);
        assert_eq!(scratch.store.settle_inquiry("b", &own).await.unwrap(), Some(State::Succeeded));
    }
}
