//! Ends lapsed leases. A refund whose lease Postgres does not let end keeps no other lease from ending.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Recovery, Report};
use crate::crash;
use crate::lock::Lock;
use crate::refund::RefundId;
use crate::store::{Lapsed, StoreError};
use crate::telemetry::chain;

/// The refunds whose leases Postgres did not let end, each with the moment to try again.
#[derive(Debug, Default)]
pub(super) struct RefusedLapses(HashMap<RefundId, Instant>);

impl RefusedLapses {
    const TRY_AGAIN: Duration = Duration::from_mins(1);
    /// After this time without a failure the refund is forgotten: its lease has ended.
    const FORGET: Duration = Duration::from_hours(1);

    /// The refunds that are not tried now.
    fn resting(&mut self, now: Instant) -> Vec<RefundId> {
        self.0.retain(|_, again_at| *again_at + Self::FORGET > now);
        self.0.iter().filter(|(_, again_at)| **again_at > now).map(|(id, _)| *id).collect()
    }

    /// Notes a failure; `true` if it is the first one of this refund.
    fn note(&mut self, id: RefundId) -> bool {
        self.0.insert(id, Instant::now() + Self::TRY_AGAIN).is_none()
    }
}

impl Recovery {
    /// Ends lapsed leases: their refunds become `unknown`.
    pub(super) async fn lapse(&self, report: &mut Report) -> Result<(), StoreError> {
        let began = Instant::now();
        loop {
            crash::point("lapsing");
            let resting = self.refused_lapses.locked().resting(Instant::now());
            let (lapsed, is_last) =
                match self.part(self.node.store.lapse_leases(Self::AT_ONCE, &resting)).await {
                    Ok(lapsed) => {
                        let is_last = lapsed.len() < Self::AT_ONCE as usize;
                        (lapsed, is_last)
                    }
                    Err(error) if error.is_away() => return Err(error),
                    Err(error) => self.lapse_in_parts(&resting, began, error).await?,
                };
            if !lapsed.is_empty() {
                crash::point("lapsed");
            }
            for refund in &lapsed {
                tracing::warn!(
                    refund.id = %refund.id, channel.name = refund.channel, node = refund.node,
                    "The lease of refund {} on node {} lapsed; it may have been sent and is unknown now", refund.id, refund.node,
                );
            }
            report.lapsed += lapsed.len();
            if is_last || began.elapsed() > Self::LONGEST_PART {
                return Ok(());
            }
        }
    }

    /// Ends the leases that could not be ended together because of `error`: in halves, and those in halves, down to one
    /// refund. Answers those that ended, and whether there were no more.
    async fn lapse_in_parts(
        &self,
        resting: &[RefundId],
        began: Instant,
        error: StoreError,
    ) -> Result<(Vec<Lapsed>, bool), StoreError> {
        let all = self.part(self.node.store.lapsed_leases(Self::AT_ONCE, resting)).await?;
        if all.is_empty() {
            return Err(error);
        }
        let (mut lapsed, mut parts) = (Vec::new(), vec![all.as_slice()]);
        while let Some(part) = parts.pop().filter(|_| began.elapsed() < Self::LONGEST_PART) {
            match self.part(self.node.store.lapse_leases_of(part)).await {
                Ok(more) => lapsed.extend(more),
                // Those that ended stay so. The next pass goes on.
                Err(error) if error.is_away() => break,
                Err(error) => {
                    if let [id] = part {
                        self.note_refused_lapse(*id, &error);
                    } else {
                        let (half, rest) = part.split_at(part.len() / 2);
                        parts.extend([rest, half]);
                    }
                }
            }
        }
        let is_last = lapsed.is_empty() || all.len() < Self::AT_ONCE as usize;
        Ok((lapsed, is_last))
    }

    fn note_refused_lapse(&self, id: RefundId, error: &StoreError) {
        if self.refused_lapses.locked().note(id) {
            tracing::error!(
                refund.id = %id, error = %chain(error),
                "Postgres does not let the lease of refund {id} end: it stays `sending`, and this node tries again every minute. Mend what the error names",
            );
        }
    }
}
