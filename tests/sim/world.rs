//! One run of one seed: the state of everything, what may happen next, and the trace of what did.
//!
//! Each draw has a generator of its own, made of the seed and the draw's number; so a draw that is left
//! out changes nothing about the others, and a trace can be made shorter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use refundd::bucket::Errand as Line;
use refundd::channel::{BankAddress, Channel};
use refundd::limiter::Permit;
use refundd::refund::{ChannelName, NewRefund, OnUnknown, RefundId, State};
use refundd::store::{Published, Store};

use super::bank::Bank;
use super::laws::in_force::InForce;
use super::laws::{Lawful, Row, taken};
use super::node::Node;
use super::plan::Plan;
use super::redis::Fate;
use super::run::{Flaw, Game};
use super::stage::Stage;
use super::steps::people::Said;
use super::zoo::Mistake;

/// How far Redis's clock may be from Postgres's.
pub const TOLERANCE: Duration = Duration::from_secs(5);
pub const CAPACITY: u32 = 100;

/// A claim that its node gave up on, and Postgres has not begun yet.
pub struct Ghost {
    pub line: Line,
    pub channel: usize,
    pub node: String,
    pub holder: String,
    pub lease: Duration,
    pub taken: Vec<(RefundId, Permit)>,
    pub more: Vec<RefundId>,
    pub tolerance: Duration,
    pub resend_within: Option<Duration>,
    pub most_sends: u32,
    pub bank_address: BankAddress,
    /// With its node's witness as that stood when the statement was said.
    pub store: Store,
}

pub struct World<'a> {
    pub stage: &'a mut Stage,
    pub plan: Plan,
    /// Of the draw under way.
    pub rng: Rng,
    pub nodes: Vec<Node>,
    pub bank: Bank,
    /// The rows as last seen.
    pub rows: BTreeMap<i64, Row>,
    pub ghosts: Vec<Ghost>,
    /// What people decided, or meant to, and may say again word for word.
    pub said: Vec<Said>,
    /// No more faults: what is left comes to its end.
    pub calm: bool,
    /// Redis's clock was set in this run.
    pub stepped: bool,
    /// A channel was paused or cooled in this run.
    pub ever_held: bool,
    /// Which of the files' rules may be in force.
    pub in_force: InForce,
    pub saved: u32,
    pub mistake: Option<Mistake>,
    /// `None` writes nothing down.
    pub trace: Option<Vec<String>>,
}

/// Writes a line of the trace, if there is one.
macro_rules! note {
    ($world:expr, $($text:tt)*) => {
        if $world.trace.is_some() {
            let line = format!($($text)*);
            $world.write(&line);
        }
    };
}
pub(super) use note;

pub fn mixed(seed: u64, nth: u64) -> Rng {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ nth.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state ^= state >> 31;
    Rng::with_seed(state.wrapping_mul(0x94d0_49bb_1331_11eb))
}

impl<'a> World<'a> {
    pub async fn new(stage: &'a mut Stage, game: Game, tracing: bool) -> Self {
        let Game { seed, climate, flaw: Flaw { mistake, .. } } = game;
        fastrand::seed(seed);
        let mut rng = mixed(seed, u64::MAX);
        let plan = Plan::draw(&mut rng, &climate);
        let nodes = (0..plan.nodes).map(|nth| Node::new(stage, &plan, nth, 0, 0, mistake)).collect();
        let mut world = World {
            stage,
            plan,
            rng,
            nodes,
            bank: Bank::default(),
            rows: BTreeMap::new(),
            ghosts: Vec::new(),
            said: Vec::new(),
            calm: false,
            stepped: false,
            ever_held: false,
            in_force: InForce::default(),
            saved: 0,
            mistake,
            trace: tracing.then(Vec::new),
        };
        world.begin().await;
        world
    }

    async fn begin(&mut self) {
        let _ = self.publish(0).await;
        for n in 0..self.nodes.len() {
            let _ = self.beat(n).await;
        }
        self.tell_of_files();
        let refunds: Vec<NewRefund> = (0..self.plan.refunds).map(|_| self.refund()).collect();
        self.save(&refunds).await;
        let _ = self.observe().await;
    }

    /// What a node does that has read a file.
    pub async fn publish(&mut self, n: usize) -> Lawful<()> {
        let channels: Vec<Arc<Channel>> =
            (0..self.plan.files[0].len()).map(|lane| self.channel(n, lane)).collect();
        let published: Vec<Published> = channels
            .iter()
            .map(|channel| Published {
                name: channel.name.clone(),
                endpoint: channel.endpoint.to_string(),
                settings: serde_json::json!({}),
                max_backlog: None,
                on_unknown: match channel.on_unknown {
                    OnUnknown::Review => "review",
                    OnUnknown::Inquire => "inquire",
                    OnUnknown::Resend { .. } => "resend",
                },
                inquires: channel.inquiry.is_some(),
                resend_within: channel.resend_within(),
                most_sends: channel.retry.sends,
                bank_address: channel.bank_address(),
            })
            .collect();
        self.stage.tell_time().await;
        taken(self.stage.store.publish("sim", &published).await)
    }

