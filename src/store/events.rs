//! The events: who changed what, when and why. Triggers write them in the statement of each change
//! (`migrations/0037_events_and_suspensions.sql`), and settling writes what came of a lost refund. This file reads them and drops old ones.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, micros, timestamp};
use crate::caller::Names;
use crate::refund::RefundId;

/// Every kind of event that this version knows. `docs/sql.md` says when each is written.
pub const EVENT_KINDS: [&str; 35] = [
    "paused",
    "resumed",
    "suspended",
    "released",
    "breaker_tripped",
    "breaker_ended",
    "bank_unreachable",
    "bank_reached",
    "cooled",
    "cooling_ended",
    "bank_refusing",
    "bank_refusing_ended",
    "decided",
    "cancelled",
    "proposed",
    "approved",
    "withdrawn",
    "replaced",
    "expired",
    "void",
    "bank_ref_noted",
    "late_answer_differs",
    "refund_lost",
    "moved_out",
    "moved_in",
    "channel_added",
    "channel_changed",
    "channel_retired",
    "channel_returned",
    "limit_added",
    "limit_changed",
    "node_joined",
    "node_left",
    "node_changed",
    "clock_stepped",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    pub id: i64,
    pub at: Timestamp,
    pub kind: String,
    pub who: String,
    /// `*` for all channels; `None` for a limit and for a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refund_id: Option<i64>,
    /// What the change replaced; of settings only the keys that differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What is so since; of settings only the keys that differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The place of an event among all events: a page goes on behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCursor {
    at_us: i64,
    id: i64,
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at_us, self.id)
    }
}

impl FromStr for EventCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (at_us, id) = text.split_once('-').ok_or(())?;
        let number = |text: &str| {
            let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain).ok_or(())
        };
        Ok(EventCursor { at_us: number(at_us)?, id: number(id)? })
    }
}

/// Which events to read, newest first.
#[derive(Debug, Clone)]
pub struct EventFilter {
    pub channel: Option<String>,
    /// Only events about this refund.
    pub refund: Option<RefundId>,
    /// Only events of these kinds; empty for all.
    pub kinds: Vec<String>,
    /// The channels that exist for the one who asks. The pauses of everything are about each of them.
    pub channels: Names,
    /// Only events about a whole channel, a limit or a node, and none about a single refund.
    pub without_refunds: bool,
    /// Only events at most so old, by Postgres's clock.
    pub since: Option<Duration>,
    /// Only events at this time and later.
    pub from: Option<Timestamp>,
    /// Only events before this time.
    pub to: Option<Timestamp>,
    /// Only events behind this place, so older ones.
    pub after: Option<EventCursor>,
    /// The most events of the answer.
    pub limit: u32,
}

impl EventFilter {
    /// All events of these channels. `limit` is 0: set it, too.
    pub fn of(channels: Names) -> EventFilter {
        EventFilter {
            channels,
            channel: None,
            refund: None,
            kinds: Vec::new(),
            without_refunds: false,
            since: None,
            from: None,
            to: None,
            after: None,
            limit: 0,
        }
    }
}

/// Some events, newest first, and the place behind which the next ones follow; `None` if these are the last.
#[derive(Debug, Clone)]
pub struct EventPage {
    pub events: Vec<Event>,
    pub next: Option<EventCursor>,
}

// The pauses of all channels (`*`) are events of each channel.
const EVENTS: Statement = statement!(
    "
    select e.event_id, (extract(epoch from e.at) * 1000000)::bigint as at_us, e.kind, e.channel, e.limit_name, e.refund_id,
           e.who, e.reason,
           -- The key that a moved refund has, or had, in another channel is for those who have that channel.
           (case when e.kind in ('moved_out', 'moved_in') and e.before ->> 'channel' <> all(:channels::text[])
                 then e.before - 'request_id' else e.before end)::text as before,
           (case when e.kind in ('moved_out', 'moved_in') and e.after ->> 'channel' <> all(:channels::text[])
                 then e.after - 'request_id' else e.after end)::text as after
      from refundd.events e
     where (:channel::text is null or e.channel = any(array[:channel, '*']))
       and (:channels::text[] is null or e.channel = any(:channels::text[] || array['*']))
       and (:refund::bigint is null or e.refund_id = :refund)
       and (cardinality(:kinds::text[]) = 0 or e.kind = any(:kinds))
       and (not :without_refunds or e.refund_id is null)
       and (:since_us::bigint is null or e.at >= now() - :since_us * interval '1 microsecond')
       and (:from_us::bigint is null or e.at >= timestamptz 'epoch' + :from_us * interval '1 microsecond')
       and (:to_us::bigint is null or e.at < timestamptz 'epoch' + :to_us * interval '1 microsecond')
       and (:after_us::bigint is null
            or (e.at, e.event_id) < (timestamptz 'epoch' + :after_us * interval '1 microsecond', :after_id::bigint))
     order by e.at desc, e.event_id desc limit :most"
);

