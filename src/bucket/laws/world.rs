//! Plays nodes that take from one bucket under shared limits, and checks that every reply makes sense.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;
use redis::Value;

use super::Step;
use super::ledger::{Arrival, Clocks, Limit};
use super::scripts::{COUNTED, SCRIPTS, TOLERANCE, bytes, list, micros, number, text};
use crate::bucket::memory::{Memory, Snapshot};
use crate::bucket::script::{DENIED, FORGOT, GRANTED, RESTORING, Verb};
use crate::limiter::Rule;
use crate::limiter::{Permit, timing};

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
    pub limits: Vec<Limit>,
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
        let limits = (0..files[0].len()).map(Limit::new);
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

    pub fn take(&mut self, node: usize, want: u32, at_once: bool) -> Result<(), TestCaseError> {
        self.try_take(node, want, at_once).map(|_| ())
    }

    pub fn try_take(&mut self, node: usize, want: u32, at_once: bool) -> Result<Taken, TestCaseError> {
        self.fill()?;
        let rules = self.files[self.runs[node]].clone();
        let mut keys = ["bucket", "present", "feeding", "clock", "share"].map(str::to_owned).to_vec();
        let mut args = [i64::from(want), 10, 1000, self.lead_times[node], TOLERANCE, 0]
            .iter()
            .map(ToString::to_string)
            .collect();
        self.say(0..rules.len(), &rules, &mut keys, &mut args);
        // Redis may have forgotten the count of each limit, and each restore needs another call.
        for _ in 0..=rules.len() {
            let before = self.counted();
            let reply = self.run(&SCRIPTS.take, &keys, &args)?;
            match number(&reply[0]) {
                GRANTED => {
                    for id in list(&reply[7]) {
                        prop_assert_eq!(
                            Some(number(id)),
                            self.bucket.pop_front(),
                            "the first id leaves first, and once"
                        );
                    }
                    prop_assert_eq!(number(&reply[2]), i64::try_from(self.bucket.len()).unwrap());
                    prop_assert_eq!(list(&reply[7]).len(), list(&reply[8]).len());
                    prop_assert!(list(&reply[7]).len() <= want as usize);
                    let count = self.note(0, &rules, &reply[6], &reply[8], at_once, false)?;
                    self.taken += count;
                    let wait = number(&reply[4]);
                    prop_assert!(wait == 0 || wait >= 1000, "the wait is {wait}");
                    return Ok(Taken { count, wait });
                }
                DENIED => {
                    let wait = number(&reply[4]);
                    prop_assert_eq!(number(&reply[2]), i64::try_from(self.bucket.len()).unwrap());
                    prop_assert!(wait >= 1000, "the wait is {wait}");
                    if self.files.len() == 1 {
                        prop_assert_eq!(before, self.counted(), "a denied call spent something");
                    }
                    return Ok(Taken { count: 0, wait });
                }
                // Redis forgot the count, and other nodes ask under a stricter rule. One of them restores the count.
                RESTORING => {
                    let wait = number(&reply[2]);
                    prop_assert!(self.files.len() > 1, "no node asks under another rule");
                    prop_assert_eq!(wait, micros(timing::FOR_THE_STRICTER));
                    prop_assert_eq!(before, self.counted(), "a denied call spent something");
                    return Ok(Taken { count: 0, wait });
                }
                FORGOT => {
                    let nth = usize::try_from(number(&reply[2])).unwrap() - 1;
                    self.restore(nth, &rules[nth], &reply)?;
                }
                other => return Err(TestCaseError::fail(format!("answered {other}"))),
            }
        }
        Err(TestCaseError::fail("was restored and forgot again"))
    }

    pub fn acquire(&mut self, want: u32) -> Result<(), TestCaseError> {
        let rules = self.files[self.runs[0]].clone();
        let mut keys = vec!["clock".to_owned()];
        let mut args = vec![want.to_string(), TOLERANCE.to_string()];
        self.say(0..1, &rules, &mut keys, &mut args);
        for _ in 0..2 {
            let reply = self.run(&SCRIPTS.acquire, &keys, &args)?;
            match number(&reply[0]) {
                GRANTED => {
                    prop_assert_eq!(list(&reply[4]).len(), want as usize);
                    prop_assert!(number(&reply[2]) >= 0);
                    let now = self.now();
                    let first = self.limits[0].granted.len();
                    self.note(0, &rules[..1], &reply[3], &reply[4], true, true)?;
                    // A paced limit may grant its next slot.
                    let soon = |rule: &Rule| {
                        if rule.algorithm.is_paced() { rule.spacing_us().cast_signed() + 1 } else { 0 }
                    };
                    let late = self.limits[0].granted[first..].iter().find(|a| a.opens > now + soon(&a.rule));
                    prop_assert!(late.is_none(), "what is acquired can be used now, not {:?}", late);
                    return Ok(());
                }
                DENIED | RESTORING => {
                    prop_assert!(number(&reply[2]) > 0);
                    return Ok(());
                }
                FORGOT => self.restore(0, &rules[0], &reply)?,
                other => return Err(TestCaseError::fail(format!("answered {other}"))),
            }
        }
        Err(TestCaseError::fail("was restored and forgot again"))
    }

    /// Checks that a node that waits as long as the replies say is granted a permit before long.
    pub fn still_moves(&mut self) -> Result<(), TestCaseError> {
        let (before, until) =
            (self.taken, self.now() + 50 * self.longest() + 4 * micros(Permit::LIFETIME) + TOLERANCE);
        while self.taken == before {
            prop_assert!(self.now() <= until, "denied for ever");
            let Taken { count, wait } = self.try_take(0, 1, true)?;
            if count == 0 {
                self.wait(wait);
            }
        }
        Ok(())
    }

    fn say(
        &self,
        nths: std::ops::Range<usize>,
        rules: &[Rule],
        keys: &mut Vec<String>,
        args: &mut Vec<String>,
    ) {
        for nth in nths {
            keys.extend(self.limits[nth].keys.clone());
            // Each further limit grants half as far ahead as the one before.
            args.extend([rules[nth].to_string(), (self.ahead >> nth).to_string(), String::new()]);
        }
    }

    /// Keeps the bucket full, and offers some of its ids again.
    fn fill(&mut self) -> Result<(), TestCaseError> {
        let mut args = vec!["300".to_owned(), "back".to_owned()];
        args.extend(self.bucket.iter().rev().take(5).map(ToString::to_string));
        while self.bucket.len() < 100 {
            self.bucket.push_back(self.next_id);
            args.push(self.next_id.to_string());
            self.next_id += 1;
        }
        let reply = self.run(&SCRIPTS.fill, &["bucket", "present", "feeding"].map(str::to_owned), &args)?;
        prop_assert_eq!(number(&reply[1]), i64::try_from(self.bucket.len()).unwrap());
        Ok(())
    }

    /// Notes the permits that were granted under the limits from `first` on.
    fn note(
        &mut self,
        first: usize,
        rules: &[Rule],
        effective: &Value,
        permits: &Value,
        at_once: bool,
        acquired: bool,
    ) -> Result<usize, TestCaseError> {
        let effective = list(effective);
        let (real, now, offset) = (self.now(), self.redis_now(), self.offset());
        for permit in list(permits) {
            let permit: Vec<i64> = list(permit).iter().map(number).collect();
            let (opens, closes) = (permit[0], permit[1]);
            prop_assert!(opens < closes, "opens at {opens}, closes at {closes}");
            prop_assert!(closes > now, "over at {closes}, before it was granted, {now}");
            prop_assert!(
                closes <= now + micros(Permit::LONGEST_LEAD_TIME) + self.ahead + micros(Permit::LIFETIME)
            );
            let (opens, closes) = (opens - offset, closes - offset);
            for (nth, proposed) in rules.iter().enumerate() {
                let limit = &mut self.limits[first + nth];
                let stricter: String = text(&effective[2 * nth + 1]);
                let rule: Rule =
                    if stricter.is_empty() { proposed.clone() } else { stricter.parse().unwrap() };
                let late = micros(rule.lateness);
                let late = if rule.algorithm.is_numbered() { late } else { late - late / 2 };
                // A window may have opened long ago. But no request leaves before its permit is granted.
                let earliest = if rule.algorithm.is_numbered() { opens.max(real) } else { opens };
                let arrival = Arrival {
                    rule,
                    earliest,
                    latest: closes + late,
                    claimed: false,
                    spent_at: 0,
                    acquired,
                    opens,
                    closes,
                    window: permit[2 + 2 * nth],
                    ordinal: permit[3 + 2 * nth],
                    generation: number(&effective[2 * nth]),
                };
                let number = (arrival.generation, arrival.window, arrival.ordinal);
                prop_assert!(limit.numbers.insert(number), "granted twice: {arrival:?}");
                prop_assert!(arrival.generation == limit.generation || self.lost);
                if arrival.generation < limit.generation {
                    // The ledger refuses the claim as outdated. Its node then deletes the count in Redis.
                    let generation = limit.generation.to_string().into_bytes();
                    self.memory
                        .run(&SCRIPTS.forget.source, &limit.keys, &[generation, b"count".to_vec()])
                        .unwrap();
                }
                limit.granted.push(arrival);
                let at = limit.granted.len() - 1;
                if at_once {
                    limit.claim(at, real);
                } else {
                    limit.pending.push(at);
                }
            }
        }
        if first == 0 {
            self.stricter_rules(&rules[0])?;
        }
        Ok(list(permits).len())
    }

    /// Checks that the file with the lower rate is in effect as long as a node asks under it. Redis keeps to a rule
    /// for three seconds after its last use, and notes the use once a second.
    fn stricter_rules(&mut self, proposed: &Rule) -> Result<(), TestCaseError> {
        let now = self.now();
        self.proposed.retain(|(at, rule)| *at > now - 2_000_000 && rule != proposed);
        self.proposed.push((now, proposed.clone()));
        let effective = self.limits[0].granted.last().map(|arrival| &arrival.rule);
        if let (Some(effective), 2, false) = (effective, self.files.len(), self.lost) {
            for (_, rule) in &self.proposed {
                prop_assert!(
                    effective.per_second() <= rule.per_second() * 1.000_001,
                    "granted by {effective} while {rule} was asked for"
                );
            }
        }
        Ok(())
    }

    /// Restores the count of a limit in Redis from the ledger.
    fn restore(&mut self, nth: usize, rule: &Rule, reply: &[Value]) -> Result<(), TestCaseError> {
        let now = Clocks { redis: self.redis_now(), postgres: self.now() };
        let window = (number(&reply[4]), number(&reply[5]));
        let server: String = text(&reply[6]);
        let args = self.limits[nth].count_spent(rule, self.ahead >> nth, now, window, &server);
        let keys = [self.limits[nth].keys.as_slice(), &["clock".to_owned()]].concat();
        let reply = self.memory.run(&SCRIPTS.restore.source, &keys, &bytes(&args));
        let reply = reply.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(reply, Value::Int(1));
        Ok(())
    }

    /// The content of the limits' keys, without the notes that spend nothing.
    fn counted(&self) -> Vec<Value> {
        let look = |limit: &Limit| {
            let reply = self.memory.run(COUNTED, &limit.keys, &[]).unwrap();
            let kept: Vec<Value> = list(&list(&reply)[0])
                .chunks(2)
                .filter(|pair| !["turn", "seen", "telling"].contains(&text(&pair[0]).as_str()))
                .flatten()
                .cloned()
                .collect();
            Value::Array(vec![Value::Array(kept), list(&reply)[1].clone()])
        };
        self.limits.iter().map(look).collect()
    }

    fn run(&self, verb: &Verb, keys: &[String], args: &[String]) -> Result<Vec<Value>, TestCaseError> {
        match self.memory.run(&verb.source, keys, &bytes(args)) {
            Ok(reply) => Ok(list(&reply).to_vec()),
            Err(error) => Err(TestCaseError::fail(error.to_string())),
        }
    }
}
