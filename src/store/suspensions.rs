//! The suspensions of channels: paused by a person, suspended by refundd itself, cooling or slowed after a bank's answer.
//!
//! Each cause is a record of its own, and ending one leaves the others. Triggers write each change to `refundd.events`.
//! Nothing here stops a request: the claim reads the suspensions, and nodes read them to ask for no permits.

mod by_people;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, statement};
use super::witness::LONG_AGO;
use super::{Doing, Store, StoreError, timestamp};

pub use by_people::{Pause, Paused, Resumed, Seen, SuspensionEnd};

/// What suspends a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendedBy {
    /// A person paused all channels.
    All,
    /// A person paused the channel.
    Person,
    /// The bank does not take the credentials.
    Credentials,
    /// Outcomes of one kind came one after the other. Sends stop; inquiries go on.
    Breaker,
    /// The bank asked for fewer requests.
    Cooling,
}

impl SuspendedBy {
    /// The text in the database, in answers and in `refundd status --json`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            SuspendedBy::All => "all",
            SuspendedBy::Person => "person",
            SuspendedBy::Credentials => "credentials",
            SuspendedBy::Breaker => "breaker",
            SuspendedBy::Cooling => "cooling",
        }
    }

    fn read(text: &str) -> Option<SuspendedBy> {
        use SuspendedBy::{All, Breaker, Cooling, Credentials, Person};
        [All, Person, Credentials, Breaker, Cooling].into_iter().find(|by| by.as_str() == text)
    }
}

impl fmt::Display for SuspendedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One cause that suspends one channel, or all of them.
#[derive(Debug, Clone)]
pub struct Suspension {
    /// The channel; `None` for all channels.
    pub channel: Option<String>,
    pub by: SuspendedBy,
    /// A person's words, or the bank's answer.
    pub reason: String,
    /// The person or the process; empty for cooling.
    pub who: String,
    /// `None` for cooling.
    pub since: Option<Timestamp>,
    /// When it ends by itself; `None` if somebody must end it. Of a cooling that a person ended, `None` if only the lower rate
    /// was left.
    pub until: Option<Timestamp>,
    /// The time to that end.
    pub left: Option<Duration>,
    /// The time until one node may probe the bank; only for the breaker.
    pub probe_in: Option<Duration>,
}

/// What suspends and slows channels now.
#[derive(Debug, Clone, Default)]
pub struct Suspended {
    pub suspensions: Vec<Suspension>,
    /// The part of its rate that each slowed channel may use now, in percent.
    pub slowed: Vec<(String, u32)>,
}

/// The name of all channels together in `refundd.suspensions`; no channel has it.
const ALL_CHANNELS: &str = "*";

const SUSPENSIONS: Statement = statement!(include_str!("sql/suspensions.sql"));

pub(super) const SUSPEND: Statement = statement!(
    "
    insert into refundd.suspensions as s (channel, source, until, reason, who, kind, probe_at)
    values (:channel, :source, now() + :lasts_us::bigint * interval '1 microsecond', :reason, :who, :kind,
            now() + :probe_us::bigint * interval '1 microsecond')
        on conflict on constraint suspensions_pkey do update
       set since = now(), until = excluded.until, reason = excluded.reason, who = excluded.who, kind = excluded.kind,
           probe_at = excluded.probe_at, probe_by = null, probe_until = null, ended_at = null, ended_by = null, end_reason = null
     where :replaces or s.until <= now() or (extract(epoch from s.since) * 1000000)::bigint = :seen_us::bigint
        -- A refusal of a request that began, or a trip of a breaker that came, before the last suspension ended says nothing about
        -- what the channel shows now. `clock_timestamp()` is read under the row's lock; an end after it was written before the
        -- clock was set back.
        or s.ended_at is not null
           and (s.ended_at between now() - :age_us::bigint * interval '1 microsecond' and clock_timestamp()) is not true
    returning channel"
);

const END_PAUSES: Statement = statement!(include_str!("sql/end_pauses.sql"));

const IS_CHANNEL: &str = "select exists (select from refundd.channels where channel = $1)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("suspensions", SUSPENSIONS.sql),
    ("pause", by_people::PAUSE.sql),
    ("resume", by_people::RESUME.sql),
    ("end_cooling", by_people::END_COOLING.sql),
    ("suspend", SUSPEND.sql),
    ("release", by_people::RELEASE.sql),
    ("end_pauses", END_PAUSES.sql),
    ("is_channel", IS_CHANNEL),
];

impl Suspension {
    /// By what people who saw it name it: when it began, or, of a cooling, when it ends.
    #[must_use]
    pub fn seen_as(&self) -> Option<Timestamp> {
        self.since.or(self.until)
    }
}

fn read(row: &PgRow, by: SuspendedBy) -> Suspension {
    let span = |column| {
        row.get::<Option<i64>, _>(column).map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0)))
    };
    Suspension {
        channel: Some(row.get("channel")).filter(|channel| channel != ALL_CHANNELS),
        by,
        reason: row.get("reason"),
        who: row.get("who"),
        since: timestamp(row, "since_us"),
        until: timestamp(row, "until_us"),
        left: span("left_us"),
        probe_in: span("probe_us"),
    }
}

impl Store {
    /// What suspends and slows channels now.
    pub async fn suspensions(&self) -> Result<Suspended, StoreError> {
        self.read_suspended(None).await
    }

    /// What suspends one channel now, the suspensions by people first; without a channel, what suspends everything.
    pub async fn suspensions_of(&self, channel: Option<&str>) -> Result<Vec<Suspension>, StoreError> {
        let mut all = self.read_suspended(channel.or(Some(ALL_CHANNELS))).await?.suspensions;
        all.sort_by_key(|one| one.by);
        Ok(all)
    }

    async fn read_suspended(&self, channel: Option<&str>) -> Result<Suspended, StoreError> {
        let witnessed_us = self.witnessed_us().unwrap_or(LONG_AGO);
        let query = bind!(SUSPENSIONS, channel: channel, witnessed_us: witnessed_us);
        let rows = query.all(&self.db).await.doing("read the suspensions of channels")?;
        let mut now = Suspended::default();
        for row in &rows {
            let slowed = row.get::<Option<i32>, _>("slowed").and_then(|percent| u32::try_from(percent).ok());
            match (SuspendedBy::read(row.get("source")), slowed) {
                (Some(by), _) => now.suspensions.push(read(row, by)),
                (None, Some(percent)) => now.slowed.push((row.get("channel"), percent)),
                // A channel that is back at its full rate.
                (None, None) => {}
            }
        }
        Ok(now)
    }

    /// Whether a node ever ran a channel of this name.
    pub async fn is_channel(&self, channel: &str) -> Result<bool, StoreError> {
        sqlx::query_scalar(IS_CHANNEL).bind(channel).one(&self.db).await.doing("look up a channel")
    }

    /// Ends the pauses whose time is over, so that `refundd.events` says so. They stopped nothing since their end.
    /// Before this node has compared Postgres's clock, no time is over.
    pub async fn end_pauses(&self) -> Result<(), StoreError> {
        let query = bind!(END_PAUSES, witnessed_us: self.witnessed_us().unwrap_or(LONG_AGO));
        query.run(&self.db).await.doing("end the pauses whose time is over")?;
        Ok(())
    }
}
