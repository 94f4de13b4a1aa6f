//! The steps: which may happen next, how often each, and what each does. The seed chooses their order.

mod faults;
mod going_on;
pub mod people;

use fastrand::Rng;
use refundd::bucket::Purpose;
use refundd::refund::State;

use super::plan::Fault;
use super::plan::climate::Climate;
use super::violation::Checked;
use super::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Some node goes on with something that it has begun.
    GoOn,
    /// Some time passes.
    Pass,
    /// Time passes until something is due.
    Wake,
    Take,
    Chore,
    Claim,
    Send,
    Land,
    Settle,
    TakeBack,
    Feed,
    Fill,
    ReadSuspensions,
    TakeToAsk,
    ChoreToAsk,
    ClaimToAsk,
    Ask,
    ReadReply,
    SettleInquiry,
    PollInquiries,
    Plan,
    Lapse,
    Expire,
    ShowUnknown,
    ShowAccepted,
    FindStranded,
    RunLateClaim,
    Save,
    Cancel,
    Pause,
    Resume,
    Decide,
    Crash,
    Start,
    Reload,
    Move,
    Flush,
    Restart,
    Snapshot,
    Restore,
    Fork,
    Heal,
    SetClock,
    Acquire,
    Spend,
    Takeover,
    Heartbeat,
    SetPostgresClock,
    Retire,
}

/// How often each step is drawn, as a share of the sum of all.
const WEIGHTS: &[(Step, u32)] = &[
    (Step::GoOn, 1400),
    (Step::Pass, 200),
    (Step::Wake, 100),
    (Step::Take, 80),
    (Step::Chore, 10),
    (Step::Claim, 10),
    (Step::Send, 10),
    (Step::Land, 10),
    (Step::Settle, 10),
    (Step::TakeBack, 10),
    (Step::Feed, 20),
    (Step::Fill, 10),
    (Step::ReadSuspensions, 12),
    (Step::TakeToAsk, 30),
    (Step::ChoreToAsk, 5),
    (Step::ClaimToAsk, 5),
    (Step::Ask, 5),
    (Step::ReadReply, 5),
    (Step::SettleInquiry, 5),
    (Step::PollInquiries, 20),
    (Step::Plan, 12),
    (Step::Lapse, 20),
    (Step::Expire, 8),
    (Step::ShowUnknown, 16),
    (Step::ShowAccepted, 2),
    (Step::FindStranded, 12),
    (Step::RunLateClaim, 20),
    (Step::Save, 20),
    (Step::Cancel, 14),
    (Step::Pause, 6),
    (Step::Resume, 12),
    (Step::Decide, 40),
    (Step::Crash, 8),
    (Step::Start, 30),
    (Step::Reload, 8),
    (Step::Move, 8),
    (Step::Flush, 16),
    (Step::Restart, 6),
    (Step::Snapshot, 8),
    (Step::Restore, 8),
    (Step::Fork, 12),
    (Step::Heal, 8),
    (Step::SetClock, 24),
    (Step::Acquire, 40),
    (Step::Spend, 10),
    (Step::Takeover, 8),
    (Step::Heartbeat, 20),
    (Step::SetPostgresClock, 12),
    (Step::Retire, 8),
];

/// Draws how often each step is drawn in a run, in thirds of the usual.
pub fn tempers(rng: &mut Rng, people_are_busy: bool, climate: &Climate) -> Vec<u32> {
    let of = |&(step, _): &(Step, u32)| {
        let often = rng.choice(&[1, 3, 3, 9]).copied();
        match climate.often.iter().find(|(other, _)| *other == step) {
            Some(&(_, often)) => often,
            None if step == Step::Decide && people_are_busy => 27,
            None => often.unwrap_or(3),
        }
    };
    WEIGHTS.iter().map(of).collect()
}

