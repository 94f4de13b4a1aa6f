//! The census: counts by channel and state, for people, pages and metrics.
//!
//! What ended long ago is kept as a number (`count_ended`); the rest is counted by small indexes. That still reads
//! an entry for each refund that waits, so callers keep what they got for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::Row;

use super::connections::{Ask, Run};
use super::{Doing, Store, StoreError, timestamp};
use crate::refund::State;

/// How one channel stands.
#[derive(Debug, Clone)]
pub struct ChannelCensus {
    pub channel: String,
    pub counts: BTreeMap<State, u64>,
    /// How long the longest due refund has been due.
    pub oldest_ready_age: Option<Duration>,
    /// Sends of which a first byte was written, in the last minute.
    pub sends_last_minute: u64,
    /// Reason, who, since when.
    pub paused: Option<(String, String, Timestamp)>,
    pub cool_until: Option<(Timestamp, String)>,
    /// The share of its rate it goes at for now, in percent, after the bank asked for slower.
    pub slowed: Option<u32>,
    /// Refunds that will pass their deadlines at the channel's rate, and the first of those.
    pub late: Option<(u64, Timestamp)>,
    /// The backlog is at its bound.
    pub full: bool,
    /// The living nodes that run it.
    pub run_by: Vec<String>,
}

const CENSUS: &str = include_str!("sql/census.sql");

const COUNT_ENDED: &str = "select refundd.count_ended()";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("census", CENSUS), ("count_ended", COUNT_ENDED)];

impl Store {
    /// Counts what ended since the last time, for good.
    pub async fn count_ended(&self) -> Result<(), StoreError> {
        sqlx::query(COUNT_ENDED).run(&self.db.patient()).await.doing("count what ended")?;
        Ok(())
    }

    /// Counts everything.
    pub async fn census(&self) -> Result<Vec<ChannelCensus>, StoreError> {
        let rows = sqlx::query(CENSUS).all(&self.db.patient()).await.doing("count refunds")?;
        Ok(rows
            .iter()
            .map(|row| {
                let counts: sqlx::types::Json<BTreeMap<State, u64>> = row.get("counts");
                let oldest = row.get::<Option<i64>, _>("oldest_us").and_then(|us| u64::try_from(us).ok());
                ChannelCensus {
                    channel: row.get("channel"),
                    counts: counts.0,
                    oldest_ready_age: oldest.map(Duration::from_micros),
                    sends_last_minute: u64::try_from(row.get::<i64, _>("sent")).unwrap_or(0),
                    paused: timestamp(row, "paused_us")
                        .map(|at| (row.get("pause_reason"), row.get("paused_by"), at)),
                    cool_until: timestamp(row, "cool_us").map(|at| (at, row.get("cool_reason"))),
                    slowed: row
                        .get::<Option<i32>, _>("slowed")
                        .and_then(|percent| u32::try_from(percent).ok()),
                    late: timestamp(row, "late_us")
                        .map(|from| (u64::try_from(row.get::<i64, _>("late")).unwrap_or(0), from)),
                    full: row.get("is_full"),
                    run_by: row.get("run_by"),
                }
            })
            .collect())
    }
}
