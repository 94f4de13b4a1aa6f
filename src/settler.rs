//! Writes outcomes back, as many in one commit as have gathered while the last one was written.
//!
//! Nothing here decides what an outcome means. An outcome that cannot be written is kept and tried
//! again until Postgres is back; if the lease lapses meanwhile, the refund is `unknown`, and the late
//! answer is kept in the journal as evidence.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::crash;
use crate::node::{Node, jittered};
use crate::store::{Settled, StoreError};
use crate::telemetry::chain;

/// The loop.
#[derive(Debug)]
pub struct Settler {
    node: Node,
    inbox: mpsc::Receiver<Settled>,
}

impl Settler {
    const MOST_AT_ONCE: usize = 256;
    /// How many outcomes may wait before calls to banks wait too.
    pub const INBOX: usize = 4096;

    pub fn new(node: Node, inbox: mpsc::Receiver<Settled>) -> Self {
        Settler { node, inbox }
    }

    /// Runs until every sender is gone and everything is written.
    pub async fn run(mut self) {
        let mut batch = Vec::with_capacity(Self::MOST_AT_ONCE);
        while self.inbox.recv_many(&mut batch, Self::MOST_AT_ONCE).await > 0 {
            self.write(&batch).await;
            batch.clear();
        }
    }

    async fn write(&self, batch: &[Settled]) {
        let mut failing = false;
        loop {
            let pass = self.node.progress.pass("settler");
            crash::point("settling");
            let done = self.node.store.settle(&self.node.name, batch, failing).await;
            crash::point("settled");
            drop(pass);
            match done {
                Ok(moved) => {
                    if failing {
                        tracing::info!(refunds = batch.len(), "Settling works again");
                    }
                    // After a try whose commit was not seen, standing still says nothing.
                    if !failing {
                        self.report_late(batch, &moved);
                    }
                    return;
                }
                Err(error) if !error.is_about_the_row() => {
                    if !failing {
                        failing = true;
                        tracing::warn!(
                            error = %chain(&error),
                            refunds = batch.len(),
                            "Failed to settle refunds, will try again until it works"
                        );
                    }
                    tokio::time::sleep(jittered(Duration::from_millis(300))).await;
                }
                // One of them is at fault; the others must not wait for it.
                Err(_) if batch.len() > 1 => {
                    for one in batch {
                        Box::pin(self.write(std::slice::from_ref(one))).await;
                    }
                    return;
                }
                Err(error) => return give_up(&batch[0], &error),
            }
        }
    }

    fn report_late(&self, batch: &[Settled], moved: &[crate::refund::RefundId]) {
        let moved: std::collections::HashSet<_> = moved.iter().collect();
        for late in batch.iter().filter(|s| !moved.contains(&s.id)) {
            self.node.metrics.settled_late();
            tracing::warn!(
                refund.id = %late.id, channel.name = %late.channel, attempt.number = late.attempt,
                outcome = late.answer.outcome.as_str(),
                "The answer for refund {} came after its lease was over; it is kept as evidence and moves nothing", late.id,
            );
        }
    }
}

fn give_up(one: &Settled, error: &StoreError) {
    tracing::error!(
        error = %chain(error), refund.id = %one.id, channel.name = %one.channel,
        outcome = one.answer.outcome.as_str(),
        "Postgres refuses the outcome of refund {}; when its lease is over it becomes unknown", one.id,
    );
}
