//! What may happen next, how often, and how it comes about. The order is the seed's.

use fastrand::Rng;
use refundd::refund::State;
use refundd::store::{Asked, Decided};

use super::laws::{Lawful, taken};
use super::node::Node;
use super::plan::Fault;
use super::world::{World, note};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Some node goes on with whatever it has begun.
    GoOn,
    /// Time goes by.
    Pass,
    /// It goes by until something is due.
    Wake,
    Take,
    Errand,
    Claim,
    Send,
    Land,
    Settle,
    TakeBack,
    Feed,
    Fill,
    Hear,
    Lapse,
    Expire,
    ShowUnknown,
    ShowAccepted,
    FindStranded,
    Ghost,
    Save,
    Cancel,
    Pause,
    Resume,
    Decide,
    Crash,
    Start,
    Reload,
    Flush,
    Restart,
    Snapshot,
    Restore,
    Fork,
    Heal,
    SetClock,
}

/// How often each is drawn, of the sum of all.
const WEIGHTS: &[(Step, u32)] = &[
    (Step::GoOn, 1400),
    (Step::Pass, 200),
    (Step::Wake, 100),
    (Step::Take, 80),
    (Step::Errand, 10),
    (Step::Claim, 10),
    (Step::Send, 10),
    (Step::Land, 10),
    (Step::Settle, 10),
    (Step::TakeBack, 10),
    (Step::Feed, 20),
    (Step::Fill, 10),
    (Step::Hear, 12),
    (Step::Lapse, 20),
    (Step::Expire, 8),
    (Step::ShowUnknown, 16),
    (Step::ShowAccepted, 2),
    (Step::FindStranded, 12),
    (Step::Ghost, 20),
    (Step::Save, 20),
    (Step::Cancel, 14),
    (Step::Pause, 6),
    (Step::Resume, 12),
    (Step::Decide, 24),
    (Step::Crash, 8),
    (Step::Start, 30),
    (Step::Reload, 8),
    (Step::Flush, 8),
    (Step::Restart, 3),
    (Step::Snapshot, 8),
    (Step::Restore, 8),
    (Step::Fork, 12),
    (Step::Heal, 8),
    (Step::SetClock, 12),
];

pub const STEPS: usize = WEIGHTS.len();

/// Draws a step; `often` says how often each, in thirds of the usual.
pub fn draw(rng: &mut Rng, often: &[u32]) -> Step {
    let weights = || WEIGHTS.iter().zip(often).map(|((step, weight), often)| (*step, weight * often));
    let all = weights().map(|(_, weight)| weight).sum();
    let mut left = rng.u32(0..all);
    for (step, weight) in weights() {
        if left < weight {
            return step;
        }
        left -= weight;
    }
    Step::Pass
}

