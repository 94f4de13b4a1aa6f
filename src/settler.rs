//! Writes outcomes back, as many in one commit as have gathered since the last one began. One that comes
//! alone is written at once.
//!
//! Nothing here decides what an outcome means. An outcome that cannot be written is kept and tried
//! again until Postgres is back; if the lease lapses meanwhile, the refund is `unknown`, and the late
//! answer is kept in the journal as evidence. One whose row somebody else holds is set aside, so that
//! the others do not wait for it.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::crash;
use crate::node::failing::Failing;
use crate::node::{Node, jittered};
use crate::refund::attempt::taken_reference;
use crate::refund::{Answer, Code, Outcome, RefundId, Settlement, State};
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
    /// How long after a commit was begun the next one begins, at the soonest. A steady stream shares commits;
    /// what a node that is killed has not written yet becomes `unknown`.
    const GATHERING: Duration = Duration::from_millis(5);
    /// How often to look whether a row that somebody held is free.
    const LOOK_AGAIN: Duration = Duration::from_secs(1);
    /// How many outcomes may wait before calls to banks wait too.
    pub const INBOX: usize = 4096;

    pub fn new(node: Node, inbox: mpsc::Receiver<Settled>) -> Self {
        Settler { node, inbox }
    }

    /// Runs until every sender is gone and everything is written.
    pub async fn run(mut self) {
        let mut batch = Vec::with_capacity(Self::MOST_AT_ONCE);
        let mut aside: Vec<Settled> = Vec::new();
        let mut next = Instant::now();
        loop {
            tokio::select! {
                came = self.inbox.recv_many(&mut batch, Self::MOST_AT_ONCE) => {
                    if came == 0 && aside.is_empty() {
                        return;
                    }
                    if came == 0 {
                        tokio::time::sleep(Self::LOOK_AGAIN).await;
                        aside = self.write_free(std::mem::take(&mut aside)).await;
                    }
                }
                () = tokio::time::sleep(Self::LOOK_AGAIN), if !aside.is_empty() => {
                    aside = self.write_free(std::mem::take(&mut aside)).await;
                }
            }
            if !batch.is_empty() {
                tokio::time::sleep_until(next.into()).await;
                while batch.len() < Self::MOST_AT_ONCE
                    && let Ok(one) = self.inbox.try_recv()
                {
                    batch.push(one);
                }
                next = Instant::now() + Self::GATHERING;
                aside.extend(self.write(&batch, false).await);
                batch.clear();
            }
        }
    }

    /// Writes those whose rows nobody holds any more; answers the others.
    async fn write_free(&self, aside: Vec<Settled>) -> Vec<Settled> {
        let ids: Vec<RefundId> = aside.iter().map(|settled| settled.id).collect();
        let Ok(free) = self.node.store.free(&ids).await else { return aside };
        let (free, mut held): (Vec<_>, Vec<_>) = aside.into_iter().partition(|one| free.contains(&one.id));
        if !free.is_empty() {
            held.extend(self.write(&free, true).await);
        }
        held
    }

    /// Writes outcomes; answers those whose rows somebody else holds. `again`: some may have been written.
    async fn write(&self, batch: &[Settled], again: bool) -> Vec<Settled> {
        let (mut failing, mut again) = (Failing::default(), again);
        loop {
            let pass = self.node.progress.pass("settler");
            crash::point("settling");
            let done = self.node.store.settle(&self.node.name, batch, again).await;
            crash::point("settled");
            drop(pass);
            match done {
                Ok(moved) => {
                    failing.worked(|| tracing::info!(refunds = batch.len(), "Settling works again"));
                    self.put_back(batch, &moved);
                    // After a try whose commit was not seen, standing still says nothing.
                    if !again {
                        self.report_late(batch, &moved);
                    }
                    return Vec::new();
                }
                Err(error) if error.is_a_lock() => {
                    let ids: Vec<RefundId> = batch.iter().map(|settled| settled.id).collect();
                    // None are known to be free while it is not the rows that are held.
                    let free = self.node.store.free(&ids).await.unwrap_or_default();
                    let (free, held): (Vec<_>, Vec<_>) =
                        batch.iter().cloned().partition(|one| free.contains(&one.id));
                    tracing::warn!(
                        error = %chain(&error),
                        refunds = held.len(),
                        "Somebody holds the rows of {} refunds; their outcomes are written when they are free", held.len(),
                    );
                    let mut held = held;
                    if !free.is_empty() {
                        held.extend(Box::pin(self.write(&free, again)).await);
                    }
                    return held;
                }
                Err(error) if !error.is_about_the_row() => {
                    again = true;
                    failing.failed(|| {
                        tracing::warn!(
                            error = %chain(&error),
                            refunds = batch.len(),
                            "Failed to settle refunds, will try again until it works"
                        );
                    });
                    tokio::time::sleep(jittered(Duration::from_millis(300))).await;
                }
                // One of them is at fault; the others must not wait for it.
                Err(_) if batch.len() > 1 => {
                    let mut held = Vec::new();
                    for one in batch {
                        held.extend(Box::pin(self.write(std::slice::from_ref(one), again)).await);
                    }
                    return held;
                }
                // Whose it is only a person can find out; the row must not wait for that under its lease.
                Err(error) if error.is_taken_reference() => {
                    let shown = self.without_reference(&batch[0]).await;
                    return Box::pin(self.write(&[shown], again)).await;
                }
                Err(error) => {
                    give_up(&batch[0], &error);
                    return Vec::new();
                }
            }
        }
    }

    /// The same, for a person to judge: the bank's reference in the answer belongs to another refund.
    async fn without_reference(&self, settled: &Settled) -> Settled {
        let mut shown = settled.clone();
        let reference = shown.answer.bank_ref.take().unwrap_or_default();
        let holder = self.node.store.bank_ref_holder(&settled.channel, &reference).await.ok().flatten();
        let message = taken_reference(holder, &shown.answer.message);
        shown.answer = Answer {
            status: settled.answer.status,
            ..Answer::new(Outcome::Review, Code::BankRefTaken, message)
        };
        shown.settlement =
            Settlement { next: State::Review, wait: Duration::ZERO, counted: true, inquire_in: None };
        tracing::warn!(
            refund.id = %shown.id, channel.name = %shown.channel, code = shown.answer.code.as_str(),
            "Refund {} goes to a person: {}", shown.id, shown.answer.message,
        );
        shown
    }

    /// Refunds that wait for nothing but their channel's pause stand first in line when it is over. Best effort:
    /// what is lost comes back from its row.
    fn put_back(&self, batch: &[Settled], moved: &[RefundId]) {
        let waits_for_the_channel = |one: &&Settled| {
            matches!(one.answer.outcome, Outcome::AskedToWait { .. }) && one.settlement.wait.is_zero()
        };
        for one in batch.iter().filter(waits_for_the_channel).filter(|one| moved.contains(&one.id)) {
            let (bucket, channel, id) = (self.node.bucket.clone(), one.channel.clone(), one.id);
            self.node.calls.spawn(async move {
                if let Err(error) = bucket.put_back(&channel, &[id]).await {
                    tracing::debug!(refund.id = %id, error = %chain(&error), "Failed to put refund {id} back in line");
                }
            });
        }
    }

    fn report_late(&self, batch: &[Settled], moved: &[RefundId]) {
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
