//! What each step does. The seed chooses their order.

mod faults;
mod going_on;
mod people;

use refundd::bucket::Purpose;
use refundd::refund::State;

use super::plan::Fault;
use super::plan::step::{self, Step};
use super::violation::Checked;
use super::world::World;

impl World<'_> {
    /// Draws a step and does it if it is possible. Returns whether it did anything.
    pub async fn step(&mut self) -> Checked<bool> {
        let step = step::draw(&mut self.rng, &self.plan.often);
        self.perform(step).await
    }

    /// Does a step if it is possible. Returns whether it did anything.
    async fn perform(&mut self, step: Step) -> Checked<bool> {
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
