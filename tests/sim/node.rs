//! One node, as its loops go: the same calls in the same order as `channel_worker.rs` with its files, `bank.rs`, `outside.rs`,
//! `settler.rs`, `feeder.rs`, `due_poller.rs`, `recovery.rs` and `node/reminding.rs` make them, cut into steps wherever the real loop awaits something.
//!
//! Statements, scripts, verdicts, settlements and the translation of permits are the product's own; what
//! stands here is only the order. Whoever changes that order in a loop changes it here.

mod acquire;
mod asking;
mod channel_worker;
mod housekeeping;
mod inquiries;
mod reminding;
mod send;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use refundd::bucket::{Bucket, End, Errand as Line};
use refundd::channel::Channel;
use refundd::limiter::{Forgotten, Limit, Permit, Told};
use refundd::refund::inquiry::Asked;
use refundd::refund::{ChannelName, Leased, RefundId};
use refundd::store::{Inquired, Settled, Store};

use super::plan::Plan;
use super::redis::Link;
use super::stage::Stage;
use super::world::TOLERANCE;
use super::zoo::Mistake;

/// What a channel worker has to do before it takes again.
#[derive(Debug)]
pub enum Errand {
    Adopt(Forgotten),
    Remind(Arc<Limit>, Told),
    CatchUp(Arc<Limit>, Permit),
    Forget(Arc<Limit>, i64),
}

/// What a channel's line gave, each under its permit.
type Taken = (Arc<Channel>, Vec<(RefundId, Permit)>);

/// One channel's worker for sends, or for inquiries.
#[derive(Debug, Default)]
pub struct Lane {
    pub not_before: i64,
    pub taken: Option<Taken>,
    /// Ids beyond the permits, for what is left over of them.
    pub more: Vec<RefundId>,
    pub errands: VecDeque<Errand>,
    wasted: bool,
    /// When its node looks next whether anything is to be asked about.
    pub look_out: i64,
}

/// A refund under lease that waits for its span.
#[derive(Debug)]
pub struct Send {
    pub channel: Arc<Channel>,
    pub lane: usize,
    pub refund: Leased,
    pub permit: Permit,
    pub first_byte_by: std::time::Instant,
}

/// A call under way, or over and not yet judged.
#[derive(Debug)]
pub struct Flight {
    pub send: Send,
    /// Its place in the bank's ledger.
    pub call: usize,
}

/// An inquiry under lease that waits for its span.
#[derive(Debug)]
pub struct Ask {
    /// With the limits that inquiries go under.
    pub channel: Arc<Channel>,
    pub lane: usize,
    pub asked: Asked,
    pub permit: Permit,
    pub leased_at: i64,
    pub first_byte_by: std::time::Instant,
}

/// An inquiry under way, or over and not yet judged.
#[derive(Debug)]
pub struct Question {
    pub ask: Ask,
    /// Its place in the bank's list of questions.
    pub place: usize,
}

/// What an inquiry came to, to be written down.
#[derive(Debug)]
pub struct Word {
    pub inquired: Inquired,
    pub leased_at: i64,
    pub lane: usize,
    /// Its place in the bank's list of questions, if it got there.
    pub place: Option<usize>,
}

#[derive(Debug)]
pub struct Back {
    pub ids: Vec<RefundId>,
    pub holder: String,
    pub next: i64,
    pub until: i64,
}

/// Rows that were read and are to be put in line.
#[derive(Debug)]
pub struct Food {
    pub line: Line,
    pub channel: ChannelName,
    pub ids: Vec<RefundId>,
    pub end: End,
}

/// Permits that another service asked for, granted and not yet written down.
#[derive(Debug)]
pub struct Wish {
    pub limit: Arc<Limit>,
    pub lane: usize,
    pub permits: Vec<Permit>,
}