    fn tell_of_files(&mut self) {
        if self.trace.is_some() {
            let files = self.plan.files.clone();
            for (nth, file) in files.iter().enumerate() {
                for channel in file {
                    let limits: Vec<String> = channel
                        .limits
                        .iter()
                        .map(|limit| format!("{} ({}, ahead {:?})", limit.name, limit.rule, limit.ahead))
                        .collect();
                    note!(
                        self,
                        "file {nth}: channel {}, time-out {:?}, lease {:?}, {:?}, {}, under {}",
                        channel.name,
                        channel.timeout,
                        channel.lease,
                        channel.on_unknown,
                        channel.inquiry.as_ref().map_or_else(
                            || "cannot be asked".to_owned(),
                            |inquiry| format!("asked with {:?}", inquiry.trust)
                        ),
                        if limits.is_empty() { "no limit".to_owned() } else { limits.join(" and ") }
                    );
                }
            }
        }
    }

    /// A producer saves refunds.
    pub async fn save(&mut self, refunds: &[NewRefund]) {
        self.stage.tell_time_and_look().await;
        self.stage.store.save(refunds).await.unwrap();
        for refund in refunds {
            note!(self, "a producer saves refund {} on {}", refund.refund_ref, refund.channel);
        }
    }

    /// The next refund of a producer.
    pub fn refund(&mut self) -> NewRefund {
        self.saved += 1;
        let channel = self.rng.usize(0..self.plan.files[0].len());
        let now = self.stage.postgres_now();
        let after = |us: i64| jiff::Timestamp::from_microsecond(super::clock::BEGAN_US + now + us).ok();
        let due = if self.rng.u8(0..5) == 0 { self.rng.i64(0..3_000_000) } else { 0 };
        let deadline =
            if self.rng.u8(0..6) == 0 { after(due + self.rng.i64(1_000..20_000_000)) } else { None };
        NewRefund {
            refund_ref: format!("R-{}", self.saved),
            channel: self.plan.files[0][channel].name.clone(),
            payment_ref: format!("P-{}", self.saved),
            amount_minor: i64::from(self.saved) * 100,
            currency: "EUR".to_owned(),
            payload: None,
            due_at: after(due),
            deadline_at: deadline,
        }
    }

    pub fn now(&self) -> i64 {
        self.stage.clock.now()
    }

    pub fn write(&mut self, line: &str) {
        let now = self.now();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>4} {:>12.6} {line}", trace.len(), now as f64 / 1e6));
        }
    }

    /// How this step's calls to Redis fare.
    pub fn fate(&mut self) -> Fate {
        let rng = self.rng.fork();
        if self.calm {
            return Fate { rng, refused: 0, lost: 0, slow: 200 };
        }
        Fate { rng, refused: self.plan.trouble / 2, lost: self.plan.trouble / 2, slow: self.plan.slow }
    }

    /// Whether something that happens in so many of a hundred cases, where a run has trouble, happens now.
    pub fn troubled(&mut self) -> bool {
        !self.calm && self.rng.u8(0..100) < self.plan.trouble
    }

    /// A call to Postgres is on its way.
    pub fn travel(&mut self) {
        let slow = if self.calm { 200 } else { self.plan.slow };
        let us = self.rng.i64(0..=slow);
        self.stage.clock.pass(us);
    }

    pub fn channel_of(&self, name: &ChannelName) -> usize {
        self.plan.files[0].iter().position(|channel| channel.name == *name).unwrap_or(0)
    }

    pub fn in_state(&self, states: &[State]) -> Vec<RefundId> {
        self.rows.iter().filter(|(_, row)| states.contains(&row.state)).map(|(id, _)| RefundId(*id)).collect()
    }

    /// Whether a row could stand in a channel's line, or in any, if somebody read it now.
    pub fn wanted(&self, lane: Option<usize>) -> bool {
        let now = self.stage.postgres_now();
        self.rows.values().any(|row| {
            matches!(row.state, State::Ready | State::Unknown)
                && row.due_us <= now
                && lane.is_none_or(|lane| row.lane == lane)
        })
    }

    pub fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The next moment at which something is due.
    pub fn next_wake(&self) -> Option<i64> {
        let now = self.now();
        let clock = &self.stage.clock;
        let nodes = self.nodes.iter().filter(|node| node.alive);
        let lanes =
            nodes.clone().flat_map(|node| node.lanes.iter().chain(&node.desks).map(|lane| lane.not_before));
        let backs = nodes.clone().flat_map(|node| node.backs.iter().map(|back| back.next));
        let opens = nodes
            .flat_map(|node| node.sends.iter())
            .filter_map(|send| send.permit.span.map(|span| clock.at(span.opens)));
        let asks = self.nodes.iter().filter(|node| node.alive).flat_map(|node| node.asks.iter());
        let opens = opens.chain(asks.filter_map(|ask| ask.permit.span.map(|span| clock.at(span.opens))));
        let ends = self.bank.calls.iter().map(|call| call.ends);
        let ends = ends.chain(self.bank.questions.iter().map(|question| question.ends));
        let ahead = self.stage.postgres_ahead();
        let due = self.rows.values().filter(|row| row.state == State::Ready).map(|row| row.due_us - ahead);
        let inquiries = self.rows.values().filter_map(|row| row.inquire_us.map(|us| us - ahead + 1));
        let leases = self.rows.values().filter_map(|row| row.lease_us.map(|us| us - ahead + 1));
        lanes
            .chain(leases)
            .chain(inquiries)
            .chain(backs)
            .chain(opens)
            .chain(ends)
            .chain(due)
            .filter(|at| *at > now)
            .min()
    }

    pub async fn step(&mut self) -> Lawful<bool> {
        let step = super::steps::draw(&mut self.rng, &self.plan.often);
        self.perform(step).await
    }
}
