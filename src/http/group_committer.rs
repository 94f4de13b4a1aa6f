//! The group committer: saves the refunds that come by HTTP. A batch is one commit. Single refunds share a commit
//! with those that came while the last commit was written.
//!
//! A commit costs one write to disk, however many rows it has. While no other refund is being saved, a refund is
//! saved at once and alone, so grouping adds no wait. If one refund of a group is wrong or locked, each refund of
//! the group is saved alone, so that the bad one does not fail or delay the others. The same happens if Postgres gives
//! a group up because it takes too long. Only a few are saved alone at a time: the channel workers need the other connections,
//! and a slow Postgres would become slower. A refund that is locked also when it is saved alone waits for the lock in
//! another place, so that it delays no refund that is not.
//!
//! A save goes on when its caller hangs up. A refund that still waits for its commit is dropped then: see [`queue`].
//!
//! A refund that is refused may be saved already: the rules may be stricter since. Few are looked up at a time, so that a flood
//! of refused refunds keeps no connections from the channel workers.

mod queue;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::{Nudge, Problem};
use crate::crash;
use crate::lock::Lock;
use crate::node::Node;
use crate::refund::{CallerName, ChannelName, NewRefund};
use crate::store::{NotSaved, Saved, StoreError};
use queue::{SaveAnswer, SaveQueue, SaveReply, WaitingSave};

/// The result of a save: what the store answered, or the error of the commit, which all its refunds share. `None` if
/// saving panicked.
type SharedResult<T> = Option<Result<T, Arc<StoreError>>>;

/// Saves refunds in groups. Cheap to clone.
#[derive(Clone)]
pub(super) struct GroupCommitter {
    node: Node,
    nudge: Nudge,
    queue: Arc<Mutex<SaveQueue>>,
    /// For the refunds of groups that failed.
    alone: Arc<Semaphore>,
    /// For refunds that are locked by another transaction.
    behind_locks: Arc<Semaphore>,
}

impl fmt::Debug for GroupCommitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommitter").field("node", &self.node.name).finish_non_exhaustive()
    }
}

impl GroupCommitter {
    /// How many refunds of groups that failed are saved alone at the same time. The channel workers need the other
    /// connections.
    const ALONE: usize = 2;
    /// How many refunds wait for a lock at the same time, each on a connection.
    const BEHIND_LOCKS: usize = 2;
    /// How many refunds of a batch the database may refuse. Each costs up to 15 statements, of parts that become smaller.
    const MOST_REFUSALS: usize = 100;
    /// How long a refund waits for its place. Then it shares the failure before.
    const PLACE_WAIT: Duration = Duration::from_secs(10);