#[derive(Debug)]
pub struct Node {
    pub process: u32,
    pub alive: bool,
    pub file: usize,
    /// The channels that go to the other bank in its file.
    pub moved: BTreeSet<usize>,
    pub name: String,
    claims: u64,
    pub link: Arc<Link>,
    pub bucket: Bucket,
    /// Its own witness of Postgres's clock goes with it.
    pub store: Store,
    /// Its heartbeat has read Postgres's clock since that was set.
    pub has_beaten: bool,
    /// After how many steps of Redis's clock it last read that clock.
    pub clock_read: Option<u64>,
    /// The database knew its channels at its last heartbeat.
    names_are_known: bool,
    pub lanes: Vec<Lane>,
    /// Of each channel that has an inquiry; of others, idle.
    pub desks: Vec<Lane>,
    pub sends: Vec<Send>,
    pub flights: Vec<Flight>,
    pub asks: Vec<Ask>,
    pub questions: Vec<Question>,
    pub words: Vec<Word>,
    pub outbox: Vec<Settled>,
    /// A batch whose commit was not seen.
    pub again: Vec<Settled>,
    pub backs: Vec<Back>,
    pub food: Vec<Food>,
    /// Permits for other services, on their way to the ledger.
    pub wishes: Vec<Wish>,
    pub hungry: BTreeSet<usize>,
    /// Until when a channel is held back, as this node heard; `None` is until somebody resumes it.
    pub held: BTreeMap<usize, Option<i64>>,
}

impl Node {
    const TRY_AGAIN: i64 = 500_000;

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
        let stand_in: Arc<dyn refundd::bucket::StandIn> = Arc::<Link>::clone(&link);
        Node {
            process,
            alive: true,
            file,
            moved: BTreeSet::new(),
            name: format!("node-{nth}#{process}"),
            claims: 0,
            link,
            bucket: Bucket::stood_in(stand_in, TOLERANCE).unwrap(),
            store: stage.store_of_a_node(),
            has_beaten: false,
            clock_read: None,
            names_are_known: false,
            lanes: plan.files[0].iter().map(|_| Lane::default()).collect(),
            desks: plan.files[0].iter().map(|_| Lane::default()).collect(),
            sends: Vec::new(),
            flights: Vec::new(),
            asks: Vec::new(),
            questions: Vec::new(),
            words: Vec::new(),
            outbox: Vec::new(),
            again: Vec::new(),
            backs: Vec::new(),
            food: Vec::new(),
            wishes: Vec::new(),
            hungry: BTreeSet::new(),
            held: BTreeMap::new(),
        }
    }

    pub fn of(&mut self, line: Line, lane: usize) -> &mut Lane {
        match line {
            Line::Send => &mut self.lanes[lane],
            Line::Inquire => &mut self.desks[lane],
        }
    }

    pub fn may_take(&self, line: Line, lane: usize, now: i64) -> bool {
        let held = match self.held.get(&lane) {
            None => false,
            Some(None) => true,
            Some(Some(until)) => *until > now,
        };
        let of = match line {
            Line::Send => &self.lanes[lane],
            Line::Inquire => &self.desks[lane],
        };
        of.taken.is_none() && of.errands.is_empty() && !held
    }

    /// How many sends, or inquiries, of a channel may begin now.
    pub fn slots(&self, line: Line, lane: usize, channel: &Channel) -> u32 {
        let (most, at_once, busy) = match line {
            Line::Send => {
                let flights = self.flights.iter().filter(|flight| flight.send.lane == lane).count();
                let sends = self.sends.iter().filter(|send| send.lane == lane).count();
                (channel.max_in_flight, u32::MAX, sends + flights)
            }
            Line::Inquire => {
                let questions = self.questions.iter().filter(|question| question.ask.lane == lane).count();
                let asks = self.asks.iter().filter(|ask| ask.lane == lane).count();
                ((channel.max_in_flight / 4).max(1), 4, asks + questions)
            }
        };
        most.saturating_sub(u32::try_from(busy).unwrap_or(u32::MAX)).min(at_once)
    }
}
