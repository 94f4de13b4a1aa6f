//! The clock witness compares Postgres's clock with the node's monotonic clock. So a step of Postgres's clock ends no
//! lease, deadline or grace too early. Nor does it let a node send again after the bank forgot the request id.
//!
//! Each node reads Postgres's clock with every heartbeat and carries the reading on by its own monotonic clock.
//! Statements that decide by a period get the carried time, too, and use the more careful of both times. So a step
//! does no harm even before a node notices it. The node that notices a step writes it to `refundd.clock_steps`.
//! Statements then measure without the step each period that began before it
//! ([decisions/0012](../../docs/decisions/0012-postgres-clock-has-witnesses.md)).
//!
//! The witness does not know the right time. It knows only how much time passed. Its monotonic clock is the
//! [steady](crate::steady) one: a correction of the node's own clock must not look like a step of Postgres's clock.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sqlx::Row;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, micros};
use crate::lock::Lock;
use crate::steady;

/// Postgres's clock as one node has observed it. Cheap to clone.
#[derive(Clone)]
pub struct ClockWitness {
    /// `None` until the node has read Postgres's clock and compared it with Redis's clock.
    carried: Arc<Mutex<Option<Carried>>>,
    monotonic: Arc<dyn Fn() -> Instant + Send + Sync>,
}

/// A reading of Postgres's clock, carried on by a monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Carried {
    /// Postgres's time at `at`, in us since 1970.
    us: i64,
    at: Instant,
    /// The number of the last written step that `us` includes.
    steps: i64,
}

/// One reading of Postgres's clock and of the written steps. `redis_ahead_us` is how far Redis's clock was ahead when
/// a node last noted it.
#[derive(Debug, Clone, Copy)]
struct Reading {
    us: i64,
    started: Instant,
    answered: Instant,
    steps: i64,
    /// The sums of the steps that nodes wrote after the last step that this node knows.
    forward_us: i64,
    back_us: i64,
    redis_ahead_us: Option<i64>,
}

/// A reading of Redis's clock in us since 1970, and its time on the witness's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct RedisTime {
    pub us: i64,
    pub at: Instant,
}

/// A step of Postgres's clock that this node noticed and wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStep {
    /// How far the clock stepped: forward if positive.
    pub by_us: i64,
    /// The clock that showed the step: `redis` or `monotonic`.
    pub witness: &'static str,
}

const READ: &str = "
    select (extract(epoch from clock_timestamp()) * 1000000)::bigint as clock_us, coalesce(max(step), 0) as steps,
           coalesce(sum(extract(epoch from step_by) * 1000000) filter (where step > $1 and step_by > interval '0'), 0)::bigint as forward_us,
           coalesce(sum(extract(epoch from step_by) * 1000000) filter (where step > $1 and step_by < interval '0'), 0)::bigint as back_us,
           (select (extract(epoch from redis_ahead) * 1000000)::bigint from refundd.clock) as redis_ahead_us
      from refundd.clock_steps";

const STEPPED: Statement = statement!(include_str!("sql/clock_stepped.sql"));

const NOTE: &str = "
    insert into refundd.clock as c (redis_ahead) values ($1 * interval '1 microsecond')
        on conflict (is_only) do update set redis_ahead = excluded.redis_ahead, noted_at = clock_timestamp()";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("read_clock", READ), ("clock_stepped", STEPPED.sql), ("note_redis_clock", NOTE)];

impl Default for ClockWitness {
    fn default() -> Self {
        Self::by(Arc::new(steady::now))
    }
}

impl fmt::Debug for ClockWitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClockWitness").field(&*self.carried()).finish()
    }
}

impl ClockWitness {
    /// A greater difference is a step. The carried time follows smaller differences slowly.
    pub const TOLERANCE: Duration = Duration::from_secs(1);
    /// A clock under correction runs too fast or too slow by at most one part in so many.
    const SLEW: i64 = 1000;

    /// A witness with another monotonic clock than that of this process.
    #[doc(hidden)]
    #[must_use]
    pub fn by(monotonic: Arc<dyn Fn() -> Instant + Send + Sync>) -> Self {
        ClockWitness { carried: Arc::default(), monotonic }
    }

    /// The witness as it is now, with its clock stopped at `at`: for a statement that starts at `at` and runs later. For the
    /// simulation.
    #[doc(hidden)]
    #[must_use]
    pub fn as_of(&self, at: Instant) -> ClockWitness {
        let carried = *self.carried();
        ClockWitness { carried: Arc::new(Mutex::new(carried)), monotonic: Arc::new(move || at) }
    }

    /// Postgres's time as this node carried it on, in us since 1970; `None` before the first comparison.
    pub fn now_us(&self) -> Option<i64> {
        let carried = *self.carried();
        carried.map(|carried| carried.on((self.monotonic)()))
    }

    /// Whether the witness needs Redis's clock before any statement may decide by a period.
    pub fn needs_redis(&self) -> bool {
        self.carried().is_none()
    }

