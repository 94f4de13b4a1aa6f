//! The state of one node: what it knows, and what it has begun.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use refundd::bucket::{Bucket, End, Purpose};
use refundd::channel::Channel;
use refundd::limiter::{Forgotten, LedgerCount, Limit, Permit};
use refundd::node::waits_of_banks::WaitsOfBanks;
use refundd::refund::inquiry::LeasedInquiry;
use refundd::refund::{ChannelName, Leased, RefundId};
use refundd::store::{Inquired, Settled, Store};

use crate::mistake::Mistake;
use crate::plan::Plan;
use crate::redis::Link;
use crate::stage::Stage;

/// How far Redis's clock may differ from Postgres's clock.
pub const TOLERANCE: Duration = Duration::from_secs(5);

/// How many ids a bucket may hold.
pub const CAPACITY: u32 = 100;

/// One thing that a channel worker has to do before it takes again.
#[derive(Debug)]
pub enum Chore {
    Adopt(Forgotten),
    Restore(Arc<Limit>, LedgerCount),
    CatchUp(Arc<Limit>, Permit),
    Forget(Arc<Limit>, i64),
}

/// The ids that a take got from a channel's bucket, each with its permit.
type Taken = (Arc<Channel>, Vec<(RefundId, Permit)>);

/// One channel's worker for sends, or for inquiries.
#[derive(Debug, Default)]
pub struct Worker {
    pub not_before: i64,
    /// When the chores go on.
    pub chores_at: i64,
    /// Redis's reply for which the worker reads the ledger until then.
    pub reads_for: Option<Forgotten>,
    pub taken: Option<Taken>,
    /// Ids beyond the permits, for permits that are left over.
    pub more: Vec<RefundId>,
    /// How many claims were made for the permits of the last take.
    pub claims: u32,
    /// How many ids the bucket had after the last take; `None` if it was filled since then.
    pub depth: Option<u64>,
    /// The last claim met ids whose refunds can no longer be claimed.
    pub met_unclaimable: bool,
    /// How many claims in a row were refused as outdated.
    pub outdated_claims: u32,
    pub chores: VecDeque<Chore>,
    pub wasted: bool,
    /// When the node looks for due inquiries of the channel again, in us of the world's clock.
    pub next_inquiry_poll: i64,
}

/// A refund under a lease that waits for its permit to open.
#[derive(Debug)]
pub struct Send {
    pub channel: Arc<Channel>,
    pub channel_index: usize,
    pub refund: Leased,
    pub permit: Permit,
    pub first_byte_by: Instant,
}

/// A send in progress, or over and not yet read.
#[derive(Debug)]
pub struct Flight {
    pub send: Send,
    /// The index of the request in the bank's ledger.
    pub call: usize,
}

/// An inquiry under a lease that waits for its permit to open.
#[derive(Debug)]
pub struct Ask {
    /// The channel, with the limits of its inquiries.
    pub channel: Arc<Channel>,
    pub channel_index: usize,
    pub inquiry: LeasedInquiry,
    pub permit: Permit,
    pub leased_at: i64,
    pub first_byte_by: Instant,
}

/// An inquiry in progress, or over and not yet read.
#[derive(Debug)]
pub struct InquiryFlight {
    pub ask: Ask,
    /// Its index in the bank's list of questions.
    pub place: usize,
}

/// The result of an inquiry that is not yet settled.
#[derive(Debug)]
pub struct UnsettledInquiry {
    pub inquired: Inquired,
    pub leased_at: i64,
    pub channel_index: usize,
    /// Its index in the bank's list of questions; `None` if it was not sent.
    pub place: Option<usize>,
}

/// A claim whose answer was lost. The node takes its refunds back.
#[derive(Debug)]
pub struct LostClaim {
    pub ids: Vec<RefundId>,
    pub holder: String,
    /// When the node tries next, and when it gives up, in us of the world's clock.
    pub next: i64,
    pub until: i64,
}

/// Ids that the node read as due, and puts into a bucket next.
#[derive(Debug)]
pub struct Fill {
    pub purpose: Purpose,
    pub channel: ChannelName,
    pub ids: Vec<RefundId>,
    pub end: End,
}

/// Permits that Redis granted to another service and the ledger does not have yet.
#[derive(Debug)]
pub struct AcquiredPermits {
    pub limit: Arc<Limit>,
    pub channel_index: usize,
    pub permits: Vec<Permit>,
}

