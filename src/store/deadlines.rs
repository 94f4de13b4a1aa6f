//! Deadlines: how many refunds will pass theirs before it is their turn.

use jiff::Timestamp;
use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError, timestamp};

/// What lies ahead of one channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    pub channel: String,
    /// Refunds that will be too late.
    pub late: u64,
    /// The first of their deadlines; `None` if none will be.
    pub from: Option<Timestamp>,
}

// A refund's turn comes when those before it have gone, at $2 a second. Beyond the first 200,000 of a
// channel nobody looks; by then the ones before them have told.
const FORECAST: &str = "
    with asked as (
        select a.channel, a.rate from unnest($1::text[], $2::float8[]) as a (channel, rate)
    ), ahead as (
        select asked.channel, count(l.deadline_at) as late, min(l.deadline_at) as late_from
          from asked
          left join lateral (
               select line.deadline_at
                 from (select r.deadline_at, r.due_at, row_number() over (order by r.due_at, r.id) as place
                         from refundd.refunds r where r.channel = asked.channel and r.state = 'ready'
                        order by r.due_at, r.id limit 200000) line
                where line.deadline_at < greatest(line.due_at, now()) + line.place / asked.rate * interval '1 second'
          ) l on exists (select from refundd.refunds d
                          where d.state = 'ready' and d.deadline_at is not null and d.channel = asked.channel)
         group by asked.channel
    ), before as (
        select c.channel, c.late from refundd.channels c where c.channel = any($1)
    ), told as (
        update refundd.channels c set late = a.late, late_from = a.late_from
          from ahead a where c.channel = a.channel and (c.late, c.late_from) is distinct from (a.late::integer, a.late_from)
        returning c.channel
    )
    select a.channel, a.late, (extract(epoch from a.late_from) * 1000000)::bigint as from_us
      from ahead a join before on before.channel = a.channel
     where (a.late > 0) <> (before.late > 0)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("forecast", FORECAST)];

impl Store {
    /// Looks ahead for channels of these rates a second, and writes down what it sees. Answers with those
    /// where there are late ones now and were none before, or the other way round.
    pub async fn forecast(&self, rates: &[(&str, f64)]) -> Result<Vec<Forecast>, StoreError> {
        let rows = sqlx::query(FORECAST)
            .bind(rates.iter().map(|(channel, _)| *channel).collect::<Vec<_>>())
            .bind(rates.iter().map(|(_, rate)| *rate).collect::<Vec<f64>>())
            .all(&self.db.patient())
            .await
            .doing("look ahead for deadlines")?;
        Ok(rows
            .iter()
            .map(|row| Forecast {
                channel: row.get("channel"),
                late: u64::try_from(row.get::<i64, _>("late")).unwrap_or(0),
                from: timestamp(row, "from_us"),
            })
            .collect())
    }
}
