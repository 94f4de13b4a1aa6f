//! The feed of changes: what became of refunds, in the order of the journal. The journal has a line for each change already,
//! so nothing is written for the feed.
//!
//! The id of a line is given before its commit, so a line may appear after lines with higher ids. A page goes only as far as
//! no transaction can commit a line any more ([`Store::journal_is_whole_until`]).

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, micros, timestamp};
use crate::caller::Names;

/// One change of a refund's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The place of the change in the feed: the line's id in the journal.
    #[serde(serialize_with = "as_text")]
    pub cursor: i64,
    pub refund_id: i64,
    pub refund_ref: String,
    /// The channel of the refund at that time.
    pub channel: String,
    /// The state since then.
    pub state: String,
    /// refundd's short name for what happened.
    pub code: Option<String>,
    /// What the bank or the person said.
    pub reason: Option<String>,
    /// The bank's own reference, as it is known when the feed is read.
    pub bank_ref: Option<String>,
    pub at: Timestamp,
    /// `at` in whole microseconds.
    #[serde(skip)]
    pub at_us: i64,
}

/// A cursor is a text: programs give it back and do not count with it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn as_text<S: serde::Serializer>(cursor: &i64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(cursor)
}

/// Which changes to read.
#[derive(Debug, Clone)]
pub struct ChangeFilter {
    /// Only changes behind this place.
    pub after: i64,
    /// The channels that exist for the one who asks.
    pub channels: Names,
    pub channel: Option<String>,
    /// The most changes of the answer.
    pub limit: u32,
}

impl ChangeFilter {
    /// All changes of these channels. `limit` is 0: set it, too.
    pub fn of(channels: Names) -> ChangeFilter {
        ChangeFilter { channels, after: 0, channel: None, limit: 0 }
    }
}

/// Some changes, oldest first.
#[derive(Debug, Clone)]
pub struct ChangePage {
    pub changes: Vec<Change>,
    /// The place behind which the next page begins.
    pub next: i64,
    /// Whether more lines wait to be read already.
    pub more: bool,
}

/// How far the journal goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalReach {
    /// Lines up to this one were dropped.
    pub forgotten_until: i64,
    /// The last id that was given.
    pub last_id: i64,
    /// No transaction can commit a line up to this one any more.
    pub whole_until: i64,
}

/// One look at the journal, at those who write to it, and at what is sealed.
struct Look {
    last_id: i64,
    writers: Vec<String>,
    sealed_until: i64,
    forgotten_until: i64,
}

const REACH: &str = "select last_id, writers, sealed_until, forgotten_until from refundd.feed_reach()";

const CHANGES: Statement = statement!(include_str!("sql/changes.sql"));

const FORGOTTEN: &str = "select forgotten_until from refundd.feed";

const DELIVER: Statement =
    statement!("select refundd.deliver(:process, :lease_us * interval '1 microsecond', :up_to) as until");

// The journal's first line behind the place; a line that is no change is passed by soon.
const UNDELIVERED: &str = "
    select (extract(epoch from now() - a.finished_at) * 1000000)::bigint as age_us
      from refundd.attempts a where a.id > (select f.delivered_until from refundd.feed f) order by a.id limit 1";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("feed_reach", REACH),
    ("changes", CHANGES.sql),
    ("forgotten", FORGOTTEN),
    ("deliver", DELIVER.sql),
    ("oldest_undelivered", UNDELIVERED),
];

impl Store {
    /// How many lines one statement reads in search of the changes of some channels.
    const LINES: u32 = 10_000;
    /// How many lines one statement reads where each channel counts: nearly every line is a change then.
    const LINES_OF_ALL: u32 = 1_000;
    /// How long to wait for transactions that write to the journal. Those of nodes last some milliseconds.
    const FIRST_WAIT: Duration = Duration::from_millis(5);
    const WAIT_AT_MOST: Duration = Duration::from_millis(150);

    /// How far the journal goes, and up to which line a reader misses nothing.
    ///
    /// Notes the last id and the transactions that may write, and waits until all of those are over. Every line up to that
    /// id can then be seen by the next statement, or was never committed. If one of them stays open for longer, the line
    /// up to which the leading node sealed the journal is safe: sealing waits in the same way, and remembers.
    pub async fn journal_is_whole_until(&self) -> Result<JournalReach, StoreError> {
        let began = Instant::now();
        let first = self.look_at_journal().await?;
        let Look { last_id, forgotten_until, .. } = first;
        let (mut open, mut sealed_until, mut wait) = (first.writers, first.sealed_until, Self::FIRST_WAIT);
        while !open.is_empty() && began.elapsed() < Self::WAIT_AT_MOST {
            tokio::time::sleep(wait).await;
            wait *= 2;
            let now = self.look_at_journal().await?;
            sealed_until = now.sealed_until;
            // One of them may have prepared its commit, and has no virtual id any more.
            open.retain(|writer| now.writers.contains(writer));
            open.extend(now.writers.into_iter().filter(|writer| writer == "prepared"));
            open.dedup();
        }
        let whole_until = if open.is_empty() { last_id } else { sealed_until };
        Ok(JournalReach { forgotten_until, last_id, whole_until })
    }