#[derive(Debug)]
pub struct Node {
    /// How often the node has started again.
    pub process: u32,
    pub alive: bool,
    /// The index of the file that it has read.
    pub file: usize,
    /// The indexes of the channels that go to the other bank in its file.
    pub moved: BTreeSet<usize>,
    pub name: String,
    pub claims: u64,
    pub link: Arc<Link>,
    pub bucket: Bucket,
    /// The store, with the node's own witness of Postgres's clock.
    pub store: Store,
    /// Its heartbeat has read Postgres's clock since that clock was set last.
    pub knows_postgres_clock: bool,
    /// How many steps Redis's clock had made when the node last read it.
    pub clock_read: Option<u64>,
    /// At its last heartbeat the database knew its channels.
    pub names_are_known: bool,
    pub send_workers: Vec<Worker>,
    /// One for each channel; idle for a channel that has no inquiry.
    pub inquiry_workers: Vec<Worker>,
    pub sends: Vec<Send>,
    pub flights: Vec<Flight>,
    pub asks: Vec<Ask>,
    pub inquiry_flights: Vec<InquiryFlight>,
    pub unsettled_inquiries: Vec<UnsettledInquiry>,
    pub outbox: Vec<Settled>,
    /// A batch that was settled without an answer, and is settled again.
    pub again: Vec<Settled>,
    pub lost_claims: Vec<LostClaim>,
    pub fills: Vec<Fill>,
    /// Permits for other services, on their way to the ledger.
    pub acquired: Vec<AcquiredPermits>,
    /// The indexes of the channels whose buckets the feeder fills next.
    pub to_feed: BTreeSet<usize>,
    /// Until when a channel is suspended, as far as this node knows; `None` is until a person resumes it.
    pub suspended_until: BTreeMap<usize, Option<i64>>,
    pub waits_of_banks: WaitsOfBanks,
}

impl Node {
    /// How long it waits after a failed call, in us.
    pub const TRY_AGAIN: i64 = 500_000;
    /// How long it waits after a second claim in a row that was refused as outdated, in us.
    pub const RESTORE_AGAIN: i64 = 50_000;

    pub fn new(
        stage: &Stage,
        plan: &Plan,
        nth: usize,
        process: u32,
        file: usize,
        mistake: Option<Mistake>,
    ) -> Self {
        let skew = match mistake {
            Some(Mistake::NodesClock) => [0, 300_000, -400_000][nth],
            _ => 0,
        };
        let link = Arc::new(Link::new(&stage.redis, nth % 2 == 1, skew));
        let server: Arc<dyn refundd::bucket::SimulatedServer> = Arc::<Link>::clone(&link);
        Node {
            process,
            alive: true,
            file,
            moved: BTreeSet::new(),
            name: format!("node-{nth}#{process}"),
            claims: 0,
            link,
            bucket: Bucket::simulated(server, TOLERANCE).unwrap(),
            store: stage.store_of_a_node(),
            knows_postgres_clock: false,
            clock_read: None,
            names_are_known: false,
            send_workers: plan.files[0].iter().map(|_| Worker::default()).collect(),
            inquiry_workers: plan.files[0].iter().map(|_| Worker::default()).collect(),
            sends: Vec::new(),
            flights: Vec::new(),
            asks: Vec::new(),
            inquiry_flights: Vec::new(),
            unsettled_inquiries: Vec::new(),
            outbox: Vec::new(),
            again: Vec::new(),
            lost_claims: Vec::new(),
            fills: Vec::new(),
            acquired: Vec::new(),
            to_feed: BTreeSet::new(),
            suspended_until: BTreeMap::new(),
            waits_of_banks: WaitsOfBanks::default(),
        }
    }

    pub fn worker(&mut self, purpose: Purpose, channel_index: usize) -> &mut Worker {
        match purpose {
            Purpose::Send => &mut self.send_workers[channel_index],
            Purpose::Inquire => &mut self.inquiry_workers[channel_index],
        }
    }

    /// Redis's replies for which the node restores counts.
    pub fn restores(&self) -> Vec<Forgotten> {
        let workers = self.send_workers.iter().chain(&self.inquiry_workers);
        let of_worker = |worker: &Worker| {
            let waiting = worker.chores.iter().filter_map(|chore| match chore {
                Chore::Adopt(forgotten) => Some(forgotten),
                Chore::Restore(..) | Chore::CatchUp(..) | Chore::Forget(..) => None,
            });
            worker.reads_for.iter().chain(waiting).cloned().collect::<Vec<_>>()
        };
        workers.flat_map(of_worker).collect()
    }

    pub fn may_take(&self, purpose: Purpose, channel_index: usize, now: i64) -> bool {
        let is_suspended = match self.suspended_until.get(&channel_index) {
            None => false,
            Some(None) => true,
            Some(Some(until)) => *until > now,
        };
        let worker = match purpose {
            Purpose::Send => &self.send_workers[channel_index],
            Purpose::Inquire => &self.inquiry_workers[channel_index],
        };
        worker.taken.is_none() && worker.chores.is_empty() && !is_suspended
    }

    /// How many sends or inquiries of a channel may begin now.
    pub fn slots(&self, purpose: Purpose, channel_index: usize, channel: &Channel) -> u32 {
        let (most, at_once, busy) = match purpose {
            Purpose::Send => {
                let flights =
                    self.flights.iter().filter(|flight| flight.send.channel_index == channel_index).count();
                let sends = self.sends.iter().filter(|send| send.channel_index == channel_index).count();
                (channel.max_in_flight, u32::MAX, sends + flights)
            }
            Purpose::Inquire => {
                let flights = self
                    .inquiry_flights
                    .iter()
                    .filter(|flight| flight.ask.channel_index == channel_index)
                    .count();
                let asks = self.asks.iter().filter(|ask| ask.channel_index == channel_index).count();
                ((channel.max_in_flight / 4).max(1), 4, asks + flights)
            }
        };
        most.saturating_sub(u32::try_from(busy).unwrap_or(u32::MAX)).min(at_once)
    }
}
