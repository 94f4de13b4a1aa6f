//! Outcomes that moved no refund, because their lease was over.

use crate::bucket::Purpose;
use crate::node::Node;
use crate::refund::RefundId;
use crate::store::{LateAnswer, Settled};

/// Counts and logs the outcomes of a commit that moved no refund. After a try whose commit was not seen, such an outcome need not be
/// late: that try may have moved the refund. The events tell in any case.
pub(super) fn report(node: &Node, batch: &[Settled], moved: &[RefundId], again: bool) {
    let moved: std::collections::HashSet<_> = moved.iter().collect();
    let mut sends = Vec::new();
    for late in batch.iter().filter(|settled| !moved.contains(&settled.id)) {
        sends.push(LateAnswer { id: late.id, purpose: Purpose::Send, number: late.attempt });
        if again {
            continue;
        }
        node.metrics.settled_late();
        tracing::warn!(
            refund.id = %late.id, channel.name = %late.channel, attempt.number = late.attempt,
            outcome = late.answer.outcome.as_str(), bank_ref = late.answer.bank_ref.as_deref(),
            "The answer for refund {} came after its lease was over; it is kept as evidence", late.id,
        );
    }
    if !sends.is_empty() {
        node.report_contradictions(sends);
    }
}
