//! Reads refunds.

use serde_json::value::RawValue;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::claim::read_money;
use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, read_state, timestamp};
use crate::caller::Names;
use crate::refund::{Refund, RefundId, RequestId, State};

/// The columns of a refund `r` for [`read_refund`].
macro_rules! refund_columns {
    () => {
        include_str!("sql/parts/refund_columns.sql")
    };
}
pub(super) use refund_columns;

/// Which refunds to list, newest first.
#[derive(Debug, Clone)]
pub struct Filter {
    pub refund_ref: Option<String>,
    pub channel: Option<String>,
    pub state: Option<State>,
    /// The channels whose refunds exist for the one who asks.
    pub channels: Names,
    /// Only refunds saved before this one.
    pub after: Option<RefundId>,
    /// The most refunds of the answer.
    pub limit: u32,
}

impl Filter {
    /// All refunds of these channels. `limit` is 0: set it, too.
    pub fn of(channels: Names) -> Filter {
        Filter { channels, refund_ref: None, channel: None, state: None, after: None, limit: 0 }
    }
}

const ONE: &str = concat!("select ", refund_columns!(), " from refundd.refunds r where r.id = $1");

const LIST: Statement = statement!(concat!(
    "select ",
    refund_columns!(),
    " from refundd.refunds r
      where (:refund_ref::text is null or r.refund_ref = :refund_ref) and (:channel::text is null or r.channel = :channel)
        and (:channels::text[] is null or r.channel = any(:channels))
        and (:state::text is null or r.state = :state) and (:after::bigint is null or r.id < :after)
      order by r.id desc limit :most"
));

// Refunds in these states are few and may be old, so reading the newest refunds first would pass over all others. Walks the index
// from channel to channel, and takes only ids of each. The list of states is the index's own: a generic plan needs it.
const LIST_UNSETTLED: Statement = statement!(concat!(
    "select ",
    refund_columns!(),
    "  from (with recursive waiting as (
             (select w.channel from refundd.refunds w
               where w.state in ('accepted', 'unknown', 'review') and w.state = :state
                 and (:channel::text is null or w.channel = :channel) order by w.channel limit 1)
             union all
             select (select w.channel from refundd.refunds w
                      where w.state in ('accepted', 'unknown', 'review') and w.state = :state and w.channel > h.channel
                      order by w.channel limit 1)
               from waiting h where h.channel is not null and :channel::text is null)
         select page.id from waiting h
          cross join lateral (select w.id from refundd.refunds w
                               where w.state in ('accepted', 'unknown', 'review') and w.state = :state and w.channel = h.channel
                                 and w.id < coalesce(:after::bigint, 9223372036854775807)
                               order by w.id desc limit :most) page
          where :channels::text[] is null or h.channel = any(:channels)
          order by page.id desc limit :most) page
      join refundd.refunds r on r.id = page.id
     order by r.id desc"
));

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("one", ONE), ("list", LIST.sql), ("list_unsettled", LIST_UNSETTLED.sql)];

pub(super) fn read_refund(row: &PgRow) -> Result<Refund, StoreError> {
    let id: i64 = row.get("id");
    let bad = |column, found: String| StoreError::Row { table: "refundd.refunds", id, column, found };
    let time = |column| timestamp(row, column);
    let payload = row
        .get::<Option<String>, _>("payload")
        .map(|text| RawValue::from_string(text.clone()).map_err(|_| bad("payload", text)))
        .transpose()?;
    Ok(Refund {
        id: RefundId(id),
        refund_ref: row.get("refund_ref"),
        channel: row.get("channel"),
        payment_ref: row.get("payment_ref"),
        money: read_money(row),
        payload,
        due_at: time("due_us").ok_or_else(|| bad("due_at", "a time beyond the year 9999".to_owned()))?,
        deadline_at: time("deadline_us"),
        request_id: RequestId(row.get("request_id")),
        state: read_state(row, id)?,
        version: row.get("version"),
        uncertain_since: time("uncertain_us"),
        attempts: row.get("attempts"),
        reason: row.get("reason"),
        bank_ref: row.get("bank_ref"),
        created_at: time("created_us")
            .ok_or_else(|| bad("created_at", "a time beyond the year 9999".to_owned()))?,
        settled_at: time("settled_us"),
    })
}

impl Store {
    /// Reads one refund.
    pub async fn refund(&self, id: RefundId) -> Result<Option<Refund>, StoreError> {
        let row = sqlx::query(ONE).bind(id.0).maybe(&self.db).await.doing("look a refund up")?;
        row.as_ref().map(read_refund).transpose()
    }

    /// Lists the refunds that match a filter, newest first.
    pub async fn list(&self, filter: &Filter) -> Result<Vec<Refund>, StoreError> {
        let (after, most) = (filter.after.map(|id| id.0), i64::from(filter.limit));
        let query = match filter.state {
            Some(state @ (State::Accepted | State::Unknown | State::Review))
                if filter.refund_ref.is_none() =>
            {
                bind!(
                    LIST_UNSETTLED,
                    channel: filter.channel,
                    state: state.as_str(),
                    channels: filter.channels.these(),
                    after: after,
                    most: most,
                )
            }
            state => bind!(
                LIST,
                refund_ref: filter.refund_ref,
                channel: filter.channel,
                state: state.map(State::as_str),
                channels: filter.channels.these(),
                after: after,
                most: most,
            ),
        };
        let rows = query.all(&self.db.patient()).await.doing("list refunds")?;
        rows.iter().map(read_refund).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::store::statements;

    #[test]
    fn every_statement_that_answers_with_refunds_reads_the_same_columns() {
        for name in [
            "one",
            "list",
            "list_unsettled",
            "find",
            "cancel",
            "move",
            "compare",
            "save",
            "decide",
            "decide_and_note",
            "approve",
            "review_page",
        ] {
            let (_, text) = statements().into_iter().find(|(other, _)| *other == name).unwrap();
            assert!(text.contains(refund_columns!()), "`{name}` reads other columns than `refund_columns!`");
        }
    }
}
