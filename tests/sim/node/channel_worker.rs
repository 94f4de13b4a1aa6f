//! `ChannelWorker::round`, with the work `Sends` or `Inquiries`. Prefetched ids are not played: to a claim they are ids that left the
//! bucket a while ago, which other takes are too.

mod claiming;
mod left_over;

use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::{Bucket, BucketError, Order, Purpose, Take, Yield};
use refundd::channel::Channel;
use refundd::channel_worker::Inquiries;
use refundd::limiter::{PermitNumber, timing};
use refundd::store::Store;

use crate::clock::micros;
use crate::violation::Checked;
use crate::world::node::{CAPACITY, Chore};
use crate::world::{World, note};

fn named(numbers: &[PermitNumber]) -> String {
    let each =
        |n: &PermitNumber| format!("{}@{}#{} g{}", n.limit, n.window_start_us, n.ordinal, n.generation);
    numbers.iter().map(each).collect::<Vec<_>>().join(" ")
}

/// Whether Redis certainly read the rules of the take. Where it does not know a limit any more, it reads no rule
/// after that limit, and its reply has no depth of the bucket.
pub(super) fn rules_were_read(took: &Result<Take, BucketError>) -> bool {
    matches!(took, Ok(Take::Granted { .. } | Take::Denied { depth: Some(1..), .. }))
}

impl World<'_> {
    /// The channel with the limits of its worker, as `ChannelWorker::sends` and `inquiries` set them. `None` if the
    /// worker is for inquiries and the channel has none.
    pub(super) fn limited(&self, n: usize, purpose: Purpose, channel_index: usize) -> Option<Arc<Channel>> {
        let channel = self.channel(n, channel_index);
        if purpose == Purpose::Send {
            return Some(channel);
        }
        Some(match &channel.inquiry.as_ref()?.limits {
            None => channel,
            Some(limits) => {
                Arc::new(Channel { limits: limits.clone(), adaptive: false, ..channel.as_ref().clone() })
            }
        })
    }

    /// `ChannelWorker::round`, up to the claim.
    pub async fn take(&mut self, n: usize, purpose: Purpose, channel_index: usize) -> Checked<bool> {
        let Some(channel) = self.limited(n, purpose, channel_index) else { return Ok(false) };
        let slots = self.nodes[n].slots(purpose, channel_index, &channel);
        if !self.nodes[n].may_take(purpose, channel_index, self.now()) || slots == 0 {
            return Ok(false);
        }
        if !self.connects(n, purpose, channel_index) {
            return Ok(true);
        }
        self.say_still().await;
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        if self.nodes[n].worker(purpose, channel_index).wasted {
            if bucket.forget_long_windows(&channel.limits).await.is_err() {
                self.stumble(n, purpose, channel_index, "forget");
                return Ok(true);
            }
            self.nodes[n].worker(purpose, channel_index).wasted = false;
        }
        let want = self.rng.u32(1..=slots);
        let took = match purpose {
            Purpose::Send => {
                let order = Order { want, low_water: CAPACITY / 2, lead_time: self.lead_time(), until: None };
                bucket.take(&channel, order).await
            }
            Purpose::Inquire => {
                let lead_time = if Inquiries::ask_first(&channel.limits) {
                    Bucket::LONGEST_LEAD_TIME
                } else {
                    self.lead_time()
                };
                let order = Order { want, low_water: 0, lead_time, until: None };
                bucket.take_inquiries(&channel, order, Yield::ToSends).await
            }
        };
        self.note_rule_use(&channel.limits, rules_were_read(&took));
        self.took(n, purpose, channel_index, channel, took);
        Ok(true)
    }

    /// `LeadTime::expected`, of sends and of inquiries: the claims of both take as long.
    fn lead_time(&self) -> Duration {
        Duration::from_micros(self.plan.slow.unsigned_abs() * 2 + 500)
    }

    /// `Pool::reserve`. Without an open connection the worker takes nothing: it asks Redis for no permit until a
    /// connection is open.
    pub(super) fn connects(&mut self, n: usize, purpose: Purpose, channel_index: usize) -> bool {
        let dial = if self.calm { 0 } else { self.plan.dial };
        let us = self.rng.i64(0..=dial);
        self.stage.clock.pass(us);
        if self.calm || !self.plan.moods.refuses(&mut self.rng) {
            return true;
        }
        let wait = self.rng.i64(200_000..=3_000_000);
        self.nodes[n].worker(purpose, channel_index).not_before = self.now() + wait;
        note!(self, "node {n} finds the bank of c{channel_index} closed");
        false
    }

    /// What a worker does after a take, for sends and for inquiries.
    pub(super) fn took(
        &mut self,
        n: usize,
        purpose: Purpose,
        channel_index: usize,
        channel: Arc<Channel>,
        took: Result<Take, BucketError>,
    ) {
        let now = self.now();
        if took.is_ok() {
            self.nodes[n].clock_read = Some(self.stage.redis.steps_of_clock());
        }
        let what = if purpose == Purpose::Send { "takes" } else { "takes, to ask about," };
        let worker = self.nodes[n].worker(purpose, channel_index);
        match took {
            Ok(Take::Granted { taken, is_low, again, depth, .. }) => {
                worker.not_before = again.map_or(now, |again| now + micros(again.span));
                (worker.depth, worker.claims) = (Some(depth), 0);
                note!(
                    self,
                    "node {n} {what} {} of c{channel_index}: {}",
                    taken.len(),
                    taken
                        .iter()
                        .map(|(id, p)| format!("{id} ({})", named(&p.numbers)))
                        .collect::<Vec<_>>()
                        .join(", ")
                );
                self.nodes[n].worker(purpose, channel_index).taken = Some((channel, taken));
                if is_low {
                    self.nodes[n].to_feed.insert(channel_index);
                }
            }
            Ok(Take::Denied { wait, depth, .. }) => {
                worker.depth = depth.or(worker.depth);
                worker.not_before = now + micros(wait.span).clamp(1_000, micros(timing::STAYS_AWAY));
                note!(self, "node {n} is told to wait {:?} by {}", wait.span, wait.limit);
            }
            Ok(Take::Empty) => {
                // It sleeps until the bucket is filled. The due poller of its node sees that within a second.
                (worker.depth, worker.not_before) = (Some(0), now + 1_000_000);
                if purpose == Purpose::Send {
                    self.nodes[n].to_feed.insert(channel_index);
                }
                note!(self, "node {n} finds the bucket of c{channel_index} empty");
            }
            Ok(Take::Forgot(forgotten)) => {
                note!(self, "node {n} hears that Redis forgot {}", forgotten.limit.name);
                self.nodes[n].worker(purpose, channel_index).chores.push_back(Chore::Adopt(forgotten));
            }
            Ok(Take::ClockStepped { by_us }) => {
                worker.wasted = true;
                note!(self, "node {n} notices that Redis's clock was set by {by_us} us");
            }
            Err(_) => {
                worker.wasted = true;
                self.stumble(n, purpose, channel_index, "take");
            }
        }
    }

    /// The node's store for a statement that is sent now and runs later.
    pub(super) fn store_as_of_now(&self, n: usize) -> Store {
        let (store, now) = (self.nodes[n].store.clone(), self.stage.clock.instant());
        match store.clock_witness().map(|witness| witness.as_of(now)) {
            Some(witness) => store.witnessed_by(witness),
            None => store,
        }
    }
}
