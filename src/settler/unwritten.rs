//! Logs the outcomes that are not written when a stopping node gives them up: nothing else has the banks' references.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot};

use super::Writer;
use crate::lock::Lock;
use crate::refund::RefundId;
use crate::store::Settled;

/// Asks a settler for the outcomes that it has not written.
#[derive(Debug, Clone)]
pub struct OutcomesLeft(mpsc::Sender<oneshot::Sender<usize>>);

impl OutcomesLeft {
    pub(super) fn new() -> (Self, mpsc::Receiver<oneshot::Sender<usize>>) {
        let (ask, asked) = mpsc::channel(1);
        (OutcomesLeft(ask), asked)
    }

    /// Lets the settler count and log each outcome that it has not logged: nobody waits for it any more. Returns how many outcomes may be
    /// unwritten; `None` if the settler has ended.
    pub async fn log(&self) -> Option<usize> {
        let (answer, count) = oneshot::channel();
        self.0.send(answer).await.ok()?;
        count.await.ok()
    }
}

/// A batch, and the place of an outcome in it.
type Place = (Arc<Vec<Settled>>, usize);

/// The outcomes whose first try is not over, so that none was counted and logged: their batches, and their places there.
#[derive(Debug, Default)]
pub(super) struct Unlogged(Mutex<HashMap<(RefundId, Arc<str>), Place>>);

impl Unlogged {
    pub fn note(&self, batch: &Arc<Vec<Settled>>) {
        let places = (0..).zip(batch.iter());
        self.0.locked().extend(places.map(|(place, one)| (key(one), (Arc::clone(batch), place))));
    }

    /// Those of these outcomes that were not logged; the caller logs them now.
    pub fn take<'b>(&self, batch: &'b [Settled]) -> Vec<&'b Settled> {
        let mut left = self.0.locked();
        batch.iter().filter(|one| left.remove(&key(one)).is_some()).collect()
    }

    fn take_all(&self) -> Vec<Place> {
        self.0.locked().drain().map(|(_, at)| at).collect()
    }
}

fn key(one: &Settled) -> (RefundId, Arc<str>) {
    (one.id, Arc::clone(&one.holder))
}

impl Writer {
    /// Counts and logs the outcomes that were not, also those in the inbox. Returns these.
    pub(super) fn log_all(&self, inbox: &mut mpsc::Receiver<Settled>) -> Vec<Settled> {
        for (batch, place) in self.unlogged.take_all() {
            self.report_one(&batch[place]);
        }
        let came: Vec<Settled> = std::iter::from_fn(|| inbox.try_recv().ok()).collect();
        for one in &came {
            self.report_one(one);
        }
        self.node.slots.count_kept(came.iter().map(|one| &one.channel), std::iter::empty());
        came
    }
}
