//! Plays a seed to its end, and finds the shortest trace that still breaks the law.

use super::laws::{Lawful, Row, Violation, broken};
use super::plan::Fault;
use super::plan::climate::Climate;
use super::stage::Stage;
use super::world::{World, mixed, note};
use super::zoo::{Mistake, Patch};

use refundd::bucket::Errand as Line;
use refundd::refund::State;

/// What one run came to.
#[derive(Debug)]
pub struct Run {
    pub steps: u32,
    pub requests: usize,
    pub inquiries: usize,
    /// Of other services.
    pub others: usize,
    pub violation: Option<Violation>,
    pub trace: Vec<String>,
    /// The draws that did something.
    pub useful: Vec<u32>,
}

/// The mistake that a run has, if any.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flaw {
    pub mistake: Option<Mistake>,
    pub patch: Option<Patch>,
}

/// What is played.
#[derive(Debug, Clone, Copy)]
pub struct Game {
    pub seed: u64,
    pub climate: Climate,
    pub flaw: Flaw,
}

impl Game {
    /// Nothing is wrong with the product.
    pub fn fair(seed: u64, climate: Climate) -> Self {
        Game { seed, climate, flaw: Flaw::default() }
    }
}

/// Plays a seed; with `only`, of its draws these.
pub async fn play(stage: &mut Stage, game: Game, only: Option<&[u32]>, tracing: bool) -> Run {
    loop {
        let run = play_through(stage, game, only, tracing).await;
        if !stage.is_torn().await {
            return run;
        }
        // The run was not Postgres's to lose: a connection that is given up takes it along.
        eprintln!("seed {} is played again: its connection was given up", game.seed);
    }
}

async fn play_through(stage: &mut Stage, game: Game, only: Option<&[u32]>, tracing: bool) -> Run {
    stage.reset(game.flaw.patch).await;
    let seed = game.seed;
    let mut world = World::new(stage, game, tracing).await;
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

/// Leaves draws out, ever fewer at a time, while the same law is still broken.
pub async fn shrink(stage: &mut Stage, game: Game, run: &Run) -> Run {
    let law = run.violation.as_ref().map(|violation| violation.law);
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
            if run.violation.is_some_and(|violation| Some(violation.law) == law) {
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
    /// Everything is mended, and all that was saved comes to its end.
    async fn come_to_an_end(&mut self, steps: &mut u32) -> Lawful<()> {
        note!(self, "from here on nothing goes wrong");
        self.calm = true;
        self.stage.redis.heal(false);
        while self.ghost().await? {}
        for lane in 0..self.plan.files[0].len() {
            self.resume(lane).await?;
        }
        let offset = self.stage.redis.offset();
        if offset.abs() > 4_000_000 {
            self.stage.redis.step_clock(-offset);
        }
        self.forgot_who_asked();
        for n in 0..self.nodes.len() {
            if !self.nodes[n].alive {
                self.start(n);
            }
            self.beat(n).await?;
        }
        if self.stage.postgres_ahead().abs() > 4_000_000 {
            self.postgres_clock_is_set(-self.stage.postgres_ahead());
        }
        for n in 0..self.nodes.len() {
            self.beat(n).await?;
            self.nodes[n].file = 0;
            // All read the same file again, the one that some node has.
            if n > 0 {
                let moved = self.nodes[0].moved.clone();
                self.nodes[n].moved = moved;
            }
            // A file that did not change is not read again, and heartbeats alone bring back what was retired.
            if self.plan.files.len() > 1 || self.plan.has(Fault::Move) {
                self.publish(n).await?;
            }
            self.hear(n).await?;
        }
        let lanes = self.plan.files[0].len();
        let mut recovered = i64::MIN / 2;
        let mut rounds = 0;
        while self.rows.values().any(|row| !row.state.is_end()) {
            rounds += 1;
            if rounds > 3_000 {
                break;
            }
            let mut busy = false;
            for n in 0..self.nodes.len() {
                for lane in 0..lanes {
                    busy |= self.errand(n, Line::Send, lane).await?;
                    busy |= self.errand(n, Line::Inquire, lane).await?;
                    if self.nodes[n].desks[lane].not_before <= self.now() && self.wants_to_ask(lane) {
                        busy |= self.take(n, Line::Inquire, lane).await?;
                    }
                    busy |= self.claim(n, Line::Inquire, lane).await?;
                    if self.nodes[n].lanes[lane].not_before <= self.now() && self.wants_to_send(lane) {
                        busy |= self.take(n, Line::Send, lane).await?;
                    }
                    busy |= self.claim(n, Line::Send, lane).await?;
                    if self.nodes[n].hungry.contains(&lane) {
                        busy |= self.feed(n, lane).await?;
                    }
                }
                busy |= self.send(n).await?;
                busy |= self.land(n).await?;
                busy |= self.settle(n).await?;
                busy |= self.take_back(n).await?;
                busy |= self.ask(n).await?;
                busy |= self.listen(n).await?;
                busy |= self.believe(n).await?;
                while self.fill(n).await? {
                    busy = true;
                }
                *steps += 1;
            }
            let is_due = (0..lanes).any(|lane| self.wants_to_ask(lane));
            let period = match self.only_inquiries_are_left() {
                true if is_due => 15_000_000,
                true => 60_000_000,
                false => 3_000_000,
            };
            if self.now() - recovered > period {
                recovered = self.now();
                // In recovery's order; what is in review stands for the plans.
                for state in [State::Sending, State::Ready, State::Review, State::Unknown] {
                    self.recover(0, state).await?;
                }
                for lane in 0..lanes {
                    self.feed(0, lane).await?;
                    self.look_out(0, lane).await?;
                }
                self.find_stranded(0).await?;
                if self.plan.has(Fault::Retire) {
                    for n in 0..self.nodes.len() {
                        self.beat(n).await?;
                    }
                }
                // The claim hears of it itself; a node that was told by its own bank hears from its pulse.
                for n in 0..self.nodes.len() {
                    self.hear(n).await?;
                }
                for lane in 0..lanes {
                    self.resume(lane).await?;
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
        // What the bank still has under way is part of its ledger.
        self.stage.clock.pass(120_000_000);
        // Answers that came too late are evidence.
        for n in 0..self.nodes.len() {
            while self.send(n).await?
                || self.land(n).await?
                || self.settle(n).await?
                || self.listen(n).await?
                || self.believe(n).await?
            {}
        }
        if self.rows.values().any(|row| !row.state.is_end()) {
            return broken("nothing is lost", format!("after {rounds} rounds of calm: {:?}", self.rows));
        }
        self.agrees_in_the_end().await
    }

    /// Whether a channel has anything to send now.
    fn wants_to_send(&self, lane: usize) -> bool {
        let now = self.stage.postgres_now();
        let again = |row: &Row| row.state == State::Unknown && row.inquire_us.is_none();
        self.rows
            .values()
            .any(|row| (row.state == State::Ready || again(row)) && row.lane == lane && row.due_us <= now)
    }

    /// All that has not ended waits until the bank is asked about it.
    fn only_inquiries_are_left(&self) -> bool {
        self.rows.values().all(|row| row.state.is_end() || row.inquire_us.is_some())
    }
}
