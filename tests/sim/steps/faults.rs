//! Faults of nodes, of Redis, of Postgres's clock, and of statements on their way.

use refundd::bucket::Purpose;
use refundd::store::ClaimRequest;

use crate::plan::Fault;
use crate::plan::step::Step;
use crate::violation::{Checked, taken};
use crate::world::node::Node;
use crate::world::{World, note};

impl World<'_> {
    /// Runs a claim that its node gave up on.
    pub async fn run_late_claim(&mut self) -> Checked<bool> {
        if self.late_claims.is_empty() {
            return Ok(false);
        }
        let nth = self.rng.usize(0..self.late_claims.len());
        let claim = self.late_claims.remove(nth);
        let channel = self.plan.files[0][claim.channel].name.clone();
        let request = ClaimRequest {
            channel: &channel,
            node: &claim.node,
            holder: &claim.holder,
            lease: claim.lease,
            clock_tolerance: claim.tolerance,
            taken: &claim.taken,
            resend_within: claim.resend_within,
            most_sends: claim.most_sends,
            bank_address: &claim.bank_address,
        };
        self.stage.tell_time_and_look().await;
        let store = &claim.store;
        let count = match claim.purpose {
            Purpose::Send => taken(store.claim_among(&request, &claim.more).await)?.leased.len(),
            Purpose::Inquire => taken(store.claim_inquiries(&request).await)?.leased.len(),
        };
        note!(self, "the late claim {} takes {count} refunds", claim.holder);
        self.observe().await.map(|()| true)
    }

    /// Whether seeds of this plan set Redis's clock.
    pub(super) fn sets_redis_clock(&self) -> bool {
        self.plan.has(Fault::Clock) || self.plan.has(Fault::Takeover)
    }

    /// The living nodes that have read Redis's clock. A step of the clock shows between two readings of one node.
    fn readers_of_clock(&self) -> Vec<usize> {
        let has_read = |n: &usize| self.nodes[*n].alive && self.nodes[*n].clock_read.is_some();
        (0..self.nodes.len()).filter(has_read).collect()
    }

    /// Whether Redis's clock was set and no living node has read it since. Each node reads it within a second.
    /// docs/limits.md names the effects if the last such node dies, or another node starts, before that.
    fn step_is_unseen(&self) -> bool {
        let steps = self.stage.redis.steps_of_clock();
        let saw = |node: &Node| node.alive && node.clock_read == Some(steps);
        steps > 0 && !self.calm && !self.nodes.iter().any(saw)
    }

    pub(super) fn crash(&mut self, n: usize) -> bool {
        if self.step_is_unseen() && self.readers_of_clock() == [n] {
            return false;
        }
        let now = self.now();
        let node = &mut self.nodes[n];
        node.alive = false;
        // Its connections are gone. Requests that are on their way arrive.
        for call in self.bank.calls.iter_mut().filter(|call| call.node == n && call.process == node.process) {
            call.ends = call.ends.min(now);
        }
        let questions = self.bank.questions.iter_mut();
        for question in questions.filter(|question| question.node == n && question.process == node.process) {
            question.ends = question.ends.min(now);
        }
        note!(self, "node {n} dies");
        true
    }

    pub fn start(&mut self, n: usize) -> bool {
        if self.step_is_unseen() && !self.readers_of_clock().is_empty() {
            return false;
        }
        let (process, file) = (self.nodes[n].process + 1, self.nodes[n].file);
        let file = if self.calm { 0 } else { file };
        let moved = std::mem::take(&mut self.nodes[n].moved);
        self.nodes[n] = Node::new(self.stage, &self.plan, n, process, file, self.mistake);
        self.nodes[n].moved = moved;
        note!(self, "node {n} starts");
        true
    }

    pub fn reload(&mut self, n: usize) -> bool {
        let files = self.plan.files.len();
        if files < 2 {
            return false;
        }
        // The old worker claims the ids that it took. Leased refunds that are not yet sent go on.
        self.nodes[n].file = (self.nodes[n].file + 1) % files;
        note!(self, "node {n} reads file {}", self.nodes[n].file);
        true
    }

    /// A node reads a file in which a channel goes to the other bank, or back to the first.
    pub async fn move_channel(&mut self, n: usize, channel_index: usize) -> Checked<bool> {
        if !self.nodes[n].moved.remove(&channel_index) {
            self.nodes[n].moved.insert(channel_index);
        }
        note!(
            self,
            "node {n} reads that c{channel_index} goes to bank {}",
            usize::from(self.nodes[n].moved.contains(&channel_index))
        );
        self.publish(n).await.map(|()| true)
    }

    /// Sets Postgres's clock, or another server takes over. This does not happen again before every node has noticed.
    pub(super) fn set_postgres_clock(&mut self) -> bool {
        let unnoticed = self.nodes.iter().any(|node| node.alive && !node.knows_postgres_clock);
        if !self.plan.has(Fault::PostgresClock) || unnoticed || self.nodes.iter().all(|node| !node.alive) {
            return false;
        }
        let us = match self.rng.u8(0..3) {
            // A larger step than the clocks of permits may differ.
            0 => self.rng.i64(5_000_000..=90_000_000),
            _ => self.rng.i64(1_100_000..=4_000_000),
        };
        let us = if self.rng.bool() { us } else { -us };
        self.postgres_clock_is_set(us);
        true
    }

    pub fn postgres_clock_is_set(&mut self, us: i64) {
        self.stage.step_postgres_clock(us);
        for node in &mut self.nodes {
            node.knows_postgres_clock = false;
        }
        note!(self, "Postgres's clock is set by {us} us");
    }

    pub(super) fn befall(&mut self, step: Step) -> bool {
        let redis = std::sync::Arc::clone(&self.stage.redis);
        let needs = match step {
            Step::Flush | Step::Restart => Fault::Flush,
            Step::Snapshot | Step::Restore => Fault::Restore,
            Step::Fork | Step::Heal => Fault::Fork,
            Step::Takeover => Fault::Takeover,
            _ => Fault::Clock,
        };
        let sets_clock = matches!(step, Step::SetClock | Step::Takeover);
        if !self.plan.has(needs) || sets_clock && self.readers_of_clock().is_empty() {
            return false;
        }
        match step {
            Step::Flush => redis.flush(),
            Step::Restart => redis.restart(),
            Step::Snapshot => redis.save(),
            Step::Restore if !redis.restore() => return false,
            Step::Fork | Step::Takeover if redis.is_forked() => return false,
            Step::Fork => redis.fork(self.rng.bool()),
            Step::Heal if !redis.is_forked() => return false,
            Step::Heal => redis.heal(self.rng.bool()),
            Step::Takeover => {
                let us = self.rng.i64(10_000..=1_500_000);
                let us = if self.rng.bool() { us } else { -us };
                redis.taken_over(self.rng.bool(), us);
                self.stepped = true;
                note!(self, "Redis: another server takes over, whose clock is {us} us ahead");
            }
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
        if !matches!(step, Step::Snapshot) {
            self.forget_rule_uses();
        }
        if !matches!(step, Step::SetClock | Step::Takeover) {
            note!(self, "Redis: {step:?}");
        }
        true
    }
}