    fn carried(&self) -> MutexGuard<'_, Option<Carried>> {
        self.carried.locked()
    }

    fn steps(&self) -> i64 {
        self.carried().map_or(0, |carried| carried.steps)
    }

    fn begin_anew(&self, reading: &Reading, steps: i64) {
        *self.carried() = Some(Carried { us: reading.us, at: reading.answered, steps });
    }

    /// Compares a reading with the carried time. Answers how far the clock stepped, if no node has written that step.
    fn compare(&self, reading: &Reading) -> Option<i64> {
        let carried = (*self.carried())?;
        let tolerance = micros(Self::TOLERANCE);
        let (low, high) = (carried.on(reading.started), carried.on(reading.answered));
        // The largest step that the reading allows, in either direction.
        let by = if reading.us > high + tolerance {
            reading.us - low
        } else if reading.us < low - tolerance {
            reading.us - high
        } else {
            // The carried time follows no faster than a clock under correction runs, so that many small steps add up
            // to one that shows.
            let slew = micros(reading.answered.saturating_duration_since(carried.at)) / Self::SLEW;
            let latest = reading.us + micros(reading.answered.saturating_duration_since(reading.started));
            let us = if high > latest {
                latest.max(high - slew)
            } else if high < reading.us {
                reading.us.min(high + slew)
            } else {
                high
            };
            *self.carried() = Some(Carried { us, at: reading.answered, steps: reading.steps });
            return None;
        };
        let left = if by > 0 { by - reading.forward_us } else { by - reading.back_us };
        // Other nodes have written this step already.
        if left.signum() != by.signum() || left.abs() <= tolerance {
            self.begin_anew(reading, reading.steps);
            return None;
        }
        Some(left)
    }
}

impl Carried {
    /// Postgres's time at `at`, in us since 1970.
    fn on(&self, at: Instant) -> i64 {
        match at.checked_duration_since(self.at) {
            Some(passed) => self.us + micros(passed),
            None => self.us - micros(self.at.saturating_duration_since(at)),
        }
    }
}

impl Reading {
    /// How far Redis's clock is ahead of Postgres's.
    fn ahead_us(&self, redis: RedisTime) -> i64 {
        let carried = Carried { us: self.us, at: self.answered, steps: 0 };
        redis.us - carried.on(redis.at)
    }
}

impl Store {
    /// The same store for one node: its statements that decide by a period use this witness, too.
    #[must_use]
    pub fn witnessed_by(self, witness: ClockWitness) -> Store {
        Store { witness: Some(witness), ..self }
    }

    /// The witness of this node; `None` in commands of people.
    pub fn clock_witness(&self) -> Option<&ClockWitness> {
        self.witness.as_ref()
    }

    /// Postgres's time as the witness carries it, for a statement; `Err` before the first comparison. Commands of
    /// people have no witness, because they decide by no period.
    pub(super) fn witnessed_us(&self) -> Result<Option<i64>, Unwitnessed> {
        match &self.witness {
            None => Ok(None),
            Some(witness) => witness.now_us().map(Some).ok_or(Unwitnessed),
        }
    }

    /// Reads Postgres's clock and compares it; answers a step that this call wrote. `redis` is needed while
    /// [`ClockWitness::needs_redis`] is true, if an earlier node noted Redis's clock. With `note`, the call notes how
    /// far Redis's clock is ahead, for nodes that start later.
    pub async fn watch_clock(
        &self,
        node: &str,
        redis: Option<RedisTime>,
        note: bool,
    ) -> Result<Option<ClockStep>, StoreError> {
        let Some(witness) = &self.witness else { return Ok(None) };
        let started = (witness.monotonic)();
        let row =
            sqlx::query(READ).bind(witness.steps()).one(&self.db).await.doing("read Postgres's clock")?;
        let reading = Reading {
            us: row.get("clock_us"),
            started,
            answered: (witness.monotonic)(),
            steps: row.get("steps"),
            forward_us: row.get("forward_us"),
            back_us: row.get("back_us"),
            redis_ahead_us: row.get("redis_ahead_us"),
        };
        let ahead_us = redis.map(|redis| reading.ahead_us(redis));
        let (by_us, saw) = if witness.needs_redis() {
            match (reading.redis_ahead_us, ahead_us) {
                // No node has noted Redis's clock: this database is new.
                (None, _) => (None, "redis"),
                // No statement may decide by a period until Redis's clock can be read.
                (Some(_), None) => return Ok(None),
                (Some(was), Some(is)) => (Some(was - is), "redis"),
            }
        } else {
            (witness.compare(&reading), "monotonic")
        };
        let tolerance = micros(ClockWitness::TOLERANCE);
        let Some(by_us) = by_us.filter(|by| by.abs() > tolerance) else {
            if witness.needs_redis() {
                witness.begin_anew(&reading, reading.steps);
            }
            if let Some(ahead_us) = ahead_us.filter(|_| note) {
                sqlx::query(NOTE)
                    .bind(ahead_us)
                    .run(&self.db)
                    .await
                    .doing("note how far Redis's clock is ahead")?;
            }
            return Ok(None);
        };
        let query = bind!(
            STEPPED,
            last_step: reading.steps,
            step_us: by_us,
            node: node,
            witness: saw,
            redis_ahead_us: ahead_us,
        );
        let written = query.maybe(&self.db).await.doing("write down a step of Postgres's clock")?;
        // Another node wrote the step first; the next reading includes it.
        let Some(row) = written else { return Ok(None) };
        witness.begin_anew(&reading, row.get("step"));
        Ok(Some(ClockStep { by_us, witness: saw }))
    }
}

/// Stands for Postgres's time in a statement before the first comparison, in us since 1970. Of two times, a period that must
/// not end early goes by the earlier one, so none ends. What goes by the later one goes by Postgres's clock.
pub(super) const LONG_AGO: Option<i64> = Some(0);

/// The node has not compared Postgres's clock with another clock yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unwitnessed;
