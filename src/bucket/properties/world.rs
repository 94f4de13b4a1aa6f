//! The world of the property tests: nodes with their files, the time, and the ways in which Redis loses its memory.

mod calls;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;
use redis::Value;

use super::Step;
use super::ledger::CountedLimit;
use super::scripts::{SCRIPTS, TOLERANCE, bytes, micros};
use crate::bucket::memory::{Memory, Snapshot};
use crate::limiter::Rule;

const BEGAN: i64 = 1_790_000_000_000_000;

/// A way in which Redis loses its memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Loss {
    Flushed,
    /// Redis is another process. Its keys are still there, but nobody knows how old they are.
    Restarted,
    Both,
    /// Redis was started from an old snapshot.
    Restored,
    /// Redis evicted the second key of each limit, and kept the first one.
    Evicted,
    /// Another server took over, with a clock that differs by `clock` us from real time. It has all keys, or with
    /// `behind` only those of the old snapshot.
    TakenOver {
        clock: i64,
        behind: bool,
    },
}

#[derive(Debug)]
pub(super) struct World {
    memory: Memory,
    /// Real time, which Postgres's clock shows.
    time: Arc<AtomicI64>,
    /// How far Redis's clock is ahead of real time, in us.
    offset: Arc<AtomicI64>,
    files: Vec<Vec<Rule>>,
    /// The file that each node runs.
    runs: [usize; 4],
    lead_times: [i64; 4],
    pub ahead: i64,
    pub limits: Vec<CountedLimit>,
    bucket: VecDeque<i64>,
    next_id: i64,
    pub taken: usize,
    /// When a node last asked under each rule of the first limit.
    proposed: Vec<(i64, Rule)>,
    lost: bool,
    /// Whether a server with another clock took over. Then windows are not those of real time.
    pub taken_over: bool,
    saved: Option<Snapshot>,
}

/// The result of a take: the number of permits, and the wait in us.
pub(super) struct Taken {
    pub count: usize,
    pub wait: i64,
}

impl World {
    pub fn new(files: &[Vec<Rule>], ahead: i64, lead_times: [i64; 4]) -> Self {
        let time = Arc::new(AtomicI64::new(BEGAN));
        let offset = Arc::<AtomicI64>::default();
        let (clock, ahead_by) = (Arc::clone(&time), Arc::clone(&offset));
        let redis = move || clock.load(Ordering::Relaxed) + ahead_by.load(Ordering::Relaxed);
        let shortest = files.iter().flatten().map(|rule| micros(rule.per)).min().unwrap_or(0);
        let limits = (0..files[0].len()).map(CountedLimit::new);
        World {
            memory: Memory::with_clock(Box::new(redis)).unwrap(),
            time,
            offset,
            files: files.to_vec(),
            runs: [0; 4],
            lead_times,
            ahead: shortest * ahead / 1_000_000,
            limits: limits.collect(),
            bucket: VecDeque::new(),
            next_id: 1,
            taken: 0,
            proposed: Vec::new(),
            lost: false,
            taken_over: false,
            saved: None,
        }
    }

    pub fn now(&self) -> i64 {
        self.time.load(Ordering::Relaxed)
    }

    fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    fn redis_now(&self) -> i64 {
        self.now() + self.offset()
    }

    fn longest(&self) -> i64 {
        self.files.iter().flatten().map(|rule| micros(rule.per + rule.lateness)).max().unwrap_or(0)
    }

    /// The rules of one limit in all files.
    pub fn rules_of(&self, limit: usize) -> impl Iterator<Item = &Rule> + Clone {
        self.files.iter().map(move |file| &file[limit])
    }

    pub fn pass(&mut self, millionths: u32) {
        self.wait(self.longest() * i64::from(millionths) / 1_000_000);
    }

    /// Lets time pass. Permits that are not claimed yet are claimed at the moment they close.
    pub fn wait(&mut self, us: i64) {
        let until = self.now() + us;
        for limit in &mut self.limits {
            for at in std::mem::take(&mut limit.pending) {
                if limit.granted[at].closes > until {
                    limit.pending.push(at);
                } else {
                    limit.claim(at, limit.granted[at].closes);
                }
            }
        }
        self.time.store(until, Ordering::Relaxed);
    }

    pub fn save(&mut self) {
        self.saved = Some(self.memory.snapshot());
    }

    pub fn lose(&mut self, loss: Loss) {
        self.lost = true;
        if let Loss::TakenOver { clock, .. } = loss {
            self.offset.store(clock, Ordering::Relaxed);
            self.taken_over = true;
            self.memory.new_server_id();
            for limit in &mut self.limits {
                limit.numbers.clear();
            }
        }
        let restored = matches!(loss, Loss::Restored | Loss::TakenOver { behind: true, .. });
        if let (true, Some(saved)) = (restored, &self.saved) {
            self.memory.restore(saved);
            // The feeder fills the bucket again from the rows.
            self.memory.run("redis.call('DEL', 'bucket', 'present')", &[], &[]).unwrap();
            self.bucket.clear();
            if let Loss::TakenOver { .. } = loss {
                self.memory.new_server_id();
            }
            for limit in &mut self.limits {
                limit.numbers.clear();
            }
        }
        if matches!(loss, Loss::Flushed | Loss::Both) {
            self.memory.flush();
            self.bucket.clear();
            for limit in &mut self.limits {
                limit.numbers.clear();
            }
        }
        if matches!(loss, Loss::Restarted | Loss::Both) {
            self.memory.new_server_id();
        }
        if matches!(loss, Loss::Evicted) {
            for limit in &self.limits {
                self.memory.run("redis.call('DEL', KEYS[2])", &limit.keys, &[]).unwrap();
            }
        }
    }

    pub fn reload(&mut self, node: usize, file: usize) {
        self.runs[node] = file % self.files.len();
    }

    pub fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Pass(millionths) => self.pass(millionths),
            Step::Take { node, want, at_once } => self.take(node, want, at_once)?,
            Step::Acquire { want } => self.acquire(want)?,
            Step::Save => self.save(),
            Step::Lose(loss) => self.lose(loss),
            Step::Reload { node, file } => self.reload(node, file),
        }
        Ok(())
    }

    /// Notes for the judge that the last permit's first byte leaves now. It arrives within half of `lateness`.
    pub fn leave_now(&mut self) {
        let now = self.now();
        if let Some(last) = self.limits[0].granted.last_mut() {
            let lateness = micros(last.rule.lateness);
            (last.earliest, last.latest, last.claimed) = (now, now + lateness - lateness / 2, true);
        }
    }

    /// Reports to Redis that the last permit's first byte left now, after the permit had closed.
    pub fn left_late(&mut self) -> Result<(), TestCaseError> {
        let Some(last) = self.limits[0].granted.last() else { return Ok(()) };
        let window = last.window.to_string();
        let rules = self.files[self.runs[0]].clone();
        let (mut keys, mut args) = (vec!["clock".to_owned()], vec![TOLERANCE.to_string()]);
        self.say(0..1, &rules, &mut keys, &mut args);
        args.push(window);
        let reply = self.memory.run(&SCRIPTS.late.source, &keys, &bytes(&args));
        let reply = reply.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(reply, Value::Int(1));
        Ok(())
    }

    /// When the last permit closes.
    pub fn last_closes(&self) -> Option<i64> {
        self.limits[0].granted.last().map(|last| last.closes)
    }
}
