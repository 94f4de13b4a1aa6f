//! Plays a seed to its end, and finds the shortest trace that still breaks the property.

use super::game::Game;
use super::plan::Fault;
use super::stage::Stage;
use super::violation::{Checked, Violation, broken};
use super::world::row::Row;
use super::world::{World, mixed, note};

use refundd::bucket::Purpose;
use refundd::refund::{NewRefund, State};

/// The totals and the outcome of one run.
#[derive(Debug)]
pub struct Run {
    pub steps: u32,
    pub requests: usize,
    pub inquiries: usize,
    /// Requests of other services.
    pub others: usize,
    pub violation: Option<Violation>,
    pub trace: Vec<String>,
    /// The numbers of the draws that did something.
    pub useful: Vec<u32>,
}

/// Plays a seed. With `only`, plays these of its draws and no others.
pub async fn play(stage: &mut Stage, game: Game, only: Option<&[u32]>, tracing: bool) -> Run {
    loop {
        let run = play_through(stage, game, only, tracing).await;
        if !stage.is_torn().await {
            return run;
        }
        // A run is one transaction, so a lost connection loses the run. That says nothing about the product.
        eprintln!("seed {} is played again: its connection was given up", game.seed);
    }
}

async fn play_through(stage: &mut Stage, game: Game, only: Option<&[u32]>, tracing: bool) -> Run {
    stage.reset(game.flaw.patch).await;
    let seed = game.seed;
    let mut world = World::new(stage, game, tracing);
    world.begin().await;
    let (mut steps, mut useful) = (0, Vec::new());
    let mut violation = None;
    for nth in 0..world.plan.draws {
        if only.is_some_and(|only| !only.contains(&nth)) {
            continue;
        }
        world.rng = mixed(seed, u64::from(nth));
        match world.step().await {
            Ok(true) => {
                steps += 1;
                useful.push(nth);
            }
            Ok(false) => {}
            Err(broken) => {
                useful.push(nth);
                violation = Some(broken);
                break;
            }
        }
    }
    if violation.is_none() {
        world.rng = mixed(seed, u64::MAX - 1);
        violation = world.come_to_an_end(&mut steps).await.err();
    }
    if let Some(violation) = &violation {
        world.write(&format!("BROKEN: {violation}"));
    }
    Run {
        steps,
        requests: world.bank.calls.len(),
        inquiries: world.bank.questions.len(),
        others: world.bank.others.len(),
        violation,
        trace: world.trace.take().unwrap_or_default(),
        useful,
    }
}

/// Leaves draws out, fewer and fewer at a time, while the run still breaks the same property.
pub async fn shrink(stage: &mut Stage, game: Game, run: &Run) -> Run {
    let property = run.violation.as_ref().map(|violation| violation.property);
    let mut kept = run.useful.clone();
    let mut size = kept.len().div_ceil(2).max(1);
    let mut tries = 0;
    loop {
        let mut at = 0;
        while at < kept.len() && tries < 400 {
            tries += 1;
            let end = (at + size).min(kept.len());
            let fewer = [&kept[..at], &kept[end..]].concat();
            let run = play(stage, game, Some(&fewer), false).await;
            if run.violation.is_some_and(|violation| Some(violation.property) == property) {
                kept = fewer;
            } else {
                at = end;
            }
        }
        if size == 1 || tries >= 400 {
            break;
        }
        size = size.div_ceil(2);
    }
    play(stage, game, Some(&kept), true).await
}