    pub fn new(node: Node, nudge: Nudge) -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        let (alone, behind_locks) = (places(Self::ALONE), places(Self::BEHIND_LOCKS));
        GroupCommitter { node, nudge, queue: Arc::new(Mutex::new(SaveQueue::new())), alone, behind_locks }
    }

    /// Saves a batch in one commit, or in several if the database refuses some refunds or another transaction holds some. If it
    /// refuses too many, the rest is not tried. The results have the order of `refunds`.
    pub async fn batch(&self, refunds: Vec<NewRefund>) -> SharedResult<Vec<Result<Saved, NotSaved>>> {
        let group_committer = self.clone();
        let task = tokio::spawn(async move {
            crash::point("saving");
            let saved = group_committer.node.store.save_each(&refunds, 1, Self::MOST_REFUSALS).await;
            crash::point("saved");
            match &saved {
                Ok(saved) => {
                    let both = refunds.iter().zip(saved);
                    let both = both.filter_map(|(refund, saved)| Some((refund, saved.as_ref().ok()?)));
                    group_committer.report("http_batch", both);
                }
                Err(error) => group_committer.node.note_failed_save(error),
            }
            saved.map_err(Arc::new)
        });
        task.await.ok()
    }

    /// Saves one refund, in one commit with others that came while the last commit was written.
    ///
    /// # Errors
    /// When too many refunds wait already.
    pub async fn one(
        &self,
        caller: Option<&CallerName>,
        refund: NewRefund,
    ) -> Result<SharedResult<Saved>, Problem> {
        let busy = "too many refunds of this caller or of others wait to be saved, so this one was not tried; repeating is safe";
        let answered = self.queue_up(caller, refund).ok_or_else(|| Problem::busy(busy))?;
        Ok(answered.await.ok())
    }

    /// Queues a refund, and starts a writer if there is work for one more.
    fn queue_up(
        &self,
        caller: Option<&CallerName>,
        refund: NewRefund,
    ) -> Option<oneshot::Receiver<SaveAnswer>> {
        let mut queue = self.queue.locked();
        let answered = queue.add(caller, refund)?;
        if queue.begins_writer() {
            tokio::spawn(self.clone().write());
        }
        Some(answered)
    }

    /// Saves groups until there is no work for this writer.
    async fn write(self) {
        while let Some(group) = self.next_group() {
            // After a panic the callers of this group notice that their sender is dropped.
            let _ = AssertUnwindSafe(self.save(group)).catch_unwind().await;
        }
    }

    /// The next refunds to save. The lock of the queue ends here.
    fn next_group(&self) -> Option<Vec<WaitingSave>> {
        self.queue.locked().next_group()
    }

    async fn save(&self, mut group: Vec<WaitingSave>) {
        // In one order, so that two groups with the same refunds do not deadlock.
        group.sort_by(|one, other| one.refund.refund_ref.cmp(&other.refund.refund_ref));
        let (refunds, replies): (Vec<_>, Vec<_>) =
            group.into_iter().map(|waiting| (waiting.refund, waiting.reply)).unzip();
        crash::point("saving");
        let saved = self.node.store.save_unless_locked(&refunds).await;
        crash::point("saved");
        match saved {
            Err(error)
                if error.is_a_lock()
                    || (refunds.len() > 1 && (error.is_about_the_row() || error.is_too_slow())) =>
            {
                let error = Arc::new(error);
                for (refund, reply) in refunds.into_iter().zip(replies) {
                    tokio::spawn(self.clone().save_alone(refund, reply, Arc::clone(&error)));
                }
            }
            saved => self.answer(&refunds, replies, saved),
        }
    }

    /// Saves a refund of a failed group alone. A refund without a place in time shares the failure of its group.
    async fn save_alone(self, refund: NewRefund, reply: SaveReply, failure: Arc<StoreError>) {
        let (refunds, store) = ([refund], &self.node.store);
        let saved = match in_place(&self.alone, store.save_unless_locked(&refunds)).await {
            Some(Err(error)) if error.is_a_lock() => {
                in_place(&self.behind_locks, store.save(&refunds)).await.unwrap_or(Err(error))
            }
            Some(saved) => saved,
            None => {
                reply.send(Err(failure));
                return;
            }
        };
        self.answer(&refunds, vec![reply], saved);
    }

    fn answer(&self, refunds: &[NewRefund], replies: Vec<SaveReply>, saved: Result<Vec<Saved>, StoreError>) {
        match saved {
            Ok(saved) => {
                self.report("http", refunds.iter().zip(&saved));
                for (reply, saved) in replies.into_iter().zip(saved) {
                    reply.send(Ok(saved));
                }
            }
            Err(error) => {
                self.node.note_failed_save(&error);
                let error = Arc::new(error);
                for reply in replies {
                    reply.send(Err(Arc::clone(&error)));
                }
            }
        }
    }

    /// Notes that saving works, counts the new refunds, and nudges the feeder for their channels.
    fn report<'a>(&self, way: &'static str, saved: impl Iterator<Item = (&'a NewRefund, &'a Saved)>) {
        self.node.saving.worked();
        let created = saved.filter(|(_, saved)| matches!(saved, Saved::Created(_)));
        let channels: Vec<&ChannelName> = created.map(|(refund, _)| &refund.channel).collect();
        self.node.metrics.saved(way, channels.len() as u64);
        for channel in channels.into_iter().collect::<BTreeSet<_>>() {
            (self.nudge)(channel);
        }
    }
}

/// Saves in one of these places; `None` if there is none in time.
async fn in_place<T>(places: &Semaphore, save: impl Future<Output = T>) -> Option<T> {
    // The semaphores are never closed, so the second failure does not happen.
    let _place = timeout(GroupCommitter::PLACE_WAIT, places.acquire()).await.ok()?.ok()?;
    Some(save.await)
}
