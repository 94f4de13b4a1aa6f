//! When a decision needs a second person: the rules about amounts that nodes wrote down. And the end of what nobody approved.
//!
//! Every rule counts, and the functions that people's decisions call read them. Nodes add rules; only the owner of the schema
//! deletes one.

use jiff::Timestamp;
use serde::Serialize;
use sqlx::Row;

use super::connections::{Ask, Run};
use super::{Doing, Store, StoreError, timestamp};
use crate::refund::AmountBounds;

/// Why one person is not enough for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NeededFor {
    /// The refund would be sent again, and an earlier send may have been executed.
    Uncertain,
    Amount,
}

impl NeededFor {
    /// The reason, for people.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            NeededFor::Uncertain => "an earlier send may have been executed",
            NeededFor::Amount => "the amount is above what one person decides",
        }
    }
}

/// A rule about a second person that another file than this node's one asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherRule {
    /// As JSON.
    pub above: String,
    pub node: String,
    pub published_at: Option<Timestamp>,
}

const PUBLISH: &str = "
    insert into refundd.second_person (above, node)
    select $1::text::jsonb, $2 where not exists (select from refundd.second_person s where s.above = $1::text::jsonb)";

const OTHERS: &str = "
    select s.above::text as above, s.node, (extract(epoch from s.published_at) * 1000000)::bigint as published_us
      from refundd.second_person s where s.above is distinct from $1::text::jsonb order by s.id limit 100";

const EXPIRE: &str = "select refundd.expire_proposals()";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("publish_second_person", PUBLISH), ("other_second_person", OTHERS), ("expire_proposals", EXPIRE)];

impl Store {
    /// Writes down above which amounts a decision needs a second person, unless that is written already. Empty bounds ask
    /// for nothing.
    pub async fn publish_second_person(&self, node: &str, above: &AmountBounds) -> Result<(), StoreError> {
        if above.0.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(PUBLISH).bind(as_json(above)).bind(node);
        query.run(&self.db).await.doing("write down who decides about high amounts")?;
        Ok(())
    }

    /// The rules of other files about a second person. They count beside this file's rule.
    pub async fn other_second_person(&self, above: &AmountBounds) -> Result<Vec<OtherRule>, StoreError> {
        let own = (!above.0.is_empty()).then(|| as_json(above));
        let rows = sqlx::query(OTHERS).bind(own).all(&self.db).await;
        let rows = rows.doing("read who decides about high amounts")?;
        Ok(rows
            .iter()
            .map(|row| OtherRule {
                above: row.get("above"),
                node: row.get("node"),
                published_at: timestamp(row, "published_us"),
            })
            .collect())
    }

    /// Ends the proposals whose time is over or whose refunds have changed, so that `refundd.events` says so; answers how many.
    /// Nobody could approve them any more.
    pub async fn expire_proposals(&self) -> Result<i32, StoreError> {
        sqlx::query_scalar(EXPIRE)
            .one(&self.db)
            .await
            .doing("end the proposals that nobody can approve any more")
    }
}

fn as_json(above: &AmountBounds) -> String {
    serde_json::json!(*above.0).to_string()
}
