//! Takes refunds or inquiries from one channel's bucket, claims them, and makes each request under its permit.
//!
//! Each node runs one worker for sends per channel, and one worker for inquiries if the channel has an inquiry. Both
//! use this loop; [`Work`] names the differences. A worker has slots and open connections before it takes, so it can
//! send everything that it takes. It commits the claim in Postgres before the first byte leaves. It asks Redis again
//! only when there may be ids and permits.
//!
//! While the bank cannot be reached, a worker takes nothing and spends no permit. The ids stay in the bucket for a
//! node that can reach the bank. See docs/decisions/0011-a-permit-needs-an-open-connection.md.
//!
//! After the commit of a claim a refund *may have been sent*. A request is handed back only if it provably did not
//! leave, because the permit lapsed or the node stops. Every other request is settled.

mod attempt;
mod blocked;
mod claiming;
mod inquire;
mod lapses;
mod making;
mod need;
mod phases;
mod prefetch;
mod probing;
mod resources;
mod round;
mod send;
mod unused;
mod waits;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::bank::{Bank, Pool, Tokens};
use crate::bucket::Purpose;
use crate::channel::Channel;
use crate::limiter::Permit;
use crate::logs::chain;
use crate::node::effective_limits::EffectiveLimits;
use crate::node::meter::Binds;
use crate::node::reach::Reach;
use crate::node::slots::Slots;
use crate::node::suspended::ReservedProbe;
use crate::node::{Node, jittered};
use crate::refund::RefundId;
use crate::wake_up::WakeUps;
use blocked::ObstacleReport;
pub use inquire::Inquiries;
use phases::{NotReady, Signals};
use probing::Permission;
use resources::Resources;
pub use send::Sends;
use waits::Waits;
pub use work::Work;

/// The loop for one channel on this node.
#[derive(Debug)]
pub struct ChannelWorker<W> {
    node: Node,
    wake_ups: WakeUps,
    /// The channel, with the limits that count for this work.
    channel: Arc<Channel>,
    bank: Arc<Bank>,
    connections: Pool,
    /// The tokens that the requests carry; `None` if they carry none.
    tokens: Option<Tokens>,
    slots: Arc<Slots>,
    /// Ends this worker: its channel is gone or changed, or the node stops.
    stop: CancellationToken,
    blocked: ObstacleReport,
    reach: Reach,
    effective_limits: EffectiveLimits,
    waits: Waits,
    work: W,
    /// How many ids the bucket had after the last take; `None` if it was filled since then.
    depth: Option<u64>,
    /// Ids that were taken for the next claim before it has slots, each with its permit.
    prefetched: Vec<(RefundId, Permit)>,
    /// The last wait was long enough to open a connection.
    is_rare: bool,
    /// The breaker's probe that the next request is; `None` if it is no probe.
    probe: Option<ReservedProbe>,
    /// How many permits a take wants at most.
    most_wanted: u32,
    /// The last take failed because Redis had forgotten a limit.
    forgot: bool,
    /// The last claim met ids whose refunds can no longer be claimed; the next ids may be such ids too.
    met_unclaimable: bool,
    /// How many claims in a row were refused as outdated.
    outdated_claims: u32,
    notices: RedisNotices,
}

/// What this worker must tell Redis before the next take. A notice stays set until Redis has received it.
#[derive(Debug, Default)]
struct RedisNotices {
    /// Granted permits were not used: long windows must be counted again from the ledger.
    wasted: bool,
    /// A node departed, perhaps before this worker began, and Redis may still reserve permits for it.
    departed: bool,
}

impl<W: Work> ChannelWorker<W> {
    /// The wait after a failed round, from its beginning: a server that did not answer has cost time already.
    const TRY_AGAIN: Duration = Duration::from_millis(500);
    /// The shortest wait after the pool had no connection.
    const LEAST_REST: Duration = Duration::from_millis(5);

    /// The name of this loop in logs and for people.
    pub fn name(&self) -> String {
        match W::PURPOSE {
            Purpose::Send => format!("channel worker of {}", self.channel.name),
            Purpose::Inquire => format!("channel worker of {}, for inquiries", self.channel.name),
        }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(mut self) {
        self.work_until_stopped().await;
        self.put_prefetched_back().await;
    }

    async fn work_until_stopped(&mut self) {
        let mut signals = Signals {
            stop: self.stop.clone(),
            filled: self.wake_ups.filled(&self.channel.name),
            departures: self.node.departures.subscribe(),
        };
        if let Err(error) = self.node.bucket.watch_clock(&self.channel).await {
            // The first take reads the clock too.
            tracing::debug!(
                channel.name = %self.channel.name, error = %chain(&error),
                "Failed to read the clock that counts for channel `{}`", self.channel.name,
            );
        }
        // The feeder reads the depth of all buckets in one round trip, so this worker need not read its own.
        self.wake_ups.nudge(&self.channel.name);
        let mut next = Next::WhenFilled { not_before: Instant::now() };
        loop {
            next = match self.prepare_and_take(next, &mut signals).await {
                Ok(next) | Err(NotReady::Again(next)) => next,
                Err(NotReady::Stopped) => return,
            };
        }
    }

    /// Prepares everything that a take needs, and takes. The answer is when to take next.
    async fn prepare_and_take(&mut self, next: Next, signals: &mut Signals) -> Result<Next, NotReady> {
        let opens = self.sleep(next, signals).await?;
        let slots = self.wait_for_slots(signals).await?;
        let connections = self.wait_for_connections(slots.len(), opens, signals).await?;
        let mut resources = Resources { slots, connections };
        self.wait_for_grant(&mut resources, opens, signals).await?;
        match self.permission().await {
            Permission::All => {}
            Permission::One => {
                resources.slots.truncate(1);
                resources.connections.truncate(1);
            }
            Permission::None(at) => return Err(NotReady::Again(at)),
        }
        Ok(self.pass(resources).await)
    }

    /// One round, noted for those who watch this loop. The answer is when to take next.
    async fn pass(&mut self, resources: Resources) -> Next {
        self.waits.on(Binds::Nothing);
        let pass = self.node.progress.pass(self.name());
        let began = Instant::now();
        let round = if let Some(channel) = self.effective_limits.now() {
            self.round(&channel, resources).await
        } else {
            // Other nodes count all shares of a limit; a share may be free soon.
            self.waits.on(Binds::Limit);
            Ok(Next::later(jittered(EffectiveLimits::NO_SHARE)))
        };
        drop(pass);
        match &round {
            Ok(_) => self.blocked.worked(),
            Err(obstacle) => self.blocked.failed(obstacle),
        }
        round.unwrap_or_else(|_| {
            Next::Later((began + jittered(Self::TRY_AGAIN)).max(Instant::now() + Self::LEAST_REST))
        })
    }
}

/// When to take next.
#[derive(Debug, Clone, Copy)]
enum Next {
    Now,
    /// A grant is expected at this moment, with connections open by then.
    Grant(Instant),
    Later(Instant),
    WhenFilled {
        /// Nothing is granted before this moment.
        not_before: Instant,
    },
}

impl Next {
    fn later(wait: Duration) -> Self {
        Next::Later(Instant::now() + wait)
    }
}

#[cfg(test)]
mod tests;