impl World<'_> {
    /// The nodes start, and the first refunds are saved.
    async fn begin(&mut self) {
        let _ = self.publish(0).await;
        for n in 0..self.nodes.len() {
            let _ = self.heartbeat(n).await;
        }
        self.tell_of_files();
        let refunds: Vec<NewRefund> = (0..self.plan.refunds).map(|_| self.refund()).collect();
        self.save(&refunds).await;
        let _ = self.observe().await;
    }

    /// Repairs every fault and plays on until every saved refund has ended.
    async fn come_to_an_end(&mut self, steps: &mut u32) -> Checked<()> {
        note!(self, "from here on nothing goes wrong");
        self.calm = true;
        self.stage.redis.heal(false);
        while self.run_late_claim().await? {}
        for channel_index in 0..self.plan.files[0].len() {
            self.resume(channel_index).await?;
        }
        let offset = self.stage.redis.offset();
        if offset.abs() > 4_000_000 {
            self.stage.redis.step_clock(-offset);
        }
        self.forget_rule_uses();
        for n in 0..self.nodes.len() {
            if !self.nodes[n].alive {
                self.start(n);
            }
            self.heartbeat(n).await?;
        }
        if self.stage.postgres_ahead().abs() > 4_000_000 {
            self.postgres_clock_is_set(-self.stage.postgres_ahead());
        }
        for n in 0..self.nodes.len() {
            self.heartbeat(n).await?;
            self.nodes[n].file = 0;
            // All nodes read the same file again: the one that node 0 has.
            if n > 0 {
                let moved = self.nodes[0].moved.clone();
                self.nodes[n].moved = moved;
            }
            // A file that did not change is not read again: heartbeats alone bring retired channels back.
            if self.plan.files.len() > 1 || self.plan.has(Fault::Move) {
                self.publish(n).await?;
            }
            self.read_suspensions(n).await?;
        }
        let channels = self.plan.files[0].len();
        let mut recovered = i64::MIN / 2;
        let mut rounds = 0;
        while self.rows.values().any(|row| !row.state.is_end()) {
            rounds += 1;
            // A wait of 15 ms may be ten rounds, and a node that died keeps its turn to restore a count for 2.5 s.
            if rounds > 6_000 {
                break;
            }
            let mut busy = false;
            for n in 0..self.nodes.len() {
                for channel_index in 0..channels {
                    busy |= self.chore(n, Purpose::Send, channel_index).await?;
                    busy |= self.chore(n, Purpose::Inquire, channel_index).await?;
                    if self.nodes[n].inquiry_workers[channel_index].not_before <= self.now()
                        && self.wants_to_ask(channel_index)
                    {
                        busy |= self.take(n, Purpose::Inquire, channel_index).await?;
                    }
                    busy |= self.claim(n, Purpose::Inquire, channel_index).await?;
                    // The bucket of sends may hold ids of refunds that have ended. Inquiries yield to them until the worker
                    // for sends has taken them out.
                    if self.nodes[n].send_workers[channel_index].not_before <= self.now()
                        && (self.wants_to_send(channel_index) || self.wants_to_ask(channel_index))
                    {
                        busy |= self.take(n, Purpose::Send, channel_index).await?;
                    }
                    busy |= self.claim(n, Purpose::Send, channel_index).await?;
                    if self.nodes[n].to_feed.contains(&channel_index) {
                        busy |= self.feed(n, channel_index).await?;
                    }
                }
                busy |= self.send(n).await?;
                busy |= self.land(n).await?;
                busy |= self.settle(n).await?;
                busy |= self.take_back(n).await?;
                busy |= self.ask(n).await?;
                busy |= self.read_reply(n).await?;
                busy |= self.settle_inquiry(n).await?;
                while self.fill(n).await? {
                    busy = true;
                }
                *steps += 1;
            }
            let is_due = (0..channels).any(|channel_index| self.wants_to_ask(channel_index));
            let period = match self.only_inquiries_are_left() {
                true if is_due => 15_000_000,
                true => 60_000_000,
                false => 3_000_000,
            };
            if self.now() - recovered > period {
                recovered = self.now();
                // The order is that of recovery. `Review` stands for the step that plans inquiries.
                for state in [State::Sending, State::Ready, State::Review, State::Unknown] {
                    self.recover(0, state).await?;
                }
                for channel_index in 0..channels {
                    self.feed(0, channel_index).await?;
                    self.poll_inquiries(0, channel_index).await?;
                }
                self.find_stranded(0).await?;
                if self.plan.has(Fault::Retire) {
                    for n in 0..self.nodes.len() {
                        self.heartbeat(n).await?;
                    }
                }
                // A claim reads suspensions itself. A node whose own bank refused reads them with its heartbeat.
                for n in 0..self.nodes.len() {
                    self.read_suspensions(n).await?;
                }
                for channel_index in 0..channels {
                    self.resume(channel_index).await?;
                }
                while self.decide().await? {}
                continue;
            }
            if !busy {
                let at = self.next_wake().unwrap_or(i64::MAX).min(recovered + period + 1);
                self.stage.clock.set(at.max(self.now() + 1));
            }
        }
        self.observe().await?;
        // Requests that are still in progress at the bank become part of its ledger.
        self.stage.clock.pass(120_000_000);
        // The nodes read answers that came too late: they are evidence.
        for n in 0..self.nodes.len() {
            while self.send(n).await?
                || self.land(n).await?
                || self.settle(n).await?
                || self.read_reply(n).await?
                || self.settle_inquiry(n).await?
            {}
        }
        // Such an answer may have shown an ended refund to a person again.
        while self.decide().await? {}
        if self.rows.values().any(|row| !row.state.is_end()) {
            return broken("nothing is lost", format!("after {rounds} rounds of calm: {:?}", self.rows));
        }
        self.agrees_in_the_end().await
    }

    /// Whether a channel has anything to send now.
    fn wants_to_send(&self, channel_index: usize) -> bool {
        let now = self.stage.postgres_now();
        let again = |row: &Row| row.state == State::Unknown && row.inquire_us.is_none();
        self.rows.values().any(|row| {
            (row.state == State::Ready || again(row))
                && row.channel_index == channel_index
                && row.due_us <= now
        })
    }

    /// Whether every refund that has not ended waits for an inquiry.
    fn only_inquiries_are_left(&self) -> bool {
        self.rows.values().all(|row| row.state.is_end() || row.inquire_us.is_some())
    }
}
