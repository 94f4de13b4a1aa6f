//! The census counts the refunds of each channel and state, for people, pages and metrics.
//!
//! `count_ended` keeps the number of refunds that ended earlier; the census counts the others by small indexes. It
//! reads an index entry for each refund that waits, so callers keep a census for a while.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use sqlx::Row;

use super::connections::{Ask, Run};
use super::suspensions::{SuspendedBy, Suspension};
use super::{Doing, Store, StoreError, timestamp};
use crate::refund::State;

/// The counts and the status of one channel.
#[derive(Debug, Clone, Default)]
pub struct ChannelCensus {
    pub channel: String,
    pub counts: BTreeMap<State, u64>,
    /// How long ago the oldest due refund became due, or was saved if that was later. A lower bound where producers save refunds with
    /// an earlier due time.
    pub oldest_ready_age: Option<Duration>,
    /// Sends of the last minute with a first byte.
    pub sends_last_minute: u64,
    /// Those that the bank executed or accepted.
    pub accepted_last_minute: u64,
    /// Those that the bank executed or accepted in the last ten seconds.
    pub accepted_last_seconds: u64,
    /// The bank refuses every send for more than a minute, or asked for one wait that has lasted for ten.
    pub nothing_accepted: Option<NothingAccepted>,
    /// The bound of the backlog, as a node published it.
    pub max_backlog: Option<u64>,
    /// Everything that suspends the channel; the order is that of [`SuspendedBy`].
    pub suspensions: Vec<Suspension>,
    /// The part of its rate that the channel may use now, in percent; `None` for all of it.
    pub slowed: Option<u32>,
    /// How many refunds will miss their deadlines at the channel's rate, and the first of these deadlines.
    pub late: Option<(u64, Timestamp)>,
    /// Whether the backlog is at its bound.
    pub full: bool,
    /// The living nodes that run the channel.
    pub run_by: Vec<String>,
    /// No node has run it for a while: new refunds for it are refused.
    pub is_retired: bool,
    /// How long until the backlog is gone, where a forecast was made ([`crate::desk::census`]) and there is an end.
    pub drain: Option<Duration>,
    /// The forecast was made while the channel was stopped, and it is not stopped any more.
    pub forecast_is_old: bool,
}

/// The sends since the last one that the bank did not refuse: it executed none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NothingAccepted {
    /// The first of them.
    pub since: Timestamp,
    pub lasts: Duration,
    /// Whether it may have begun earlier: the census looks back for half an hour at most, over the last 200,000 lines of the journal.
    pub is_older: bool,
    pub sends: u64,
    /// To how many of them the bank answered that refundd should wait.
    pub asked_to_wait: u64,
}

impl ChannelCensus {
    /// Sends a second that the bank executed or accepted, and the seconds over which they were counted. Ten seconds show a change
    /// quickly. A channel with less than one send a second needs a minute to show a pace, unless it is stopped.
    pub fn observed(&self) -> (f64, u32) {
        let is_stopped = self.suspensions.iter().any(|one| one.by != SuspendedBy::Cooling);
        if self.accepted_last_minute >= 60 || is_stopped {
            (self.accepted_last_seconds as f64 / 10.0, 10)
        } else {
            (self.accepted_last_minute as f64 / 60.0, 60)
        }
    }

    /// Whether something may still happen to the channel: it is not retired, or a refund of it has not ended.
    pub fn is_in_use(&self) -> bool {
        !self.is_retired || self.counts.iter().any(|(state, count)| *count > 0 && !state.is_end())
    }

    /// What suspends the channel for this cause.
    pub fn suspension(&self, by: SuspendedBy) -> Option<&Suspension> {
        self.suspensions.iter().find(|one| one.by == by)
    }

    /// A person's pause of everything or of the channel, or else the bank's refusal of the credentials.
    pub fn pause(&self) -> Option<&Suspension> {
        use SuspendedBy::{All, Credentials, Person};
        self.suspensions.iter().find(|one| matches!(one.by, All | Person | Credentials))
    }

    /// Takes what suspends the channel from a newer read, [`Store::suspensions`].
    pub fn note_suspensions(&mut self, suspensions: Vec<Suspension>) {
        self.suspensions = suspensions;
        self.suspensions.sort_by_key(|one| one.by);
    }
}

const CENSUS: &str = include_str!("sql/census.sql");

const COUNT_ENDED: &str = "select refundd.count_ended()";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("census", CENSUS), ("count_ended", COUNT_ENDED)];

impl Store {
    /// Adds to the kept counts the refunds that ended since the last call.
    pub async fn count_ended(&self) -> Result<(), StoreError> {
        sqlx::query(COUNT_ENDED).run(&self.db.patient()).await.doing("count ended refunds")?;
        Ok(())
    }

    /// Counts the refunds of every channel that nodes run or that has refunds.
    pub async fn census(&self) -> Result<Vec<ChannelCensus>, StoreError> {
        let rows = sqlx::query(CENSUS).all(&self.db.patient()).await.doing("count refunds")?;
        let suspended = self.suspensions().await?.suspensions;
        let mut census: Vec<ChannelCensus> = rows
            .iter()
            .map(|row| {
                let counts: sqlx::types::Json<BTreeMap<State, u64>> = row.get("counts");
                let oldest = row.get::<Option<i64>, _>("oldest_us").and_then(|us| u64::try_from(us).ok());
                let number = |column| u64::try_from(row.get::<i64, _>(column)).unwrap_or(0);
                let lasts =
                    row.get::<Option<i64>, _>("refusing_for_us").and_then(|us| u64::try_from(us).ok());
                let nothing_accepted =
                    timestamp(row, "refusing_us").zip(lasts).map(|(since, lasts)| NothingAccepted {
                        since,
                        lasts: Duration::from_micros(lasts),
                        is_older: row.get("is_older"),
                        sends: number("refused"),
                        asked_to_wait: number("waits"),
                    });
                ChannelCensus {
                    channel: row.get("channel"),
                    counts: counts.0,
                    oldest_ready_age: oldest.map(Duration::from_micros),
                    sends_last_minute: number("sent"),
                    accepted_last_minute: number("accepted"),
                    accepted_last_seconds: number("accepted_lately"),
                    nothing_accepted,
                    max_backlog: row
                        .get::<Option<i64>, _>("max_backlog")
                        .and_then(|most| u64::try_from(most).ok()),
                    suspensions: Vec::new(),
                    slowed: row
                        .get::<Option<i32>, _>("slowed")
                        .and_then(|percent| u32::try_from(percent).ok()),
                    late: timestamp(row, "late_us").map(|from| (number("late"), from)),
                    full: row.get("is_full"),
                    run_by: row.get("run_by"),
                    is_retired: row.get("is_retired"),
                    drain: None,
                    forecast_is_old: false,
                }
            })
            .collect();
        let mut by_channel: HashMap<Option<String>, Vec<Suspension>> = HashMap::new();
        for one in suspended {
            by_channel.entry(one.channel.clone()).or_default().push(one);
        }
        let of_all = by_channel.remove(&None).unwrap_or_default();
        for channel in &mut census {
            let own = by_channel.remove(&Some(channel.channel.clone())).unwrap_or_default();
            channel.note_suspensions(of_all.iter().cloned().chain(own).collect());
        }
        Ok(census)
    }
}
