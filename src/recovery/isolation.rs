//! Makes the moves of recovery. A refund at which Postgres fails keeps no other refund from being moved.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::batch_size::BatchSize;
use super::refusals::Refusals;
use super::{Recovery, Report, part};
use crate::crash;
use crate::logs::chain;
use crate::refund::RefundId;
use crate::store::{Recovered, RecoveryMove, StoreError};

/// How many refunds one move takes together, and which ones it leaves out.
#[derive(Debug)]
pub(super) struct Isolation {
    /// The most refunds that the next statement moves. It outlasts a pass: a statement that waits for a lock takes seconds,
    /// so one pass has no time for many smaller ones.
    batch: BatchSize,
    /// The refunds that Postgres refused to move.
    refused: Refusals,
    /// How many refunds Postgres refused to move in this pass.
    refused_in_pass: usize,
    /// The refunds at which Postgres waited for a lock, or worked for too long. Each pass tries them alone, so that no
    /// other refund waits with them.
    slow: VecDeque<RefundId>,
}

impl Default for Isolation {
    fn default() -> Self {
        Isolation {
            batch: BatchSize::new(Recovery::AT_ONCE),
            refused: Refusals::default(),
            refused_in_pass: 0,
            slow: VecDeque::new(),
        }
    }
}

impl Isolation {
    /// Each refusal costs some statements. After so many, and this time, the move waits for the next pass. So the other
    /// moves come soon, and cheap refusals do not hold up the refunds behind them.
    const REFUSED_AT_MOST: usize = 20;
    const REFUSING_AT_MOST: Duration = Duration::from_secs(1);

    /// Whether some refund is left out now.
    pub fn leaves_out(&self, now: Instant) -> bool {
        !self.slow.is_empty() || self.refused.leaves_out(now)
    }

    /// The refunds that are not tried together with others now.
    fn resting(&mut self, now: Instant) -> Vec<RefundId> {
        let mut resting = self.refused.resting(now);
        resting.extend(&self.slow);
        resting
    }

    /// Notes a refusal. Answers whether to log it.
    fn note_refused(&mut self, id: RefundId) -> bool {
        self.refused_in_pass += 1;
        self.refused.note(id, Instant::now())
    }
}

/// What became of one refund that was tried alone.
#[derive(Debug, PartialEq, Eq)]
enum Alone {
    /// It moved, or Postgres refuses and that was noted.
    Over,
    /// It does not wait for the move, or another transaction has its row.
    Left,
    /// Postgres waited for a lock, or worked for too long.
    Slow,
}

impl Recovery {
    /// Makes a move for the refunds that wait for it.
    pub(super) async fn recover(
        &mut self,
        which: RecoveryMove,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        self.isolation(which).refused_in_pass = 0;
        let mut done = self.recover_slow(which, report).await;
        if !done.as_ref().is_err_and(StoreError::is_away) {
            done = self.recover_together(which, report).await.and(done);
        }
        self.isolation(which).refused.log_others(name(which));
        done
    }

    fn isolation(&mut self, which: RecoveryMove) -> &mut Isolation {
        self.isolations.entry(which).or_default()
    }

    /// Tries the slow ones again, until one is slow again: each takes some seconds. Those were logged when they were
    /// slow for the first time, so they are no failure of this round.
    async fn recover_slow(&mut self, which: RecoveryMove, report: &mut Report) -> Result<(), StoreError> {
        let count = self.isolation(which).slow.len();
        for _ in 0..count {
            let Some(id) = self.isolation(which).slow.pop_front() else { break };
            if self.recover_alone(which, id, true, report).await? == Alone::Slow {
                break;
            }
        }
        Ok(())
    }

