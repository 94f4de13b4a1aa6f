//! Late answers that contradict their refund, and answers whose refund is lost. A person must hear of them: the refund may be paid twice.

use super::Node;
use crate::logs::chain;
use crate::refund::{ChannelName, RefundId};
use crate::store::LateAnswer;

impl Node {
    /// Counts and logs an answer whose refund Postgres does not have any more. The journal cannot keep it, because each line belongs to a
    /// refund: settling wrote an event. Nobody finds the refund by its id, so the log has the caller's ref.
    pub fn report_lost(
        &self,
        id: RefundId,
        refund_ref: &str,
        channel: &ChannelName,
        outcome: &str,
        bank_ref: Option<&str>,
    ) {
        self.metrics.late_answer_differs(channel.as_str());
        tracing::error!(
            refund.id = %id, refund_ref, channel.name = %channel, outcome, bank_ref,
            "Postgres has lost refund {id} with the ref `{refund_ref}` in a failover. The bank's answer to it is {outcome}, and its bank reference is {}: \
             ask the bank what it executed, before anybody saves this ref again or pays in another way",
            bank_ref.unwrap_or("unknown"),
        );
    }

    /// Counts and logs, in a task of its own, what a trigger found when it wrote the events of these answers. If this fails, the
    /// events tell. A stopping node waits for the task; nobody may read its metrics after that.
    pub fn report_contradictions(&self, answers: Vec<LateAnswer>) {
        let node = self.clone();
        self.calls.spawn(async move {
            match node.store.late_answers_that_differ(&answers).await {
                Ok(all) => {
                    for (id, channel, reason) in all {
                        node.metrics.late_answer_differs(&channel);
                        tracing::error!(refund.id = %id, channel.name = %channel, "Refund {id}: {reason}");
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "Failed to look whether late answers contradict their refunds");
                }
            }
        });
    }
}
