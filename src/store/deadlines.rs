//! The forecast of deadlines: how many refunds will miss their deadlines because of the refunds before them.
//!
//! The forecast fails no refund: recovery does, when the deadline has passed.

use jiff::Timestamp;
use sqlx::Row;

use super::connections::Ask;
use super::named::{Statement, bind, column, statement};
use super::{Doing, Store, StoreError, timestamp};
use crate::forecast::FullPace;

/// The forecast of one channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    pub channel: String,
    /// How many refunds will miss their deadlines.
    pub late: u64,
    /// The first of these deadlines; `None` if no refund will miss its deadline.
    pub from: Option<Timestamp>,
}

const FORECAST: Statement = statement!(include_str!("sql/forecast.sql"));

// As far as `forecast` reads.
const DEADLINES: &str = "
    select line.place, extract(epoch from line.deadline_at - now())::float8 as seconds
      from (select r.deadline_at, row_number() over (order by r.due_at, r.id) as place
              from refundd.refunds r where r.channel = $1 and r.state = 'ready'
             order by r.due_at, r.id limit 200000) line
     where line.deadline_at is not null order by line.place";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("forecast", FORECAST.sql), ("deadlines", DEADLINES)];

impl Store {
    /// Forecasts for each channel at its full pace, and writes the counts to the channels. Answers the channels that have
    /// late refunds now and had none before, or had some and have none now.
    pub async fn forecast(&self, paces: &[(&str, FullPace)]) -> Result<Vec<Forecast>, StoreError> {
        let query = bind!(
            FORECAST,
            channel: column(paces, |(name, _)| *name),
            rate: column(paces, |(_, pace)| pace.per_second),
            permits: column(paces, |(_, pace)| pace.quota.map(|quota| quota.permits)),
            spent: column(paces, |(_, pace)| pace.quota.map(|quota| quota.spent)),
            ends_s: column(paces, |(_, pace)| pace.quota.map(|quota| quota.ends)),
            per_s: column(paces, |(_, pace)| pace.quota.map(|quota| quota.per)),
        );
        let rows = query.all(&self.db.patient()).await.doing("forecast missed deadlines")?;
        Ok(rows
            .iter()
            .map(|row| Forecast {
                channel: row.get("channel"),
                late: u64::try_from(row.get::<i64, _>("late")).unwrap_or(0),
                from: timestamp(row, "from_us"),
            })
            .collect())
    }

    /// The first 200,000 refunds of a channel that are ready: each that has a deadline with its place, and the seconds
    /// until its deadline.
    pub async fn deadlines(&self, channel: &str) -> Result<Vec<(u64, f64)>, StoreError> {
        let rows = sqlx::query(DEADLINES).bind(channel).all(&self.db.patient()).await;
        let rows = rows.doing("read the deadlines of refunds")?;
        let read = |row: &sqlx::postgres::PgRow| {
            (u64::try_from(row.get::<i64, _>("place")).unwrap_or(0), row.get("seconds"))
        };
        Ok(rows.iter().map(read).collect())
    }
}
