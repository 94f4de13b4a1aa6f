//! Moves refunds of which no byte ever left from one channel to another. The journal of both channels keeps who did it, and why.
//!
//! The function `refundd.move` does all of it, or nothing: it mints a new request id for each refund, because the bank of
//! the other channel must see a key of its own.

use sqlx::Row;

use super::connections::Ask;
use super::look::{read_refund, refund_columns};
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError};
use crate::refund::{Refund, RefundId};

/// A person's order to move refunds.
#[derive(Debug, Clone)]
pub struct Move {
    pub from: String,
    pub to: String,
    pub who: String,
    pub why: String,
}

/// A channel that refunds are to move to, or that a file is to fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveTarget {
    /// No node has run it for five minutes.
    pub is_retired: bool,
    /// How many refunds may wait there at once; `None` without a bound.
    pub max_backlog: Option<i64>,
    /// How many more refunds may wait there; `None` without a bound.
    pub room: Option<u64>,
}

const MOVE: Statement = statement!(concat!(
    "select ",
    refund_columns!(),
    " from refundd.move(:id, :from_channel, :to_channel, :why, :who, :seen) r"
));

const TARGET: &str = "
    select retired_at is not null as is_retired, refundd.backlog_room(channel) as room, max_backlog
      from refundd.channels where channel = $1";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("move", MOVE.sql), ("move_target", TARGET)];

impl Store {
    /// Moves those of these refunds that may go, in one commit. Answers them. A refund that is named with the version that a
    /// person saw stays if it has another one.
    pub async fn move_never_sent(
        &self,
        refunds: &[(RefundId, Option<i32>)],
        order: &Move,
    ) -> Result<Vec<Refund>, StoreError> {
        let names_versions = refunds.iter().any(|(_, seen)| seen.is_some());
        let query = bind!(
            MOVE,
            id: refunds.iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
            from_channel: order.from,
            to_channel: order.to,
            why: order.why,
            who: order.who,
            seen: names_versions.then(|| refunds.iter().map(|(_, seen)| *seen).collect::<Vec<Option<i32>>>()),
        );
        let rows = query.all(&self.db.patient()).await.doing("move refunds")?;
        rows.iter().map(read_refund).collect()
    }

    /// A channel as a place that refunds may come to; `None` if no node ever ran it.
    pub async fn move_target(&self, channel: &str) -> Result<Option<MoveTarget>, StoreError> {
        let row = sqlx::query(TARGET).bind(channel).maybe(&self.db.patient()).await;
        let row = row.doing("look at the room of a channel")?;
        Ok(row.map(|row| MoveTarget {
            is_retired: row.get("is_retired"),
            max_backlog: row.get("max_backlog"),
            room: row.get::<Option<i64>, _>("room").map(|room| u64::try_from(room).unwrap_or(0)),
        }))
    }
}
