//! Witnesses Postgres's clock: what waits for a period is not decided by that clock alone.
//!
//! Each node reads Postgres's clock with every heartbeat and carries the reading on by its own monotonic clock.
//! Statements that decide by a period get that time, too, and use the more careful of both: so a step does no harm
//! even before it is noticed. A step that is noticed is written to `refundd.clock_steps`, and periods that began
//! before it are measured without it ([decisions/0012](../../docs/decisions/0012-postgres-clock-has-witnesses.md)).
//!
//! It never says what time it is, only how much time went by.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sqlx::Row;

use super::connections::{Ask, Run};
use super::{Doing, Store, StoreError};
use crate::lock::Lock;

/// What one node knows of Postgres's clock. Cheap to clone.
#[derive(Clone)]
pub struct ClockWitness {
    /// `None` until the clock was read and compared with Redis's.
    carried: Arc<Mutex<Option<Carried>>>,
    monotonic: Arc<dyn Fn() -> Instant + Send + Sync>,
}

/// Postgres's time, carried on by a monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Carried {
    us: i64,
    at: Instant,
    /// The last step that was written down and is accounted for.
    steps: i64,
}

/// What Postgres's clock showed, and how far Redis's was ahead of it when that was last noted.
#[derive(Debug, Clone, Copy)]
struct Reading {
    us: i64,
    asked: Instant,
    answered: Instant,
    steps: i64,
    /// Written down by anybody since the last step that this node knows.
    forward_us: i64,
    back_us: i64,
    redis_ahead_us: Option<i64>,
}

/// What Redis's clock showed, and when on this node's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct RedisTime {
    pub us: i64,
    pub at: Instant,
}

/// A step of Postgres's clock that this node saw and wrote down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStep {
    pub by_us: i64,
    pub witness: &'static str,
}

const READ: &str = "
    select (extract(epoch from clock_timestamp()) * 1000000)::bigint as clock_us, coalesce(max(step), 0) as steps,
           coalesce(sum(extract(epoch from step_by) * 1000000) filter (where step > $1 and step_by > interval '0'), 0)::bigint as forward_us,
           coalesce(sum(extract(epoch from step_by) * 1000000) filter (where step > $1 and step_by < interval '0'), 0)::bigint as back_us,
           (select (extract(epoch from redis_ahead) * 1000000)::bigint from refundd.clock) as redis_ahead_us
      from refundd.clock_steps";

const STEPPED: &str = include_str!("sql/clock_stepped.sql");

const NOTE: &str = "
    insert into refundd.clock as c (redis_ahead) values ($1 * interval '1 microsecond')
        on conflict (is_only) do update set redis_ahead = excluded.redis_ahead, noted_at = clock_timestamp()";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("read_clock", READ), ("clock_stepped", STEPPED), ("note_redis_clock", NOTE)];

impl Default for ClockWitness {
    fn default() -> Self {
        Self::by(Arc::new(Instant::now))
    }
}

impl fmt::Debug for ClockWitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClockWitness").field(&*self.carried()).finish()
    }
}

impl ClockWitness {
    /// A difference beyond this is a step. Smaller ones are caught up with slowly.
    pub const TOLERANCE: Duration = Duration::from_secs(1);
    /// A clock that is being corrected runs this much too fast or too slow at most: one part in so many.
    const SLEW: i64 = 1000;

    /// With another monotonic clock than this process's.
    #[doc(hidden)]
    #[must_use]
    pub fn by(monotonic: Arc<dyn Fn() -> Instant + Send + Sync>) -> Self {
        ClockWitness { carried: Arc::default(), monotonic }
    }

    /// As it stands, for a statement that is said at that moment and runs later.
    #[doc(hidden)]
    #[must_use]
    pub fn as_of(&self, at: Instant) -> ClockWitness {
        let carried = *self.carried();
        ClockWitness { carried: Arc::new(Mutex::new(carried)), monotonic: Arc::new(move || at) }
    }

    /// Postgres's time as this node carried it on, in microseconds since 1970; `None` while it has not been compared.
    pub fn now_us(&self) -> Option<i64> {
        let carried = *self.carried();
        carried.map(|carried| carried.on((self.monotonic)()))
    }

