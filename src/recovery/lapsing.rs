//! Ends lapsed leases. A refund whose lease Postgres does not let end keeps no other lease from ending.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::batch_size::BatchSize;
use super::{Recovery, Report, part};
use crate::crash;
use crate::refund::RefundId;
use crate::store::{Lapsed, StoreError};
use crate::telemetry::chain;

/// How many leases are ended together, and which ones are left out.
#[derive(Debug)]
pub(super) struct Lapsing {
    /// The most leases that the next statement ends. It outlasts a pass: a statement that waits for a lock takes seconds,
    /// so one pass has no time for many smaller ones.
    batch: BatchSize,
    /// The refunds whose leases Postgres refused to end, each with the moment to try again.
    refused: HashMap<RefundId, Instant>,
    /// The refunds at which Postgres waited for a lock, or worked for too long. Each pass tries them alone, so that no
    /// other refund waits with them.
    slow: VecDeque<RefundId>,
}

impl Default for Lapsing {
    fn default() -> Self {
        Lapsing { batch: BatchSize::new(Recovery::AT_ONCE), refused: HashMap::new(), slow: VecDeque::new() }
    }
}

impl Lapsing {
    const TRY_AGAIN: Duration = Duration::from_mins(1);
    /// After this time without a failure a refused refund is forgotten: its lease has ended.
    const FORGET: Duration = Duration::from_hours(1);

    /// The refunds that are not tried together with others now.
    fn resting(&mut self, now: Instant) -> Vec<RefundId> {
        self.refused.retain(|_, again_at| *again_at + Self::FORGET > now);
        let refused = self.refused.iter().filter(|(_, again_at)| **again_at > now).map(|(id, _)| *id);
        refused.chain(self.slow.iter().copied()).collect()
    }

    /// Notes a refusal; `true` if it is the first one of this refund.
    fn note_refused(&mut self, id: RefundId) -> bool {
        self.refused.insert(id, Instant::now() + Self::TRY_AGAIN).is_none()
    }
}

/// What became of one lease that was tried alone.
#[derive(Debug, PartialEq, Eq)]
enum Alone {
    /// It ended, or Postgres refuses and that was noted.
    Over,
    /// It did not lapse, or another transaction has its row.
    Left,
    /// Postgres waited for a lock, or worked for too long.
    Slow,
}

impl Recovery {
    /// Ends lapsed leases: their refunds become `unknown`.
    pub(super) async fn lapse(&mut self, report: &mut Report) -> Result<(), StoreError> {
        let slow = self.lapse_slow(report).await;
        if slow.as_ref().is_err_and(StoreError::is_away) {
            return slow;
        }
        self.lapse_together(report).await.and(slow)
    }

    /// Tries the slow ones again, until one is slow again: each takes some seconds. Those were logged when they were
    /// slow for the first time, so they are no failure of this round.
    async fn lapse_slow(&mut self, report: &mut Report) -> Result<(), StoreError> {
        let count = self.lapsing.slow.len();
        for _ in 0..count {
            let Some(id) = self.lapsing.slow.pop_front() else { break };
            if self.lapse_alone(id, true, report).await? == Alone::Slow {
                break;
            }
        }
        Ok(())
    }

    async fn lapse_together(&mut self, report: &mut Report) -> Result<(), StoreError> {
        let began = Instant::now();
        loop {
            crash::point("lapsing");
            let (batch, resting) = (self.lapsing.batch, self.lapsing.resting(Instant::now()));
            let done = self.lapse_some(batch, &resting, report).await;
            let is_over = began.elapsed() > Self::LONGEST_PART;
            match done {
                Ok(is_last) => {
                    self.lapsing.batch.worked();
                    if is_last || is_over {
                        return Ok(());
                    }
                }
                Err(error) => {
                    if batch.is_alone() || error.is_away() {
                        return Err(error);
                    }
                    let waiting =
                        part(&self.node, self.node.store.lapsed_leases(batch.now(), &resting)).await;
                    let waiting = waiting.ok().and_then(|ids| u32::try_from(ids.len()).ok());
                    self.lapsing.batch.failed(waiting.unwrap_or(batch.now()));
                    if is_over {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Ends the next leases. Answers whether there were no more.
    async fn lapse_some(
        &mut self,
        batch: BatchSize,
        resting: &[RefundId],
        report: &mut Report,
    ) -> Result<bool, StoreError> {
        let store = &self.node.store;
        if !batch.is_alone() {
            let lapsed = part(&self.node, store.lapse_leases(batch.now(), resting)).await?;
            Self::note_lapsed(&lapsed, report);
            return Ok(lapsed.len() < batch.now() as usize);
        }
        // The error of a statement names no refund. So read the id first.
        let next = part(&self.node, store.lapsed_leases(1, resting)).await?;
        let Some(&id) = next.first() else { return Ok(true) };
        if self.lapse_alone(id, false, report).await? == Alone::Left {
            // Another transaction has its row. Without this the next call would read the same id.
            self.lapsing.slow.push_back(id);
        }
        Ok(false)
    }

    /// Ends this lease, or notes why it does not end. `was_slow` says that it was slow before, and was logged then.
    async fn lapse_alone(
        &mut self,
        id: RefundId,
        was_slow: bool,
        report: &mut Report,
    ) -> Result<Alone, StoreError> {
        match part(&self.node, self.node.store.lapse_leases_of(&[id])).await {
            Ok(lapsed) => {
                Self::note_lapsed(&lapsed, report);
                Ok(if lapsed.is_empty() { Alone::Left } else { Alone::Over })
            }
            Err(error) if error.is_away() => {
                self.lapsing.slow.push_back(id);
                Err(error)
            }
            // A lock, or a statement that is too slow.
            Err(error) if error.is_outage() => {
                self.lapsing.slow.push_back(id);
                if !was_slow {
                    tracing::warn!(
                        refund.id = %id, error = %chain(&error),
                        "The lease of refund {id} cannot end yet: it stays `sending`, and each round of recovery tries again. If this lasts, look for a transaction that holds a lock",
                    );
                }
                Ok(Alone::Slow)
            }
            Err(error) => {
                self.note_refused_lapse(id, &error);
                Ok(Alone::Over)
            }
        }
    }

    /// Counts and logs leases that ended.
    fn note_lapsed(lapsed: &[Lapsed], report: &mut Report) {
        if !lapsed.is_empty() {
            crash::point("lapsed");
        }
        for refund in lapsed {
            tracing::warn!(
                refund.id = %refund.id, channel.name = refund.channel, node = refund.node,
                "The lease of refund {} on node {} lapsed; it may have been sent and is unknown now", refund.id, refund.node,
            );
        }
        report.lapsed += lapsed.len();
    }

    fn note_refused_lapse(&mut self, id: RefundId, error: &StoreError) {
        if self.lapsing.note_refused(id) {
            tracing::error!(
                refund.id = %id, error = %chain(error),
                "Postgres does not let the lease of refund {id} end: it stays `sending`, and this node tries again every minute. Mend what the error names",
            );
        }
    }
}