/// Draws a step. `often` says how often each is drawn, in thirds of the usual.
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
    /// Does a step if it is possible. Returns whether it did anything.
    pub async fn perform(&mut self, step: Step) -> Checked<bool> {
        if step == Step::GoOn {
            return match self.next_of_a_node() {
                Some((step, ..)) if self.plan.late == Some(step) && self.rng.u8(0..12) > 0 => Ok(self.wake()),
                Some((step, n, channel_index)) => self.perform_at(step, n, channel_index).await,
                None => Ok(self.wake()),
            };
        }
        let n = self.rng.usize(0..self.nodes.len());
        let channel_index = self.rng.usize(0..self.plan.files[0].len());
        self.perform_at(step, n, channel_index).await
    }

    async fn perform_at(&mut self, step: Step, n: usize, channel_index: usize) -> Checked<bool> {
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
                | Step::Takeover
                | Step::RunLateClaim
                | Step::SetPostgresClock
        );
        if of_a_node && !self.nodes[n].alive {
            return Ok(false);
        }
        match step {
            // A clock that goes right shows nothing new to a node that knows it.
            Step::Heartbeat
                if self.nodes[n].knows_postgres_clock
                    && !self.plan.has(Fault::PostgresClock)
                    && !self.plan.has(Fault::Retire)
                    && !self.sets_redis_clock() =>
            {
                Ok(false)
            }
            Step::Retire => self.retire(n).await,
            Step::Heartbeat => self.heartbeat(n).await,
            Step::SetPostgresClock => Ok(self.set_postgres_clock()),
            Step::GoOn => Ok(false),
            Step::Pass => Ok(self.pass()),
            Step::Wake => Ok(self.wake()),
            Step::Take => {
                // A worker that has to wait asks sooner only if it was woken.
                if self.nodes[n].send_workers[channel_index].not_before > self.now() && self.rng.bool() {
                    return Ok(false);
                }
                self.take(n, Purpose::Send, channel_index).await
            }
            Step::Chore => self.chore(n, Purpose::Send, channel_index).await,
            Step::TakeToAsk => {
                if self.nodes[n].inquiry_workers[channel_index].not_before > self.now() && self.rng.bool() {
                    return Ok(false);
                }
                self.take(n, Purpose::Inquire, channel_index).await
            }
            Step::ChoreToAsk => self.chore(n, Purpose::Inquire, channel_index).await,
            Step::ClaimToAsk => self.claim(n, Purpose::Inquire, channel_index).await,
            Step::Ask => self.ask(n).await,
            Step::ReadReply => self.read_reply(n).await,
            Step::SettleInquiry => self.settle_inquiry(n).await,
            Step::PollInquiries => self.poll_inquiries(n, channel_index).await,
            // `Review` stands for the step of recovery that plans inquiries.
            Step::Plan => self.recover(n, State::Review).await,
            Step::Claim => self.claim(n, Purpose::Send, channel_index).await,
            Step::Acquire => self.acquire(n, channel_index).await,
            Step::Spend => self.spend(n).await,
            Step::Send => self.send(n).await,
            Step::Land => self.land(n).await,
            Step::Settle => self.settle(n).await,
            Step::TakeBack => self.take_back(n).await,
            Step::Feed => self.feed(n, channel_index).await,
            Step::Fill => self.fill(n).await,
            Step::ReadSuspensions => self.read_suspensions(n).await.map(|()| true),
            Step::Lapse => self.recover(n, State::Sending).await,
            Step::Expire => self.recover(n, State::Ready).await,
            Step::ShowUnknown => self.recover(n, State::Unknown).await,
            Step::ShowAccepted => self.recover(n, State::Accepted).await,
            Step::FindStranded => self.find_stranded(n).await,
            Step::RunLateClaim => self.run_late_claim().await,
            Step::Save => {
                if self.saved >= 24 {
                    return Ok(false);
                }
                let refund = self.refund();
                self.save(&[refund]).await;
                self.observe().await.map(|()| true)
            }
            Step::Cancel => self.cancel().await,
            Step::Pause => self.pause(channel_index).await,
            Step::Resume => self.resume(channel_index).await,
            Step::Decide => self.decide().await,
            Step::Crash => Ok(self.plan.has(Fault::Crash) && self.crash(n)),
            Step::Start | Step::Reload => {
                let did = if step == Step::Start {
                    !self.nodes[n].alive && self.start(n)
                } else {
                    self.plan.has(Fault::Reload) && self.reload(n)
                };
                if did
                    && (self.plan.files.len() > 1
                        || self.plan.has(Fault::Move)
                        || self.plan.has(Fault::Retire))
                {
                    self.publish(n).await?;
                }
                Ok(did)
            }
            Step::Move => Ok(self.plan.has(Fault::Move) && self.move_channel(n, channel_index).await?),
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
        // At most a minute passes at a time.
        let at = at.min(self.now() + 60_000_000);
        self.stage.clock.set(at);
        true
    }
}
