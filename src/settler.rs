//! The settler: writes the outcomes of sends to Postgres. One commit carries all outcomes that came since the last
//! commit began. A single outcome is written at once. A second commit runs beside the first while a full batch waits.
//!
//! The settler does not decide what an outcome means.
//!
//! It keeps an outcome that cannot be written, and tries again until Postgres is back. If the lease lapses meanwhile,
//! the refund becomes `unknown`, and the journal keeps the late answer as evidence. An outcome is set aside if another
//! transaction has locked its row, or if Postgres refuses it, fails at it or works on it for too long. It is tried again beside the
//! other commits, so that the other outcomes do not wait for it. Many such outcomes of one channel use up its slots, and hold back its
//! own sends alone.
//!
//! The settler counts and logs each outcome once, when the first try to write it is over. Only then it is known
//! whether Postgres takes the bank's reference, or the outcome becomes one for a person. A stopping node that gives them up logs the others, too.

mod aside;
mod late;
mod reporting;
mod unwritten;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use crate::crash;
use crate::failing::Failing;
use crate::lock::Lock;
use crate::logs::chain;
use crate::node::{Node, jittered};
use crate::refund::{ChannelName, Outcome, RefundId};
use crate::store::Settled;
pub use unwritten::OutcomesLeft;
use unwritten::Unlogged;

/// The settler loop.
#[derive(Debug)]
pub struct Settler {
    writer: Writer,
    inbox: mpsc::Receiver<Settled>,
    pub unwritten: OutcomesLeft,
    asked: mpsc::Receiver<oneshot::Sender<usize>>,
}

impl Settler {
    const MOST_AT_ONCE: usize = 256;
    /// How many commits may be under way together, beside one of outcomes that were set aside. A second one begins only
    /// when a full batch waits: one commit after the other uses one core of Postgres at most.
    const COMMITS: usize = 2;
    /// The shortest time from the beginning of one commit to the next, so that a steady stream shares commits. A
    /// longer time costs more when a node is killed: refunds whose outcomes it had not written become `unknown`.
    const GATHERING: Duration = Duration::from_millis(5);
    /// How often to look whether a locked row is free.
    const LOOK_AGAIN: Duration = Duration::from_secs(1);
    /// How many outcomes that were set aside may fail in one round. More would fill Postgres's log.
    const FAILS_AT_ONCE: usize = 8;
    /// How many outcomes that were set aside are tried again in one round. A statement with far more takes too long.
    const AGAIN_AT_ONCE: usize = 4096;
    /// How many outcomes may wait in the inbox. When it is full, each further outcome keeps its slot, so that a channel makes no more
    /// requests than it has slots. Outcomes that are set aside have no common bound: a sick channel must not stop the others. Each
    /// channel has a bound of its own ([`Slots::ROOM`](crate::node::slots::Slots::ROOM)).
    pub const INBOX: usize = 4096;

    pub fn new(node: Node, inbox: mpsc::Receiver<Settled>) -> Self {
        let (unwritten, asked) = OutcomesLeft::new();
        let (failing, refused) = (Mutex::default(), Mutex::default());
        let writer = Writer { node, failing, refused, unlogged: Unlogged::default() };
        Settler { writer, inbox, unwritten, asked }
    }

