//! Outcomes that moved no refund, because their lease was over or a failover lost their refund.

use crate::bucket::Purpose;
use crate::node::Node;
use crate::store::{LateAnswer, Settled, SettledBatch};

/// Counts and logs the outcomes of a commit that moved no refund. After a try whose commit was not seen, such an outcome need not be
/// late: that try may have moved the refund. The events tell in any case.
pub(super) fn report(node: &Node, batch: &[Settled], settled: &SettledBatch, again: bool) {
    let moved: std::collections::HashSet<_> = settled.moved.iter().collect();
    let mut sends = Vec::new();
    for one in batch {
        if settled.has_lost(one) {
            let (outcome, bank_ref) = (one.answer.outcome.as_str(), one.answer.bank_ref.as_deref());
            node.report_lost(one.id, &one.refund_ref, &one.channel, outcome, bank_ref);
            continue;
        }
        if moved.contains(&one.id) {
            continue;
        }
        sends.push(LateAnswer { id: one.id, purpose: Purpose::Send, number: one.attempt });
        if again {
            continue;
        }
        node.metrics.settled_late();
        tracing::warn!(
            refund.id = %one.id, channel.name = %one.channel, attempt.number = one.attempt,
            outcome = one.answer.outcome.as_str(), bank_ref = one.answer.bank_ref.as_deref(),
            "The answer for refund {} came after its lease was over; it is kept as evidence", one.id,
        );
    }
    if !sends.is_empty() {
        node.report_contradictions(sends);
    }
}
