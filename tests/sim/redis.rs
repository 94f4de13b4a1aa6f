//! Redis as the nodes meet it: the real scripts on two keyspaces in this process, and the faults on the way to it.
//!
//! The second keyspace is used only while a failover has left two primaries.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use fastrand::Rng;
use redis::{RedisError, Value};
use refundd::bucket::SimulatedServer;
use refundd::bucket::memory::{Memory, Snapshot};
use refundd::lock::Lock;

use super::clock::{BEGAN_US, Clock};
use super::patch::{Patch, patched};

pub struct Redis {
    clock: Clock,
    /// How far Redis's clock is ahead of the world's clock, in us.
    offset: Arc<AtomicI64>,
    /// How often Redis's clock was set.
    steps: AtomicU64,
    primaries: [Memory; 2],
    /// A mistake was put into a script.
    was_patched: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    saved: Option<Snapshot>,
    forked: bool,
    patch: Option<Patch>,
    patched: HashMap<String, String>,
}

impl Redis {
    pub fn new(clock: &Clock) -> Self {
        let offset = Arc::<AtomicI64>::default();
        let memory = || {
            let (clock, offset) = (clock.clone(), Arc::clone(&offset));
            Memory::with_clock(Box::new(move || BEGAN_US + clock.now() + offset.load(Ordering::Relaxed)))
                .unwrap()
        };
        let primaries = [memory(), memory()];
        Redis {
            clock: clock.clone(),
            offset,
            steps: AtomicU64::new(0),
            primaries,
            was_patched: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Makes everything as new, for the next run.
    pub fn reset(&self, patch: Option<Patch>) {
        *self.state() = State { patch, ..State::default() };
        self.offset.store(0, Ordering::Relaxed);
        self.steps.store(0, Ordering::Relaxed);
        for memory in &self.primaries {
            memory.flush();
            memory.new_server_id();
        }
    }

    pub fn flush(&self) {
        self.primaries[0].flush();
    }

    pub fn restart(&self) {
        self.primaries[0].new_server_id();
    }

    pub fn save(&self) {
        self.state().saved = Some(self.primaries[0].snapshot());
    }

    /// Starts Redis again from its last snapshot. Returns whether there was one.
    pub fn restore(&self) -> bool {
        let state = self.state();
        state.saved.as_ref().map(|saved| self.primaries[0].restore(saved)).is_some()
    }

    /// From now on there are two primaries. The second has the data of the first, or with `behind` that of the last
    /// snapshot: replication was behind.
    pub fn fork(&self, behind: bool) {
        let mut state = self.state();
        let saved = state.saved.clone().filter(|_| behind);
        self.primaries[1].restore(&saved.unwrap_or_else(|| self.primaries[0].snapshot()));
        state.forked = true;
    }

    /// One of the two primaries goes; with `second` the second one stays.
    pub fn heal(&self, second: bool) {
        let mut state = self.state();
        if state.forked && second {
            self.primaries[0].restore(&self.primaries[1].snapshot());
        }
        state.forked = false;
    }

    /// Another server takes over, and its clock differs by `us`. With `behind` it has the last snapshot, if there is
    /// one; else it has nothing.
    pub fn taken_over(&self, behind: bool, us: i64) {
        if !(behind && self.restore()) {
            self.primaries[0].flush();
            self.primaries[0].new_server_id();
        }
        self.step_clock(us);
    }

    pub fn is_forked(&self) -> bool {
        self.state().forked
    }

    pub fn was_patched(&self) -> bool {
        self.was_patched.load(Ordering::Relaxed)
    }

    pub fn step_clock(&self, us: i64) {
        self.offset.fetch_add(us, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub fn steps_of_clock(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    fn run(
        &self,
        second: bool,
        script: &str,
        keys: &[String],
        args: &[Vec<u8>],
    ) -> Result<Value, RedisError> {
        let mut state = self.state();
        let memory = &self.primaries[usize::from(second && state.forked)];
        let Some(patch) = state.patch else { return memory.run(script, keys, args) };
        if let Some(text) = state.patched.get(script) {
            return memory.run(text, keys, args);
        }
        let changed = patched(script, patch);
        if changed.is_some() {
            self.was_patched.store(true, Ordering::Relaxed);
        }
        let text = changed.unwrap_or_else(|| script.to_owned());
        let reply = memory.run(&text, keys, args);
        state.patched.insert(script.to_owned(), text);
        reply
    }
}

/// How one node's calls fare.
#[derive(Debug, Clone)]
pub struct Fate {
    pub rng: Rng,
    /// How many of a hundred calls never arrive, and how many replies are lost.
    pub refused: u8,
    pub lost: u8,
    /// The longest way there or back, in us.
    pub slow: i64,
}

/// One node's way to Redis.
pub struct Link {
    redis: Arc<Redis>,
    /// Which primary it talks to, while there are two.
    pub second: bool,
    /// How far this node's own clock is ahead of Redis's, in us; 0 without the mistake that uses it.
    skew: i64,
    fate: Mutex<Fate>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("second", &self.second).finish_non_exhaustive()
    }
}

impl Link {
    pub fn new(redis: &Arc<Redis>, second: bool, skew: i64) -> Self {
        let fate = Fate { rng: Rng::with_seed(0), refused: 0, lost: 0, slow: 0 };
        Link { redis: Arc::clone(redis), second, skew, fate: Mutex::new(fate) }
    }

    /// Sets how the calls of the next step fare.
    pub fn fares(&self, fate: Fate) {
        *self.fate.locked() = fate;
    }
}

impl SimulatedServer for Link {
    fn run(&self, script: &str, keys: &[String], args: &[Vec<u8>]) -> Result<Value, RedisError> {
        let mut fate = self.fate.locked();
        let failed =
            || redis::make_extension_error("IOERR".to_owned(), Some("the simulation cut it".to_owned()));
        let slow = fate.slow;
        let (there, back) = (fate.rng.i64(0..=slow), fate.rng.i64(0..=slow));
        let dice = fate.rng.u8(0..100);
        self.redis.clock.pass(there);
        if dice < fate.refused {
            return Err(failed());
        }
        self.redis.offset.fetch_add(self.skew, Ordering::Relaxed);
        let reply = self.redis.run(self.second, script, keys, args);
        self.redis.offset.fetch_sub(self.skew, Ordering::Relaxed);
        self.redis.clock.pass(back);
        if dice < fate.refused + fate.lost {
            return Err(failed());
        }
        reply
    }

    fn now(&self) -> Instant {
        self.redis.clock.instant()
    }
}