    /// Runs until every sender of the inbox is dropped and every outcome is written.
    pub async fn run(self) {
        let Settler { writer, mut inbox, mut asked, .. } = self;
        let mut batch = Vec::new();
        let mut aside: Vec<Settled> = Vec::new();
        // How many more were set aside, and are tried again at this moment.
        let mut looked_at: usize = 0;
        // How many are in the other commits under way.
        let mut first_tried: usize = 0;
        let mut commits = FuturesUnordered::new();
        let mut next = Instant::now();
        let mut look_at = next;
        let mut is_open = true;
        while is_open || !commits.is_empty() || !aside.is_empty() {
            // Without the commit of outcomes that were set aside: Postgres may work on it for seconds, each time.
            let writing = commits.len() - usize::from(looked_at > 0);
            tokio::select! {
                came = inbox.recv_many(&mut batch, Self::MOST_AT_ONCE), if is_open && writing == 0 => {
                    is_open = came > 0;
                    tokio::time::sleep_until(next.into()).await;
                }
                () = tokio::time::sleep_until(next.into()), if (1..Self::COMMITS).contains(&writing) => {
                    next = Instant::now() + Self::GATHERING;
                    if inbox.len() < Self::MOST_AT_ONCE {
                        continue;
                    }
                }
                Some(done) = commits.next() => {
                    let (tried, was_aside, locked): (usize, bool, Vec<Settled>) = done;
                    *(if was_aside { &mut looked_at } else { &mut first_tried }) -= tried;
                    // More may be left of which none was tried yet. After a failure they wait, too.
                    if aside.is_empty() || (was_aside && !locked.is_empty()) {
                        look_at = Instant::now() + Self::LOOK_AGAIN;
                    }
                    aside.extend(locked);
                    continue;
                }
                () = tokio::time::sleep_until(look_at.into()), if !aside.is_empty() && looked_at == 0 => {
                    let again: Vec<Settled> = aside.drain(..aside.len().min(Self::AGAIN_AT_ONCE)).collect();
                    looked_at += again.len();
                    commits.push(writer.commit(Arc::new(again), true));
                    continue;
                }
                Some(answer) = asked.recv() => {
                    aside.extend(writer.log_all(&mut inbox));
                    let _ = answer.send(aside.len() + looked_at + first_tried);
                    continue;
                }
            }
            while batch.len() < Self::MOST_AT_ONCE
                && let Ok(one) = inbox.try_recv()
            {
                batch.push(one);
            }
            if !batch.is_empty() {
                next = Instant::now() + Self::GATHERING;
                let batch = Arc::new(std::mem::take(&mut batch));
                first_tried += batch.len();
                writer.unlogged.note(&batch);
                commits.push(writer.commit(batch, false));
            }
        }
    }
}

/// Writes outcomes to Postgres.
#[derive(Debug)]
struct Writer {
    node: Node,
    /// Whether commits fail at present. Commits that are under way together log a failure of Postgres once.
    failing: Mutex<Failing>,
    /// The outcomes that Postgres refused or failed to write though it wrote others: their refunds with the holders of their leases.
    refused: Mutex<HashSet<(RefundId, Arc<str>)>>,
    unlogged: Unlogged,
}

impl Writer {
    /// Writes outcomes, or those of them whose rows are free if they were set aside before. Returns how many it tried,
    /// whether they were set aside before, and those that wait.
    async fn commit(&self, batch: Arc<Vec<Settled>>, was_aside: bool) -> (usize, bool, Vec<Settled>) {
        let tried = batch.len();
        let (tried_again, waiting) = if was_aside {
            let channels: Vec<ChannelName> = batch.iter().map(|one| one.channel.clone()).collect();
            (channels, self.write_free(Arc::unwrap_or_clone(batch)).await)
        } else {
            (Vec::new(), self.write(&batch, false).await)
        };
        self.node.slots.count_kept(waiting.iter().map(|one| &one.channel), tried_again.iter());
        (tried, was_aside, waiting)
    }

