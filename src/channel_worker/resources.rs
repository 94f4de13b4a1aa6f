//! The slots and connections that a worker reserves before it takes.

use std::time::{Duration, Instant};

use super::{ChannelWorker, Work, need};
use crate::bank::{Reserved, Want};
use crate::bucket::Purpose;
use crate::node::slots::Slot;

/// The slots and connections that a worker reserves before it takes. A take asks for no more permits than it has of
/// each.
#[derive(Debug)]
pub(super) struct Resources {
    pub slots: Vec<Slot>,
    pub connections: Vec<Reserved>,
}

impl<W: Work> ChannelWorker<W> {
    /// How long a free slot waits for other slots, while fewer than a quarter of them are free.
    const GATHERING: Duration = Duration::from_millis(2);
    /// The most of `ahead` for which a connection is reserved. An attempt that waits for longer looks at its connection again.
    const MOST_AHEAD: Duration = Duration::from_millis(500);

    /// Gets a token if requests need one, and reserves connections for the next take.
    ///
    /// # Errors
    /// When no connection can be had now; the error is the time until the next try.
    pub(super) async fn connect(
        &mut self,
        slots: usize,
        opens: Option<Instant>,
    ) -> Result<Vec<Reserved>, Duration> {
        let until = self.used_by(opens.unwrap_or_else(Instant::now));
        let want = Want { most: slots, need: self.need(slots), until };
        let reserved = async {
            if let Some(tokens) = &self.tokens {
                tokens.good_until(until).await?;
            }
            self.connections.reserve(want).await
        };
        match reserved.await {
            Ok(connections) => {
                self.reach.reached(&self.connections, &self.channel.limits);
                Ok(connections)
            }
            Err(unreachable) => {
                self.reach.failed(&self.connections, &unreachable);
                Err(unreachable.retry_in)
            }
        }
    }

    /// How long before a grant this node starts to open connections, so that they are open at the grant.
    pub(super) fn dials_before(&self, grant: Instant) -> Duration {
        let need = self.need(self.slots.free());
        self.connections.lead(self.used_by(grant), need)
    }

    /// When the connection of a permit that is granted at this moment will carry its request: after the claim.
    fn used_by(&self, grant: Instant) -> Instant {
        grant + self.longest_ahead().min(Self::MOST_AHEAD) + self.work.lead_time()
    }

    /// How many connections to reserve before the next take.
    fn need(&self, slots: usize) -> usize {
        // Inquiries are few, and they are not urgent.
        if W::PURPOSE == Purpose::Inquire {
            return 1;
        }
        // A bucket that was just filled has at least one id.
        let in_bucket = self.depth.map_or(1, |depth| usize::try_from(depth).unwrap_or(usize::MAX));
        let waiting = in_bucket.saturating_add(self.prefetched.len());
        let horizon = self.connections.set_up() + self.work.lead_time() + self.longest_ahead();
        need::need(&self.channel.limits, horizon, self.is_rare).min(slots).min(waiting).max(1)
    }

    /// Waits for one slot and takes all free slots. While requests use more than three quarters of the slots, it
    /// waits a moment for more: one claim for several refunds costs little more than a claim for one.
    pub(super) async fn free_slots(&self) -> Vec<Slot> {
        let several = (self.channel.max_in_flight / 4).min(W::MOST_AT_ONCE);
        loop {
            self.slots.wait_for(1).await;
            if W::PURPOSE == Purpose::Send && several > 1 {
                let _ = tokio::time::timeout(Self::GATHERING, self.slots.wait_for(several as usize)).await;
            }
            let slots = self.slots.take(W::MOST_AT_ONCE as usize);
            if !slots.is_empty() {
                return slots;
            }
        }
    }

    /// How long before its span opens a permit may be granted.
    pub(super) fn longest_ahead(&self) -> Duration {
        self.channel.limits.iter().map(|limit| limit.ahead).max().unwrap_or_default()
    }
}
