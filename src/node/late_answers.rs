//! Late answers that contradict their refund. A person must hear of them: the refund may be paid twice.

use super::Node;
use crate::logs::chain;
use crate::store::LateAnswer;

impl Node {
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
