//! The history of each limit's rule: which node published which rule, and when. `refundd prove` judges by it.

use sqlx::Row;

use super::connections::{Ask, Run};
use super::{Doing, Store, StoreError};
use crate::limiter::Rule;
use crate::prove::History;
use crate::refund::LimitName;

// Inserts a rule only if the newest one differs. Two nodes may insert equal rules at one time; the reader takes equal
// neighbours for one rule.
const PUBLISH_RULES: &str = "
    insert into refundd.limit_rules (limit_name, rule, node)
    select a.limit_name, a.rule::jsonb, $3
      from unnest($1::text[], $2::text[]) as a (limit_name, rule)
     where a.rule::jsonb is distinct from (select r.rule from refundd.limit_rules r
                                     where r.limit_name = a.limit_name order by r.published_at desc limit 1)
     order by a.limit_name
        on conflict on constraint limit_rules_pkey do nothing";

const RULES: &str = "
    select (extract(epoch from published_at) * 1000000)::bigint as since_us, rule::text, node
      from refundd.limit_rules where limit_name = $1 order by published_at";

const IS_PUBLISHED: &str =
    "select exists (select from refundd.limit_rules where limit_name = $1 and rule = $2::text::jsonb)";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("publish_rules", PUBLISH_RULES), ("rules", RULES), ("is_published", IS_PUBLISHED)];

impl Store {
    /// Writes the rules by which a node counts from now on, where they are new; answers how many rows it wrote.
    pub async fn publish_rules<'a>(
        &self,
        node: &str,
        limits: impl IntoIterator<Item = (&'a LimitName, &'a Rule)>,
    ) -> Result<u64, StoreError> {
        let (names, rules): (Vec<&str>, Vec<String>) =
            limits.into_iter().map(|(name, rule)| (name.as_str(), rule.to_string())).unzip();
        let done = sqlx::query(PUBLISH_RULES).bind(names).bind(rules).bind(node).run(&self.db).await;
        Ok(done.doing("write down the rules of limits")?.rows_affected())
    }

    /// Whether a node ever published this rule, given as JSON, for the limit.
    pub async fn is_published(&self, limit: &LimitName, rule: &str) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar(IS_PUBLISHED).bind(limit.as_str()).bind(rule).one(&self.db).await;
        found.doing("look up a rule of a limit")
    }

    /// Every rule that a limit ever had.
    pub async fn rules(&self, limit: &str) -> Result<History, StoreError> {
        let rows = sqlx::query(RULES).bind(limit).all(&self.db).await;
        let rows = rows.doing("read the rules of a limit")?;
        Ok(History::new(rows.iter().map(|row| (row.get("since_us"), row.get("rule"), row.get("node")))))
    }
}