    /// Writes outcomes, and tries until that works. Returns the outcomes that wait: others have locked their rows, or
    /// Postgres fails at them. `again` says that an earlier try may have written some of them, and that all of them
    /// were counted and logged.
    async fn write(&self, batch: &[Settled], mut again: bool) -> Vec<Settled> {
        let mut was_locked = again;
        loop {
            let pass = self.node.progress.pass("settler");
            crash::point("settling");
            let done = self.node.store.settle(&self.node.name, batch, again).await;
            crash::point("settled");
            drop(pass);
            match done {
                Ok(settled) => {
                    self.failing.locked().worked(|| tracing::info!("Settling works again"));
                    self.note_written(batch, &settled);
                    self.put_back(batch, &settled.moved);
                    if !again {
                        self.report(batch);
                    }
                    late::report(&self.node, batch, &settled, again);
                    return Vec::new();
                }
                Err(error) if error.is_a_lock() => {
                    let ids: Vec<RefundId> = batch.iter().map(|settled| settled.id).collect();
                    let free = match self.node.store.free(&ids).await {
                        // Postgres cannot read one of the rows. Not all outcomes may wait for the locked one.
                        Err(unread) if !unread.is_outage() && batch.len() > 1 => {
                            return self.write_apart(batch, again).await;
                        }
                        // While Postgres does not answer, all outcomes are set aside.
                        found => found.unwrap_or_default(),
                    };
                    let is_free = |one: &Settled| batch.len() > 1 && free.contains(&one.id);
                    // It is over, or one of them needs another row, such as that of the count of ended refunds. Only that one waits.
                    if batch.iter().all(is_free) {
                        if std::mem::replace(&mut was_locked, true) {
                            return self.write_apart(batch, again).await;
                        }
                        continue;
                    }
                    let (free, mut locked): (Vec<_>, Vec<_>) = batch.iter().cloned().partition(is_free);
                    tracing::warn!(
                        error = %chain(&error),
                        refunds = locked.len(),
                        "The outcomes of {} refunds wait for a lock of another transaction; they are written when it is free", locked.len(),
                    );
                    if !again {
                        self.report(&locked);
                    }
                    if !free.is_empty() {
                        locked.extend(Box::pin(self.write(&free, again)).await);
                    }
                    return locked;
                }
                // Postgres wrote none of them. Slow storage may have time for half of them.
                Err(error) if error.is_too_slow() && batch.len() > 1 => {
                    tracing::warn!(
                        error = %chain(&error), refunds = batch.len(),
                        "Postgres worked too long on the outcomes of {} refunds; they are written in two halves", batch.len(),
                    );
                    let (half, rest) = batch.split_at(batch.len() / 2);
                    let mut waiting = Box::pin(self.write(half, again)).await;
                    // It is slow for the others, too.
                    if waiting.len() >= Settler::FAILS_AT_ONCE {
                        self.report(if again { &[] } else { rest });
                        return [rest, &waiting].concat();
                    }
                    waiting.extend(Box::pin(self.write(rest, again)).await);
                    return waiting;
                }
                Err(error) if error.is_outage() && !error.is_too_slow() => {
                    if !again {
                        self.report(batch);
                    }
                    again = true;
                    self.failing.locked().failed(|| {
                        tracing::warn!(
                            error = %chain(&error),
                            refunds = batch.len(),
                            "Failed to settle refunds, will try again until it works"
                        );
                    });
                    tokio::time::sleep(jittered(Duration::from_millis(300))).await;
                }
                // Postgres refuses one of the outcomes, or fails at its row. The others do not wait for it.
                Err(_) if batch.len() > 1 => return self.write_apart(batch, again).await,
                // Another refund has this bank reference already. Only a person can find out which refund it belongs
                // to, and the row must not keep its lease until then.
                Err(error) if error.is_taken_reference() => {
                    let shown = self.without_reference(&batch[0]).await;
                    return Box::pin(self.write(&[shown], again)).await;
                }
                // A damaged page, a sequence that is behind its table, or a rule or trigger that somebody added: the outcome can be
                // written when that is mended. The bank's values are within the bounds of the tables.
                Err(error) => {
                    if !again {
                        self.report(batch);
                    }
                    self.note_refused(&batch[0], &error);
                    return batch.to_vec();
                }
            }
        }
    }

    /// Puts refunds that wait only for the end of their channel's cooling at the front of their bucket. A failure
    /// does no harm: the feeder or recovery finds them in their rows.
    fn put_back(&self, batch: &[Settled], moved: &[RefundId]) {
        let waits_for_channel = |one: &&Settled| {
            matches!(one.answer.outcome, Outcome::SlowDown { .. }) && one.settlement.wait.is_zero()
        };
        for one in batch.iter().filter(waits_for_channel).filter(|one| moved.contains(&one.id)) {
            let (bucket, channel, id) = (self.node.bucket.clone(), one.channel.clone(), one.id);
            self.node.calls.spawn(async move {
                if let Err(error) = bucket.put_back(&channel, &[id]).await {
                    tracing::debug!(refund.id = %id, error = %chain(&error), "Failed to put refund {id} back into its bucket");
                }
            });
        }
    }
}
