//! The suspensions of channels: paused by a person, cooling or slowed after a bank's answer.
//!
//! Nothing here stops a request: the claim reads the suspension, and nodes read it to ask for no permits.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::Row;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, micros, timestamp};
use crate::refund::ChannelName;

/// A channel that is paused, cooling or slowed.
#[derive(Debug, Clone)]
pub struct Suspension {
    pub channel: String,
    /// The reason, the person or program that paused it, and since when.
    pub paused: Option<(String, String, Timestamp)>,
    /// How long it still cools, and the bank's answer.
    pub cooling: Option<(Duration, String)>,
    /// The part of its rate that the channel may use now, in percent; `None` for all of it.
    pub slowed: Option<u32>,
}

/// A bank's answer that asks for fewer requests.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// The wait that the bank named, if it named one.
    pub named: Option<Duration>,
    /// The bank's answer, for people.
    pub reason: &'a str,
    /// Whether the channel's rate is lowered, too.
    pub slow: bool,
    /// The time between two permits of the channel's shortest limit; `None` where it is unlimited.
    pub spacing: Option<Duration>,
    /// The longest pause if the bank names no wait.
    pub cool_down: Duration,
    /// How long ago the refused request began. If it began before the last pause ended, its refusal is not a new one.
    pub age: Duration,
}

const SUSPENSIONS: &str = "
    select channel, pause_reason, paused_by, (extract(epoch from paused_at) * 1000000)::bigint as paused_us,
           (extract(epoch from cool_until - now()) * 1000000)::bigint as cooling_us, cool_reason,
           refundd.slow_share(slow_percent, slow_ceiling, slow_step_us, slow_since) as slowed
      from refundd.channels where paused_at is not null or cool_until is not null or slow_percent is not null";

const PAUSE: Statement = statement!(
    "
    update refundd.channels set paused_at = now(), pause_reason = :reason, paused_by = :who
     where channel = :channel and (paused_at is null or not :only_first) returning channel"
);

const RESUME: &str = "
    update refundd.channels set paused_at = null, pause_reason = null, paused_by = null
     where channel = $1 returning channel";

const COOL: &str = "
    update refundd.channels
       set cool_until = now() + $2 * interval '1 microsecond', cool_reason = $3
     where channel = $1 and (cool_until is null or cool_until < now() + $2 * interval '1 microsecond')
    returning channel";

const REFUSED: Statement = statement!(include_str!("sql/refused.sql"));

// Keeps the cooling for thirty steps after its end: `refused` takes a refusal within them for a repeated one.
const CLEAR_COOLING: &str = "
    update refundd.channels
       set cool_until = null, cool_reason = null, refusals = 0,
           slow_percent = case when refundd.slow_share(slow_percent, slow_ceiling, slow_step_us, slow_since) is not null then slow_percent end,
           slow_since = case when refundd.slow_share(slow_percent, slow_ceiling, slow_step_us, slow_since) is not null then slow_since end
     where cool_until < now() - greatest(interval '10 seconds', coalesce(slow_step_us, 0) * 30 * interval '1 microsecond')
        or (slow_percent is not null and cool_until is null
            and refundd.slow_share(slow_percent, slow_ceiling, slow_step_us, slow_since) is null)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("suspensions", SUSPENSIONS),
    ("pause", PAUSE.sql),
    ("resume", RESUME),
    ("cool", COOL),
    ("refused", REFUSED.sql),
    ("clear_cooling", CLEAR_COOLING),
];

impl Store {
    /// The channels that are paused, cooling or slowed.
    pub async fn suspensions(&self) -> Result<Vec<Suspension>, StoreError> {
        let rows = sqlx::query(SUSPENSIONS).all(&self.db).await.doing("read the suspensions of channels")?;
        Ok(rows
            .iter()
            .map(|row| {
                let left = row.get::<Option<i64>, _>("cooling_us").and_then(|us| u64::try_from(us).ok());
                Suspension {
                    channel: row.get("channel"),
                    paused: timestamp(row, "paused_us")
                        .map(|at| (row.get("pause_reason"), row.get("paused_by"), at)),
                    slowed: row
                        .get::<Option<i32>, _>("slowed")
                        .and_then(|percent| u32::try_from(percent).ok()),
                    cooling: left
                        .filter(|us| *us > 0)
                        .map(|us| (Duration::from_micros(us), row.get("cool_reason"))),
                }
            })
            .collect())
    }

    /// Pauses a channel on all nodes. Answers `false` if the channel does not exist, or, with `only_first`, if it was
    /// paused already.
    pub async fn pause(
        &self,
        channel: &str,
        reason: &str,
        who: &str,
        only_first: bool,
    ) -> Result<bool, StoreError> {
        let query = bind!(PAUSE, channel: channel, reason: reason, who: who, only_first: only_first);
        Ok(query.maybe(&self.db).await.doing("pause a channel")?.is_some())
    }

    /// Resumes a paused channel; `false` if the channel does not exist.
    pub async fn resume(&self, channel: &str) -> Result<bool, StoreError> {
        let row = sqlx::query(RESUME).bind(channel).maybe(&self.db).await.doing("resume a channel")?;
        Ok(row.is_some())
    }

    /// Cools a channel on all nodes for `span`; `false` if it cools for longer already.
    pub async fn cool(
        &self,
        channel: &ChannelName,
        span: Duration,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let row = sqlx::query(COOL)
            .bind(channel.as_str())
            .bind(micros(span))
            .bind(reason)
            .maybe(&self.db)
            .await
            .doing("cool a channel")?;
        Ok(row.is_some())
    }

    /// Writes that a bank asked for fewer requests. The channel cools on all nodes and then runs at a lower rate.
    /// Answers how long it cools from now on, and whether the refusal is a new one; `None` if the channel does not
    /// exist.
    pub async fn refused(
        &self,
        channel: &ChannelName,
        refusal: &Refusal<'_>,
    ) -> Result<Option<(Duration, bool)>, StoreError> {
        let query = bind!(
            REFUSED,
            channel: channel.as_str(),
            named_us: refusal.named.map(micros),
            reason: refusal.reason,
            slows: refusal.slow,
            spacing_us: refusal.spacing.map(|spacing| micros(spacing).max(1)),
            cool_down_us: micros(refusal.cool_down),
            age_us: micros(refusal.age),
        );
        let row = query.maybe(&self.db).await.doing("write that a bank asked for fewer requests")?;
        Ok(row.map(|row| {
            let left = u64::try_from(row.get::<i64, _>("left_us")).unwrap_or(0);
            (Duration::from_micros(left), !row.get::<bool, _>("is_same"))
        }))
    }

    /// Clears cooling that ended some time ago, and slowing that is over.
    pub async fn clear_cooling(&self) -> Result<(), StoreError> {
        sqlx::query(CLEAR_COOLING).run(&self.db).await.doing("clear cooling that is over")?;
        Ok(())
    }
}
