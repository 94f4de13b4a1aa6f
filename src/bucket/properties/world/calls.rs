//! The calls of the nodes: they take from one bucket under shared limits. Checks that every reply makes sense.

use proptest::prelude::*;
use redis::Value;

use super::{Taken, World};
use crate::bucket::properties::ledger::{Arrival, Clocks, CountedLimit};
use crate::bucket::properties::scripts::{COUNTED, SCRIPTS, TOLERANCE, bytes, list, micros, number, text};
use crate::bucket::script::{DENIED, FORGOT, GRANTED, RESTORING, Verb};
use crate::limiter::{Permit, Rule, timing};

impl World {
    pub fn take(&mut self, node: usize, want: u32, at_once: bool) -> Result<(), TestCaseError> {
        self.try_take(node, want, at_once).map(|_| ())
    }

    pub fn try_take(&mut self, node: usize, want: u32, at_once: bool) -> Result<Taken, TestCaseError> {
        self.fill()?;
        let rules = self.files[self.runs[node]].clone();
        let mut keys = ["bucket", "present", "feeding", "clock", "share"].map(str::to_owned).to_vec();
        let mut args = [i64::from(want), 10, 1000, self.lead_times[node], TOLERANCE, 0, 0, i64::MAX]
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

    /// Looks at the first limit as at a share of the first node alone, or spends permits of it. `how` is "look" or
    /// "spend".
    pub fn reserve(&mut self, how: &str, want: u32) -> Result<Taken, TestCaseError> {
        let rules = self.files[self.runs[0]].clone();
        let mut keys = vec!["clock".to_owned()];
        let mut args = vec![want.to_string(), "0".to_owned(), TOLERANCE.to_string(), how.to_owned()];
        args.push(i64::MAX.to_string());
        self.say(0..1, &rules, &mut keys, &mut args);
        for _ in 0..2 {
            let reply = self.run(&SCRIPTS.reserve, &keys, &args)?;
            match number(&reply[0]) {
                GRANTED => return Ok(Taken { count: list(&reply[8]).len(), wait: number(&reply[4]) }),
                DENIED => return Ok(Taken { count: 0, wait: number(&reply[4]) }),
                FORGOT => self.restore(0, &rules[0], &reply)?,
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

    pub(super) fn say(
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
        let look = |limit: &CountedLimit| {
            let reply = self.memory.run(COUNTED, &limit.keys, &[]).unwrap();
            let kept: Vec<Value> = list(&list(&reply)[0])
                .chunks(2)
                .filter(|pair| {
                    !["turn", "seen", "telling", "telling_for", "heard"].contains(&text(&pair[0]).as_str())
                })
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
