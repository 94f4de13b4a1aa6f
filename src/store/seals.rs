//! Seals the journal: each channel's lines stand in a chain of hashes, so that `refundd prove --journal` finds a line
//! that was changed, removed or added later.
//!
//! The function `refundd.seal_journal` computes the hashes from the rows, so that no node can choose one. `chain.rs`
//! reads the chains for the proof.

use std::time::Duration;

use sqlx::Row;

use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError};

/// The result of one call that seals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// How many lines were sealed.
    pub lines: i32,
    /// Whether all lines are sealed that were there when the span was chosen.
    pub is_done: bool,
    /// How many transactions may still commit a line of the span. While there is one, nothing is sealed.
    pub waits_for: i32,
}

/// The last seal of a channel: its hash stands for all lines of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub channel: String,
    pub number: i64,
    /// Every line of the channel with an id up to this is sealed.
    pub to_id: i64,
    /// How many lines the chain has.
    pub lines: i64,
    /// In hexadecimal digits.
    pub hash: String,
}

const SEAL: &str = "select sealed, is_done, waits_for from refundd.seal_journal($1)";

const HEADS: Statement = statement!(include_str!("sql/heads.sql"));

const OLDEST: &str = "
    select (extract(epoch from now() - a.finished_at) * 1000000)::bigint as age_us
      from refundd.attempts a where a.id > (select s.until_id from refundd.sealing s) order by a.id limit 1";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("seal_journal", SEAL), ("heads", HEADS.sql), ("oldest_unsealed", OLDEST)];

impl Store {
    /// Seals at most `most` lines of the journal.
    pub async fn seal_journal(&self, most: i32) -> Result<Sealed, StoreError> {
        let row = sqlx::query(SEAL).bind(most).one(&self.db.patient()).await.doing("seal the journal")?;
        Ok(Sealed { lines: row.get("sealed"), is_done: row.get("is_done"), waits_for: row.get("waits_for") })
    }

    /// The heads of the chains that have a line with an id above `after_id`.
    pub async fn heads_after(&self, after_id: i64) -> Result<Vec<Head>, StoreError> {
        let rows = bind!(HEADS, after_id: after_id).all(&self.db.patient()).await;
        let rows = rows.doing("read the heads of the journal's chains")?;
        Ok(rows
            .iter()
            .map(|row| Head {
                channel: row.get("channel"),
                number: row.get("number"),
                to_id: row.get("to_id"),
                lines: row.get("total"),
                hash: row.get("hash"),
            })
            .collect())
    }

    /// The age of the oldest line that is not sealed; zero if every line is.
    pub async fn oldest_unsealed(&self) -> Result<Duration, StoreError> {
        let row = sqlx::query(OLDEST).maybe(&self.db.patient()).await;
        let row = row.doing("look for the oldest line that is not sealed")?;
        let age = row.and_then(|row| row.get::<Option<i64>, _>("age_us"));
        Ok(Duration::from_micros(age.and_then(|us| u64::try_from(us).ok()).unwrap_or(0)))
    }
}