    async fn look_at_journal(&self) -> Result<Look, StoreError> {
        let row = sqlx::query(REACH).one(&self.db).await.doing("look how far the journal goes")?;
        Ok(Look {
            last_id: row.get("last_id"),
            writers: row.get("writers"),
            sealed_until: row.get("sealed_until"),
            forgotten_until: row.get("forgotten_until"),
        })
    }

    /// Reads the changes behind a place, up to the line `until`, of which [`JournalReach::whole_until`] says that no line is missing.
    /// `None` if the journal has dropped lines behind the place since then: ask again how far it goes.
    pub async fn changes(&self, filter: &ChangeFilter, until: i64) -> Result<Option<ChangePage>, StoreError> {
        let is_of_all = filter.channel.is_none() && filter.channels == Names::All;
        let most_lines = i64::from(if is_of_all { Self::LINES_OF_ALL } else { Self::LINES });
        let query = bind!(
            CHANGES,
            after: filter.after,
            until: until,
            channels: filter.channels.these(),
            channel: filter.channel,
            most_lines: most_lines,
            most: i64::from(filter.limit),
        );
        let rows = query.all(&self.db.patient()).await.doing("read changes")?;
        // After the page: a month that is dropped before its lines are read notes that in the same commit.
        let forgotten = sqlx::query_scalar(FORGOTTEN).one(&self.db).await;
        let forgotten_until: i64 = forgotten.doing("look which changes the journal has dropped")?;
        if filter.after < forgotten_until {
            return Ok(None);
        }
        let (lines, last_id) = rows
            .first()
            .map_or((0, None), |row| (row.get::<i64, _>("lines"), row.get::<Option<i64>, _>("last_id")));
        let mut changes = Vec::with_capacity(rows.len());
        for row in rows.iter().filter(|row| row.get::<Option<i64>, _>("id").is_some()) {
            changes.push(read(row)?);
        }
        let is_full = u32::try_from(changes.len()).is_ok_and(|count| count >= filter.limit);
        let are_more_lines = lines >= most_lines;
        let next = match (changes.last(), last_id) {
            (Some(last), _) if is_full => last.cursor,
            (_, Some(last_id)) if are_more_lines => last_id,
            _ => until.max(filter.after),
        };
        Ok(Some(ChangePage { changes, next, more: is_full || are_more_lines }))
    }

    /// Takes or keeps the lease to deliver changes, and notes that the receiver has all changes up to `up_to`. Answers up to
    /// where changes are delivered; `None` while another process has the lease.
    pub async fn deliver(
        &self,
        process: &str,
        lease: Duration,
        up_to: Option<i64>,
    ) -> Result<Option<i64>, StoreError> {
        let query = bind!(DELIVER, process: process, lease_us: micros(lease), up_to: up_to);
        let row = query.one(&self.db).await.doing("lease the delivery of changes")?;
        Ok(row.get("until"))
    }

    /// The age of the oldest line of the journal that was not delivered; zero if every line was, or none is to be.
    pub async fn oldest_undelivered(&self) -> Result<Duration, StoreError> {
        let row = sqlx::query(UNDELIVERED).maybe(&self.db.patient()).await;
        let row = row.doing("look for the oldest change that was not delivered")?;
        let age = row.and_then(|row| row.get::<Option<i64>, _>("age_us"));
        Ok(Duration::from_micros(age.and_then(|us| u64::try_from(us).ok()).unwrap_or(0)))
    }
}

fn read(row: &PgRow) -> Result<Change, StoreError> {
    let cursor: i64 = row.get("id");
    let at = timestamp(row, "at_us").ok_or_else(|| StoreError::Row {
        table: "refundd.attempts",
        id: cursor,
        column: "finished_at",
        found: "a time beyond the year 9999".to_owned(),
    })?;
    Ok(Change {
        cursor,
        refund_id: row.get("refund_id"),
        refund_ref: row.get("refund_ref"),
        channel: row.get("channel"),
        state: row.get("moved_to"),
        code: row.get("code"),
        reason: row.get("message"),
        bank_ref: row.get("bank_ref"),
        at,
        at_us: row.get("at_us"),
    })
}
