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

const FORECAST: &str = include_str!("sql/forecast.sql");

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