    async fn recover_together(&mut self, which: RecoveryMove, report: &mut Report) -> Result<(), StoreError> {
        let began = Instant::now();
        loop {
            if which == RecoveryMove::Lapse {
                crash::point("lapsing");
            }
            let isolation = self.isolation(which);
            let (batch, resting) = (isolation.batch, isolation.resting(Instant::now()));
            let done = self.recover_some(which, batch, &resting, report).await;
            let is_over = began.elapsed() > Self::LONGEST_PART
                || (self.isolation(which).refused_in_pass >= Isolation::REFUSED_AT_MOST
                    && began.elapsed() > Isolation::REFUSING_AT_MOST);
            match done {
                Ok(is_last) => {
                    self.isolation(which).batch.worked();
                    if is_last || is_over {
                        return Ok(());
                    }
                }
                Err(error) => {
                    if batch.is_alone() || error.is_away() {
                        return Err(error);
                    }
                    let waiting = self.node.store.to_recover(which, batch.now(), &resting);
                    let waiting = part(&self.node, waiting).await.ok();
                    let waiting = waiting.and_then(|ids| u32::try_from(ids.len()).ok());
                    self.isolation(which).batch.failed(waiting.unwrap_or(batch.now()));
                    if is_over {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Moves the next refunds. Answers whether there were no more.
    async fn recover_some(
        &mut self,
        which: RecoveryMove,
        batch: BatchSize,
        resting: &[RefundId],
        report: &mut Report,
    ) -> Result<bool, StoreError> {
        let store = &self.node.store;
        if !batch.is_alone() {
            let moved = part(&self.node, store.recover(which, batch.now(), resting)).await?;
            self.note(which, &moved, report).await;
            return Ok(moved.len() < batch.now() as usize);
        }
        // The error of a statement names no refund. So read the id first.
        let next = part(&self.node, store.to_recover(which, 1, resting)).await?;
        let Some(&id) = next.first() else { return Ok(true) };
        if self.recover_alone(which, id, false, report).await? == Alone::Left {
            // Another transaction has its row. Without this the next call would read the same id.
            self.isolation(which).slow.push_back(id);
        }
        Ok(false)
    }

    /// Moves this refund, or notes why it does not move. `was_slow` says that it was slow before, and was logged then.
    async fn recover_alone(
        &mut self,
        which: RecoveryMove,
        id: RefundId,
        was_slow: bool,
        report: &mut Report,
    ) -> Result<Alone, StoreError> {
        match part(&self.node, self.node.store.recover_one(which, id)).await {
            Ok(moved) => {
                self.note(which, &moved, report).await;
                Ok(if moved.is_empty() { Alone::Left } else { Alone::Over })
            }
            Err(error) if error.is_away() => {
                self.isolation(which).slow.push_back(id);
                Err(error)
            }
            // A lock, or a statement that is too slow.
            Err(error) if error.is_outage() => {
                self.isolation(which).slow.push_back(id);
                if !was_slow {
                    tracing::warn!(
                        refund.id = %id, error = %chain(&error),
                        "Recovery cannot {} refund {id} yet, and each round tries again. If this lasts, look for a transaction that holds a lock", name(which),
                    );
                }
                Ok(Alone::Slow)
            }
            Err(error) => {
                if self.isolation(which).note_refused(id) {
                    tracing::error!(
                        refund.id = %id, error = %chain(&error),
                        "Postgres does not let recovery {} refund {id}, and this node tries again after a minute, and later more rarely. Mend what the error names", name(which),
                    );
                }
                Ok(Alone::Over)
            }
        }
    }

    /// Counts and logs refunds that moved.
    async fn note(&self, which: RecoveryMove, moved: &[Recovered], report: &mut Report) {
        if moved.is_empty() {
            return;
        }
        let count = moved.len();
        match which {
            RecoveryMove::Lapse => {
                crash::point("lapsed");
                report.lapsed += count;
                for refund in moved {
                    let (id, node) = (refund.id, refund.node.as_deref().unwrap_or_default());
                    tracing::warn!(
                        refund.id = %id, channel.name = refund.channel, node,
                        "The lease of refund {id} on node {node} lapsed; it may have been sent and is unknown now",
                    );
                }
            }
            RecoveryMove::FailLate => {
                report.expired += count;
                for refund in moved {
                    let id = refund.id;
                    tracing::warn!(refund.id = %id, channel.name = refund.channel, "Refund {id} could not be sent by its deadline and failed");
                }
                part(&self.node, self.withdraw(moved)).await;
            }
            RecoveryMove::Plan => {
                tracing::info!(planned = count, "Planned inquiries about {count} more refunds");
            }
            RecoveryMove::DropPlans => {
                tracing::info!(dropped = count, "Dropped the inquiries about {count} refunds");
            }
            RecoveryMove::ShowHad | RecoveryMove::ShowUnknown | RecoveryMove::ShowAccepted => {
                report.note_shown(moved);
            }
        }
    }
}

/// What a move does to a refund, for the log.
const fn name(which: RecoveryMove) -> &'static str {
    match which {
        RecoveryMove::Lapse => "end the lapsed lease of",
        RecoveryMove::FailLate => "fail the late",
        RecoveryMove::Plan => "plan an inquiry about",
        RecoveryMove::DropPlans => "drop the inquiry about",
        RecoveryMove::ShowHad | RecoveryMove::ShowUnknown | RecoveryMove::ShowAccepted => "move to `review`",
    }
}