    /// Whether Redis's clock is needed before anything can be decided.
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

    /// Compares a reading with what was carried on; answers by how much the clock stepped, if nobody wrote that down yet.
    fn hear(&self, reading: &Reading) -> Option<i64> {
        let carried = (*self.carried())?;
        let tolerance = micros(Self::TOLERANCE);
        let (low, high) = (carried.on(reading.asked), carried.on(reading.answered));
        // Each way as far as it may have been.
        let by = if reading.us > high + tolerance {
            reading.us - low
        } else if reading.us < low - tolerance {
            reading.us - high
        } else {
            // Not further than a clock that goes right could have come, so that small steps add up to one that shows.
            let slew = micros(reading.answered.saturating_duration_since(carried.at)) / Self::SLEW;
            let latest = reading.us + micros(reading.answered.saturating_duration_since(reading.asked));
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
        // Others saw it first.
        if left.signum() != by.signum() || left.abs() <= tolerance {
            self.begin_anew(reading, reading.steps);
            return None;
        }
        Some(left)
    }
}

impl Carried {
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
    /// The same store, for one node: what waits for a period is decided by this witness, too.
    #[must_use]
    pub fn witnessed_by(self, witness: ClockWitness) -> Store {
        Store { witness: Some(witness), ..self }
    }

    pub fn clock_witness(&self) -> Option<&ClockWitness> {
        self.witness.as_ref()
    }

    /// Postgres's time as the witness has it, for a statement; `Err` while the witness cannot say. Commands of
    /// people have no witness and no period to decide by.
    pub(super) fn witnessed_us(&self) -> Result<Option<i64>, Unwitnessed> {
        match &self.witness {
            None => Ok(None),
            Some(witness) => witness.now_us().map(Some).ok_or(Unwitnessed),
        }
    }

    /// Reads Postgres's clock and compares it. `redis` is needed where [`ClockWitness::needs_redis`] says so, if
    /// nodes had one before; with `note`, how it stands to Postgres's is written down for nodes that come later.
    pub async fn watch_clock(
        &self,
        node: &str,
        redis: Option<RedisTime>,
        note: bool,
    ) -> Result<Option<ClockStep>, StoreError> {
        let Some(witness) = &self.witness else { return Ok(None) };
        let asked = (witness.monotonic)();
        let row =
            sqlx::query(READ).bind(witness.steps()).one(&self.db).await.doing("read Postgres's clock")?;
        let reading = Reading {
            us: row.get("clock_us"),
            asked,
            answered: (witness.monotonic)(),
            steps: row.get("steps"),
            forward_us: row.get("forward_us"),
            back_us: row.get("back_us"),
            redis_ahead_us: row.get("redis_ahead_us"),
        };
        let ahead_us = redis.map(|redis| reading.ahead_us(redis));
        let (by_us, saw) = if witness.needs_redis() {
            match (reading.redis_ahead_us, ahead_us) {
                // Nobody noted anything before: this database is new.
                (None, _) => (None, "redis"),
                // Nothing may be decided until Redis's clock can be seen.
                (Some(_), None) => return Ok(None),
                (Some(was), Some(is)) => (Some(was - is), "redis"),
            }
        } else {
            (witness.hear(&reading), "monotonic")
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
                    .doing("note how Redis's clock stands")?;
            }
            return Ok(None);
        };
        let written: Option<i64> = sqlx::query_scalar(STEPPED)
            .bind(reading.steps)
            .bind(by_us)
            .bind(node)
            .bind(saw)
            .bind(ahead_us)
            .maybe(&self.db)
            .await
            .doing("write down a step of Postgres's clock")?;
        // If another node was first, the next reading shows it.
        let Some(step) = written else { return Ok(None) };
        witness.begin_anew(&reading, step);
        Ok(Some(ClockStep { by_us, witness: saw }))
    }
}

/// Postgres's clock has not been compared with another yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unwitnessed;

fn micros(span: Duration) -> i64 {
    super::micros(span)
}
