//! The suspensions of channels: paused by a person, suspended by refundd itself, cooling or slowed after a bank's answer.
//!
//! Each cause is a record of its own, and ending one leaves the others. Triggers write each change to `refundd.events`.
//! Nothing here stops a request: the claim reads the suspensions, and nodes read them to ask for no permits.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, micros, timestamp};

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
    /// When it ends by itself; `None` if somebody must end it.
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

/// A person's pause of one channel or of all.
#[derive(Debug, Clone, Copy)]
pub struct Pause<'a> {
    pub reason: &'a str,
    pub who: &'a str,
    /// How long it lasts; `None` until a person ends it.
    pub lasts: Option<Duration>,
}

/// The result of a request to resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumed {
    /// It was suspended for that cause, and is not any more.
    Now,
    /// It was not suspended for that cause; nothing changed.
    WasNot,
    NoSuchChannel,
}

/// The name of all channels together in `refundd.suspensions`; no channel has it.
const ALL_CHANNELS: &str = "*";

const SUSPENSIONS: Statement = statement!(include_str!("sql/suspensions.sql"));

const PAUSE: Statement = statement!(
    "
    update refundd.channels
       set paused_at = now(), pause_until = now() + :lasts_us * interval '1 microsecond', pause_reason = :reason, paused_by = :who
     where channel = :channel returning channel"
);

const RESUME: Statement = statement!(include_str!("sql/resume.sql"));

pub(super) const SUSPEND: Statement = statement!(
    "
    insert into refundd.suspensions as s (channel, source, until, reason, who, kind, probe_at)
    values (:channel, :source, now() + :lasts_us::bigint * interval '1 microsecond', :reason, :who, :kind,
            now() + :probe_us::bigint * interval '1 microsecond')
        on conflict on constraint suspensions_pkey do update
       set since = now(), until = excluded.until, reason = excluded.reason, who = excluded.who, kind = excluded.kind,
           probe_at = excluded.probe_at, probe_by = null, probe_until = null, ended_at = null, ended_by = null, end_reason = null
     where :replaces or s.ended_at is not null or s.until <= now()
    returning channel"
);

const RELEASE: Statement = statement!(
    "
    update refundd.suspensions
       set ended_at = now(), ended_by = :who, end_reason = :reason
     where channel = :channel and source = :source and ended_at is null and (until is null or until > now())
       and (:probe_by::text is null or probe_by = :probe_by)
    returning channel"
);

const END_PAUSES: &str = include_str!("sql/end_pauses.sql");

const IS_CHANNEL: &str = "select exists (select from refundd.channels where channel = $1)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("suspensions", SUSPENSIONS.sql),
    ("pause", PAUSE.sql),
    ("resume", RESUME.sql),
    ("suspend", SUSPEND.sql),
    ("release", RELEASE.sql),
    ("end_pauses", END_PAUSES),
    ("is_channel", IS_CHANNEL),
];

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
        let query = bind!(SUSPENSIONS, channel: channel);
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

    /// Pauses a channel on all nodes, or gives its pause another reason and another end. `false` if the channel does
    /// not exist.
    pub async fn pause(&self, channel: &str, pause: &Pause<'_>) -> Result<bool, StoreError> {
        let &Pause { reason, who, lasts } = pause;
        let query = bind!(PAUSE, channel: channel, reason: reason, who: who, lasts_us: lasts.map(micros));
        Ok(query.maybe(&self.db).await.doing("pause a channel")?.is_some())
    }

    /// Pauses all channels on all nodes, also those that are added later, and permits for other services.
    pub async fn pause_all(&self, pause: &Pause<'_>) -> Result<(), StoreError> {
        let query = bind!(
            SUSPEND,
            channel: ALL_CHANNELS,
            source: SuspendedBy::All.as_str(),
            lasts_us: pause.lasts.map(micros),
            reason: pause.reason,
            who: pause.who,
            kind: None::<&str>,
            probe_us: None::<i64>,
            replaces: true,
        );
        query.maybe(&self.db).await.doing("pause all channels")?;
        Ok(())
    }

    /// Ends a person's pause of one channel. The channel may still be suspended for another cause.
    pub async fn resume(
        &self,
        channel: &str,
        who: &str,
        reason: Option<&str>,
    ) -> Result<Resumed, StoreError> {
        let query = bind!(RESUME, channel: channel, who: who, reason: reason);
        let row = query.maybe(&self.db).await.doing("resume a channel")?;
        Ok(match row.map(|row| row.get::<bool, _>("was_paused")) {
            None => Resumed::NoSuchChannel,
            Some(true) => Resumed::Now,
            Some(false) => Resumed::WasNot,
        })
    }

    /// Ends a person's pause of all channels. Channels that are paused on their own stay so.
    pub async fn resume_all(&self, who: &str, reason: Option<&str>) -> Result<Resumed, StoreError> {
        let done = self.release_one(ALL_CHANNELS, SuspendedBy::All, who, reason, None).await?;
        Ok(if done { Resumed::Now } else { Resumed::WasNot })
    }

    /// Ends a suspension by refundd itself.
    pub async fn release(
        &self,
        channel: &str,
        by: SuspendedBy,
        who: &str,
        reason: Option<&str>,
    ) -> Result<Resumed, StoreError> {
        if self.release_one(channel, by, who, reason, None).await? {
            return Ok(Resumed::Now);
        }
        Ok(if self.is_channel(channel).await? { Resumed::WasNot } else { Resumed::NoSuchChannel })
    }

    /// Whether a node ever ran a channel of this name.
    pub async fn is_channel(&self, channel: &str) -> Result<bool, StoreError> {
        sqlx::query_scalar(IS_CHANNEL).bind(channel).one(&self.db).await.doing("look up a channel")
    }

    pub(super) async fn release_one(
        &self,
        channel: &str,
        by: SuspendedBy,
        who: &str,
        reason: Option<&str>,
        probe_by: Option<&str>,
    ) -> Result<bool, StoreError> {
        let query = bind!(
            RELEASE,
            channel: channel,
            source: by.as_str(),
            who: who,
            reason: reason,
            probe_by: probe_by,
        );
        Ok(query.maybe(&self.db).await.doing("end a suspension")?.is_some())
    }

    /// Ends the pauses whose time is over, so that `refundd.events` says so. They stopped nothing since their end.
    pub async fn end_pauses(&self) -> Result<(), StoreError> {
        sqlx::query(END_PAUSES).run(&self.db).await.doing("end the pauses whose time is over")?;
        Ok(())
    }
}