// The first event of a database has the id 1. The oldest one by time may have another: a clock may have been set back.
const KEPT_SINCE: Statement = statement!(
    "
    select (extract(epoch from k.since) * 1000000)::bigint as since_us
      from (select coalesce((select e.at from refundd.events e order by e.at, e.event_id limit 1), now()) as since) k
     where not exists (select from refundd.events e where e.event_id = 1)
       and (:since_us::bigint is null or now() - :since_us * interval '1 microsecond' < k.since)
       and (:from_us::bigint is null or timestamptz 'epoch' + :from_us * interval '1 microsecond' < k.since)"
);

// As in ledger.rs.
const FORGET_EVENTS: &str = "
    select refundd.forget_events($1 * interval '1 microsecond')
     where $2::bigint is null or now() < timestamptz 'epoch' + $2 * interval '1 microsecond' + interval '10 seconds'";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("events", EVENTS.sql), ("events_kept_since", KEPT_SINCE.sql), ("forget_events", FORGET_EVENTS)];

fn read(row: &PgRow) -> Result<(Event, EventCursor), StoreError> {
    let id: i64 = row.get("event_id");
    let bad = |column, found: String| StoreError::Row { table: "refundd.events", id, column, found };
    let json = |column| {
        row.get::<Option<String>, _>(column)
            .map(|text| serde_json::from_str::<Value>(&text).map_err(|_| bad(column, text)))
            .transpose()
            .map(|value| value.map(with_times_in_z))
    };
    let at = timestamp(row, "at_us").ok_or_else(|| bad("at", "a time beyond the year 9999".to_owned()))?;
    let event = Event {
        id,
        at,
        kind: row.get("kind"),
        who: row.get("who"),
        channel: row.get("channel"),
        limit: row.get("limit_name"),
        refund_id: row.get("refund_id"),
        before: json("before")?,
        after: json("after")?,
        reason: row.get("reason"),
    };
    Ok((event, EventCursor { at_us: row.get("at_us"), id }))
}

/// The value with its times as `at` is written. Postgres writes a time in JSON with `+00:00`.
fn with_times_in_z(value: Value) -> Value {
    match value {
        Value::String(text) => match text.strip_suffix("+00:00") {
            Some(time) if text.parse::<Timestamp>().is_ok() => Value::String(format!("{time}Z")),
            _ => Value::String(text),
        },
        Value::Array(all) => all.into_iter().map(with_times_in_z).collect(),
        Value::Object(all) => all
            .into_iter()
            .map(|(name, value)| (name, with_times_in_z(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

impl Store {
    /// Reads the events that match a filter, newest first.
    pub async fn events(&self, filter: &EventFilter) -> Result<EventPage, StoreError> {
        let query = bind!(
            EVENTS,
            channel: filter.channel,
            channels: filter.channels.these(),
            refund: filter.refund.map(|id| id.0),
            kinds: filter.kinds,
            without_refunds: filter.without_refunds,
            since_us: filter.since.map(micros),
            from_us: filter.from.map(Timestamp::as_microsecond),
            to_us: filter.to.map(Timestamp::as_microsecond),
            after_us: filter.after.map(|after| after.at_us),
            after_id: filter.after.map(|after| after.id),
            most: i64::from(filter.limit),
        );
        let rows = query.all(&self.db.patient()).await.doing("read events")?;
        let is_full = u32::try_from(rows.len()).is_ok_and(|rows| rows >= filter.limit);
        let (events, places): (Vec<Event>, Vec<EventCursor>) =
            rows.iter().map(read).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Ok(EventPage { events, next: places.last().copied().filter(|_| is_full) })
    }

    /// The time before which events may have been dropped, if a filter reaches before it.
    pub async fn events_kept_since(&self, filter: &EventFilter) -> Result<Option<Timestamp>, StoreError> {
        let query = bind!(
            KEPT_SINCE,
            since_us: filter.since.map(micros),
            from_us: filter.from.map(Timestamp::as_microsecond),
        );
        let row = query.maybe(&self.db.patient()).await.doing("look since when events are kept")?;
        Ok(row.and_then(|row| timestamp(&row, "since_us")))
    }

    /// Drops some of the events that are older than `keep`; answers how many. The database keeps events for as long as
    /// `refundd.retention` says, whatever `keep` is. It drops nothing while the clock witness has not confirmed
    /// Postgres's clock.
    pub async fn forget_events(&self, keep: Duration) -> Result<i32, StoreError> {
        let Ok(witnessed_us) = self.witnessed_us() else { return Ok(0) };
        let query = sqlx::query_scalar(FORGET_EVENTS).bind(micros(keep)).bind(witnessed_us);
        Ok(query.maybe(&self.db.patient()).await.doing("forget the oldest events")?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_written_and_nothing_else_is_one() {
        let cursor = EventCursor { at_us: 1_764_000_000_000_001, id: 42 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for bad in ["", "-", "1", "1-", "-1-2", "1-2-3", "1-+2", "x-1", "99999999999999999999-1"] {
            assert_eq!(bad.parse::<EventCursor>(), Err(()), "{bad}");
        }
    }
}