impl World<'_> {
    /// Does it, if it can be done; answers whether it was.
    pub async fn perform(&mut self, step: Step) -> Lawful<bool> {
        if step == Step::GoOn {
            return match self.next_of_a_node() {
                Some((step, ..)) if self.plan.late == Some(step) && self.rng.u8(0..12) > 0 => Ok(self.wake()),
                Some((step, n, lane)) => self.perform_at(step, n, lane).await,
                None => Ok(self.wake()),
            };
        }
        let n = self.rng.usize(0..self.nodes.len());
        let lane = self.rng.usize(0..self.plan.files[0].len());
        self.perform_at(step, n, lane).await
    }

    /// Of all that nodes could go on with, one thing; a sluggish node seldom goes on.
    fn next_of_a_node(&mut self) -> Option<(Step, usize, usize)> {
        let (now, instant) = (self.now(), self.stage.clock.instant());
        let mut found = Vec::new();
        for (n, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            let slow = self.plan.sluggish == Some(n);
            let mut can = |step: Step, lane: usize| {
                let often =
                    WEIGHTS.iter().position(|(other, _)| *other == step).map_or(3, |at| self.plan.often[at]);
                found.push(((step, n, lane), if slow { often } else { often * 8 }));
            };
            for (lane, of) in node.lanes.iter().enumerate() {
                if !of.errands.is_empty() {
                    can(Step::Errand, lane);
                } else if of.taken.is_some() {
                    can(Step::Claim, lane);
                } else if of.not_before <= now && node.may_take(lane, now) {
                    can(Step::Take, lane);
                }
                if node.hungry.contains(&lane) {
                    can(Step::Feed, lane);
                }
            }
            if !node.food.is_empty() {
                can(Step::Fill, 0);
            }
            if node.sends.iter().any(|send| send.permit.span.is_none_or(|span| span.opens <= instant)) {
                can(Step::Send, 0);
            }
            if node.flights.iter().any(|flight| self.bank.calls[flight.call].ends <= now) {
                can(Step::Land, 0);
            }
            if !node.outbox.is_empty() || !node.again.is_empty() {
                can(Step::Settle, 0);
            }
            if node.backs.iter().any(|back| back.next <= now) {
                can(Step::TakeBack, 0);
            }
        }
        let mut left = self.rng.u32(0..found.iter().map(|(_, often)| often).sum::<u32>().max(1));
        found.into_iter().find_map(|(what, often)| {
            if left < often {
                return Some(what);
            }
            left -= often;
            None
        })
    }

    async fn perform_at(&mut self, step: Step, n: usize, lane: usize) -> Lawful<bool> {
        let of_a_node = !matches!(
            step,
            Step::Pass
                | Step::Wake
                | Step::Save
                | Step::Cancel
                | Step::Pause
                | Step::Resume
                | Step::Decide
                | Step::Start
                | Step::Flush
                | Step::Restart
                | Step::Snapshot
                | Step::Restore
                | Step::Fork
                | Step::Heal
                | Step::SetClock
                | Step::Ghost
        );
        if of_a_node && !self.nodes[n].alive {
            return Ok(false);
        }
        match step {
            Step::GoOn => Ok(false),
            Step::Pass => Ok(self.pass()),
            Step::Wake => Ok(self.wake()),
            Step::Take => {
                // A node that was told to wait asks sooner only where it was woken.
                if self.nodes[n].lanes[lane].not_before > self.now() && self.rng.bool() {
                    return Ok(false);
                }
                self.take(n, lane).await
            }
            Step::Errand => self.errand(n, lane).await,
            Step::Claim => self.claim(n, lane).await,
            Step::Send => self.send(n).await,
            Step::Land => self.land(n).await,
            Step::Settle => self.settle(n).await,
            Step::TakeBack => self.take_back(n).await,
            Step::Feed => self.feed(n, lane).await,
            Step::Fill => self.fill(n).await,
            Step::Hear => self.hear(n).await.map(|()| true),
            Step::Lapse => self.recover(n, State::Sending).await,
            Step::Expire => self.recover(n, State::Ready).await,
            Step::ShowUnknown => self.recover(n, State::Unknown).await,
            Step::ShowAccepted => self.recover(n, State::Accepted).await,
            Step::FindStranded => self.find_stranded(n, lane).await,
            Step::Ghost => self.ghost().await,
            Step::Save => {
                if self.saved >= 24 {
                    return Ok(false);
                }
                self.save().await;
                self.observe().await.map(|()| true)
            }
            Step::Cancel => self.cancel().await,
            Step::Pause => self.pause(lane).await,
            Step::Resume => self.resume(lane).await,
            Step::Decide => self.decide().await,
            Step::Crash => Ok(self.plan.has(Fault::Crash) && self.crash(n)),
            Step::Start => Ok(!self.nodes[n].alive && self.start(n)),
            Step::Reload => Ok(self.plan.has(Fault::Reload) && self.reload(n)),
            _ => Ok(self.befall(step)),
        }
    }

    fn pass(&mut self) -> bool {
        let pace = self.plan.pace;
        let us = match self.rng.u8(0..100) {
            0..50 => self.rng.i64(0..=pace / 10),
            50..85 => self.rng.i64(0..=pace),
            85..97 => self.rng.i64(0..=pace * 10),
            97..99 => self.rng.i64(0..=pace * 100),
            _ => self.rng.i64(0..=30_000_000),
        };
        self.stage.clock.pass(us);
        true
    }

    pub fn wake(&mut self) -> bool {
        let Some(at) = self.next_wake() else { return false };
        // No more than a minute at a time.
        let at = at.min(self.now() + 60_000_000);
        self.stage.clock.set(at);
        true
    }

    /// A statement that its node gave up on begins after all.
    pub async fn ghost(&mut self) -> Lawful<bool> {
        if self.ghosts.is_empty() {
            return Ok(false);
        }
        let nth = self.rng.usize(0..self.ghosts.len());
        let ghost = self.ghosts.remove(nth);
        let channel = self.plan.files[0][ghost.channel].name.clone();
        let asked = Asked {
            channel: &channel,
            node: &ghost.node,
            holder: &ghost.holder,
            lease: ghost.lease,
            clock_tolerance: ghost.tolerance,
            taken: &ghost.taken,
            resend_within: self.plan.files[0][ghost.channel].resend_within(),
            most_sends: self.plan.files[0][ghost.channel].retry.sends,
        };
        self.stage.tell_time().await;
        let claimed = taken(self.stage.store.claim(&asked).await)?;
        note!(self, "the late claim {} takes {} refunds", ghost.holder, claimed.leased.len());
        self.observe().await.map(|()| true)
    }

    async fn cancel(&mut self) -> Lawful<bool> {
        let open: Vec<State> = State::ALL.into_iter().filter(|state| !state.is_end()).collect();
        let Some(&id) = self.rng.choice(&self.in_state(&open)) else { return Ok(false) };
        if !self.plan.has(Fault::Cancel) {
            return Ok(false);
        }
        self.stage.tell_time().await;
        let done = taken(self.stage.store.cancel(id).await)?;
        note!(
            self,
            "the producer cancels refund {id}: {}",
            if matches!(done, refundd::store::Cancelled::Now(_)) { "done" } else { "too late" }
        );
        self.observe().await.map(|()| true)
    }

    async fn pause(&mut self, lane: usize) -> Lawful<bool> {
        if !self.plan.has(Fault::Pause) {
            return Ok(false);
        }
        let channel = self.plan.files[0][lane].name.clone();
        self.stage.tell_time().await;
        taken(self.stage.store.pause(channel.as_str(), "to see", "a person", false).await)?;
        note!(self, "a person pauses {channel}");
        self.observe().await.map(|()| true)
    }

    pub async fn resume(&mut self, lane: usize) -> Lawful<bool> {
        let channel = self.plan.files[0][lane].name.clone();
        if !self.rows.values().any(|row| row.paused) {
            return Ok(false);
        }
        self.stage.tell_time().await;
        taken(self.stage.store.resume(channel.as_str()).await)?;
        note!(self, "a person resumes {channel}");
        self.observe().await.map(|()| true)
    }

    /// A person asks the bank, and decides as it is.
    pub async fn decide(&mut self) -> Lawful<bool> {
        let open = if self.calm {
            self.in_state(&[State::Review, State::Accepted])
        } else {
            self.in_state(&[State::Review, State::Accepted, State::Unknown])
        };
        let Some(&id) = self.rng.choice(&open) else { return Ok(false) };
        let (now, state) = (self.now(), self.rows[&id.0].state);
        let next = if self.paid(id, now) > 0 {
            State::Succeeded
        } else if self.bank.ever_pays(id) || self.bank.of(id).any(|call| call.ends > now) {
            return Ok(false);
        } else if state == State::Review && !self.calm {
            *self.rng.choice(&[State::Ready, State::Failed, State::Cancelled]).unwrap_or(&State::Failed)
        } else {
            State::Failed
        };
        self.stage.tell_time().await;
        let done = taken(self.stage.store.decide(id, next, "the bank says so", "a person").await)?;
        note!(
            self,
            "a person decides that refund {id} is {next}: {}",
            if matches!(done, Decided::Done(_)) { "done" } else { "not allowed" }
        );
        self.observe().await.map(|()| true)
    }

    fn crash(&mut self, n: usize) -> bool {
        let now = self.now();
        let node = &mut self.nodes[n];
        node.alive = false;
        // Its connections are gone; what is on its way arrives.
        for call in self.bank.calls.iter_mut().filter(|call| call.node == n && call.process == node.process) {
            call.ends = call.ends.min(now);
        }
        note!(self, "node {n} dies");
        true
    }

    pub fn start(&mut self, n: usize) -> bool {
        let (process, file) = (self.nodes[n].process + 1, self.nodes[n].file);
        let file = if self.calm { 0 } else { file };
        self.nodes[n] = Node::new(self.stage, &self.plan, n, process, file, self.mistake);
        note!(self, "node {n} starts");
        true
    }

    pub fn reload(&mut self, n: usize) -> bool {
        let files = self.plan.files.len();
        if files < 2 {
            return false;
        }
        // What was taken is claimed by the old dispatcher; what it has not begun to send goes on.
        self.nodes[n].file = (self.nodes[n].file + 1) % files;
        note!(self, "node {n} reads file {}", self.nodes[n].file);
        true
    }

    fn befall(&mut self, step: Step) -> bool {
        let redis = std::sync::Arc::clone(&self.stage.redis);
        let needs = match step {
            Step::Flush | Step::Restart => Fault::Flush,
            Step::Snapshot | Step::Restore => Fault::Restore,
            Step::Fork | Step::Heal => Fault::Fork,
            _ => Fault::Clock,
        };
        if !self.plan.has(needs) {
            return false;
        }
        match step {
            Step::Flush => redis.flush(),
            Step::Restart => redis.restart(),
            Step::Snapshot => redis.save(),
            Step::Restore if !redis.restore() => return false,
            Step::Fork if redis.is_forked() => return false,
            Step::Fork => redis.fork(self.rng.bool()),
            Step::Heal if !redis.is_forked() => return false,
            Step::Heal => redis.heal(self.rng.bool()),
            Step::SetClock => {
                let us = match self.rng.u8(0..10) {
                    0 => self.rng.i64(5_000_000..=20_000_000),
                    1..4 => self.rng.i64(1_000_000..=4_000_000),
                    _ => self.rng.i64(10_000..=1_000_000),
                };
                let us = if self.rng.bool() { us } else { -us };
                redis.step_clock(us);
                self.stepped = true;
                note!(self, "Redis's clock is set by {us} us");
            }
            _ => {}
        }
        if step != Step::SetClock {
            note!(self, "Redis: {step:?}");
        }
        true
    }
}
