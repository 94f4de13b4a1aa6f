//! One run of one seed: the state of everything, and the trace of the steps.
//!
//! Each draw has a generator of its own, made from the seed and the draw's number. A draw that is left out changes
//! nothing about the others, so a trace can be made shorter.
//!
//! In this simulation `n` is the index of a node, and `channel_index` the index of a channel in its file.

pub mod effective_limits;
pub mod node;
pub mod row;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use refundd::bucket::Purpose;
use refundd::channel::{BankAddress, Channel};
use refundd::limiter::Permit;
use refundd::refund::{ChannelName, RefundId, State};
use refundd::store::{Published, Store};

use super::bank::Bank;
use super::game::{Flaw, Game};
use super::mistake::Mistake;
use super::plan::Plan;
use super::redis::Fate;
use super::stage::Stage;
use super::violation::{Checked, taken};
use effective_limits::EffectiveLimits;
use node::Node;
use row::Row;

/// A claim that its node gave up on before Postgres began it.
pub struct LateClaim {
    pub purpose: Purpose,
    pub channel: usize,
    pub node: String,
    pub holder: String,
    pub lease: Duration,
    pub taken: Vec<(RefundId, Permit)>,
    /// Ids beyond the permits.
    pub more: Vec<RefundId>,
    pub tolerance: Duration,
    pub resend_within: Option<Duration>,
    pub most_sends: u32,
    pub bank_address: BankAddress,
    /// The node's store, with the clock witness as it was when the node sent the statement.
    pub store: Store,
}

/// A person's choice for a refund, and the version that the person saw.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub id: RefundId,
    pub version: i32,
    pub next: State,
    pub not_executed: bool,
}

pub struct World<'a> {
    pub stage: &'a mut Stage,
    pub plan: Plan,
    /// The generator of the current draw.
    pub rng: Rng,
    pub nodes: Vec<Node>,
    pub bank: Bank,
    /// The rows as last seen.
    pub rows: BTreeMap<i64, Row>,
    pub late_claims: Vec<LateClaim>,
    /// Decisions that people made or meant to make. They may repeat each of them unchanged.
    pub choices: Vec<Choice>,
    /// There are no more faults: every refund comes to its end.
    pub calm: bool,
    /// How often the count of a limit was read from the ledger since then.
    pub restores_in_calm: u32,
    /// Redis's clock was set in this run.
    pub stepped: bool,
    /// A channel was paused or cooled in this run.
    pub ever_suspended: bool,
    /// The rules of the files that may be in force.
    pub effective_limits: EffectiveLimits,
    pub saved: u32,
    pub mistake: Option<Mistake>,
    /// The lines of the trace; `None` when the run is not traced.
    pub trace: Option<Vec<String>>,
}

/// Writes a line of the trace, if the run is traced.
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
    pub fn new(stage: &'a mut Stage, game: Game, tracing: bool) -> Self {
        let Game { seed, climate, flaw: Flaw { mistake, .. } } = game;
        fastrand::seed(seed);
        let mut rng = mixed(seed, u64::MAX);
        let plan = Plan::draw(&mut rng, &climate);
        let nodes = (0..plan.nodes).map(|nth| Node::new(stage, &plan, nth, 0, 0, mistake)).collect();
        World {
            stage,
            plan,
            rng,
            nodes,
            bank: Bank::default(),
            rows: BTreeMap::new(),
            late_claims: Vec::new(),
            choices: Vec::new(),
            calm: false,
            restores_in_calm: 0,
            stepped: false,
            ever_suspended: false,
            effective_limits: EffectiveLimits::default(),
            saved: 0,
            mistake,
            trace: tracing.then(Vec::new),
        }
    }

    /// Publishes the channels of the file that node `n` has read.
    pub async fn publish(&mut self, n: usize) -> Checked<()> {
        let channels: Vec<Arc<Channel>> =
            (0..self.plan.files[0].len()).map(|channel_index| self.channel(n, channel_index)).collect();
        let published: Vec<Published> =
            channels.iter().map(|channel| Published::of(channel, serde_json::json!({}))).collect();
        self.stage.tell_time().await;
        taken(self.stage.store.publish("sim", &published).await).map(|_| ())
    }

    /// Writes what each file says.
    pub fn tell_of_files(&mut self) {
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

    pub fn now(&self) -> i64 {
        self.stage.clock.now()
    }

    pub fn write(&mut self, line: &str) {
        let now = self.now();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>4} {:>12.6} {line}", trace.len(), now as f64 / 1e6));
        }
    }

    /// Draws how the calls to Redis of this step fare.
    pub fn fate(&mut self) -> Fate {
        let rng = self.rng.fork();
        if self.calm {
            return Fate { rng, refused: 0, lost: 0, slow: 200 };
        }
        Fate { rng, refused: self.plan.trouble / 2, lost: self.plan.trouble / 2, slow: self.plan.slow }
    }

    /// Draws whether a trouble of this run happens now: in `plan.trouble` of a hundred cases.
    pub fn troubled(&mut self) -> bool {
        !self.calm && self.rng.u8(0..100) < self.plan.trouble
    }

    /// Lets time pass for the way of a call to Postgres.
    pub fn travel(&mut self) {
        let slow = if self.calm { 200 } else { self.plan.slow };
        let us = self.rng.i64(0..=slow);
        self.stage.clock.pass(us);
    }

    /// A channel as the file of node `n` has it.
    pub fn channel(&self, n: usize, channel_index: usize) -> Arc<Channel> {
        let node = &self.nodes[n];
        let files = if node.moved.contains(&channel_index) { &self.plan.moved } else { &self.plan.files };
        Arc::clone(&files[node.file][channel_index])
    }

    pub fn channel_of(&self, name: &ChannelName) -> usize {
        self.plan.files[0].iter().position(|channel| channel.name == *name).unwrap_or(0)
    }

    pub fn in_state(&self, states: &[State]) -> Vec<RefundId> {
        self.rows.iter().filter(|(_, row)| states.contains(&row.state)).map(|(id, _)| RefundId(*id)).collect()
    }

    /// Whether a row is due for the bucket of a channel now, or of any channel.
    pub fn wanted(&self, channel_index: Option<usize>) -> bool {
        let now = self.stage.postgres_now();
        self.rows.values().any(|row| {
            matches!(row.state, State::Ready | State::Unknown)
                && row.due_us <= now
                && channel_index.is_none_or(|channel_index| row.channel_index == channel_index)
        })
    }

    pub fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The next moment at which something is due, in us of the world's clock.
    pub fn next_wake(&self) -> Option<i64> {
        let now = self.now();
        let clock = &self.stage.clock;
        let nodes = self.nodes.iter().filter(|node| node.alive);
        let workers = nodes.clone().flat_map(|node| {
            let workers = node.send_workers.iter().chain(&node.inquiry_workers);
            workers.flat_map(|worker| [worker.not_before, worker.chores_at])
        });
        let lost_claims = nodes.clone().flat_map(|node| node.lost_claims.iter().map(|lost| lost.next));
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
        workers
            .chain(leases)
            .chain(inquiries)
            .chain(lost_claims)
            .chain(opens)
            .chain(ends)
            .chain(due)
            .filter(|at| *at > now)
            .min()
    }
}
