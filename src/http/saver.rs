//! Saves what came by HTTP: a batch in one commit, and refunds that come one by one as many in one
//! commit as have come while the last was written.
//!
//! A commit costs a write to disk, however many rows are in it. While nobody else is saving, a refund
//! is saved at once and alone: grouping adds no wait. A group never answers for its neighbours: what
//! is wrong with one refund, or holds it up, is found out by saving each alone.
//!
//! Whoever hangs up does not undo what is under way.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::Nudge;
use crate::crash;
use crate::lock::Lock;
use crate::metrics::Metrics;
use crate::refund::NewRefund;
use crate::store::{Saved, Store, StoreError};

/// What became of refunds, or the error of the commit, shared by all that were in it.
/// `None` if saving panicked.
type Answer<T> = Option<Result<T, Arc<StoreError>>>;

type Reply = oneshot::Sender<Result<Saved, Arc<StoreError>>>;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Saver {
    store: Store,
    metrics: Arc<Metrics>,
    nudge: Nudge,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    writers: usize,
}

impl Queue {
    /// Whether so many writers are not too many.
    fn has_work_for(&self, writers: usize) -> bool {
        match writers {
            0 | 1 => !self.waiting.is_empty(),
            _ => writers <= Saver::WRITERS && self.waiting.len() >= Saver::MOST_IN_A_GROUP,
        }
    }
}

struct Waiting {
    refund: NewRefund,
    answer: Reply,
}

impl fmt::Debug for Saver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saver").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Saver {
    /// Groups on their way at one time. There is a second only while a whole group waits: one commit for all that
    /// came meanwhile costs less than two for half of them.
    const WRITERS: usize = 2;
    const MOST_IN_A_GROUP: usize = 100;

    pub fn new(store: Store, metrics: Arc<Metrics>, nudge: Nudge) -> Self {
        Saver { store, metrics, nudge, queue: Arc::default() }
    }

    /// Saves a batch in one commit. The answers stand in the order of the question.
    pub async fn batch(&self, refunds: Vec<NewRefund>) -> Answer<Vec<Saved>> {
        let saver = self.clone();
        let task = tokio::spawn(async move {
            crash::point("saving");
            let saved = saver.store.save(&refunds).await.map_err(Arc::new)?;
            crash::point("saved");
            saver.tell("http_batch", &refunds, &saved);
            Ok(saved)
        });
        task.await.ok()
    }

    /// Saves one refund, in a commit with others that come meanwhile.
    pub async fn one(&self, refund: NewRefund) -> Answer<Saved> {
        let (answer, answered) = oneshot::channel();
        self.queue_up(Waiting { refund, answer });
        answered.await.ok()
    }

    fn queue_up(&self, waiting: Waiting) {
        let mut queue = self.queue();
        queue.waiting.push(waiting);
        if queue.has_work_for(queue.writers + 1) {
            queue.writers += 1;
            tokio::spawn(self.clone().write());
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.locked()
    }

    /// Saves groups until nobody waits.
    async fn write(self) {
        while let Some(group) = self.next_group() {
            // Those in the group notice that their sender is gone.
            let _ = AssertUnwindSafe(self.save(group)).catch_unwind().await;
        }
    }

    /// Those that wait longest. A writer that is told `None` is counted out, so it must end.
    fn next_group(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue();
        if !queue.has_work_for(queue.writers) {
            queue.writers -= 1;
            return None;
        }
        let most = queue.waiting.len().min(Self::MOST_IN_A_GROUP);
        Some(queue.waiting.drain(..most).collect())
    }

    async fn save(&self, mut group: Vec<Waiting>) {
        // Two groups with the same refunds must not wait for each other in a circle.
        group.sort_by(|one, other| one.refund.refund_ref.cmp(&other.refund.refund_ref));
        let (refunds, answers): (Vec<_>, Vec<_>) =
            group.into_iter().map(|waiting| (waiting.refund, waiting.answer)).unzip();
        crash::point("saving");
        let saved = self.store.save_unless_held(&refunds).await;
        crash::point("saved");
        match saved {
            Err(error) if error.is_a_lock() || (error.is_about_the_row() && refunds.len() > 1) => {
                for (refund, answer) in refunds.into_iter().zip(answers) {
                    let saver = self.clone();
                    tokio::spawn(async move {
                        let refunds = [refund];
                        let saved = saver.store.save(&refunds).await;
                        saver.answer(&refunds, vec![answer], saved);
                    });
                }
            }
            saved => self.answer(&refunds, answers, saved),
        }
    }

    fn answer(&self, refunds: &[NewRefund], answers: Vec<Reply>, saved: Result<Vec<Saved>, StoreError>) {
        match saved {
            Ok(saved) => {
                self.tell("http", refunds, &saved);
                for (answer, saved) in answers.into_iter().zip(saved) {
                    // Whoever asked may have hung up.
                    let _ = answer.send(Ok(saved));
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for answer in answers {
                    let _ = answer.send(Err(Arc::clone(&error)));
                }
            }
        }
    }

    /// Counts what is new, and nudges its channels.
    fn tell(&self, way: &'static str, refunds: &[NewRefund], saved: &[Saved]) {
        let both = refunds.iter().zip(saved);
        let created =
            both.filter(|(_, saved)| matches!(saved, Saved::Created(_))).map(|(refund, _)| &refund.channel);
        self.metrics.saved(way, created.clone().count() as u64);
        for channel in created.collect::<BTreeSet<_>>() {
            (self.nudge)(channel);
        }
    }
}
