//! When the days of time zones begin, for all nodes: the node that publishes a day first decides.
//!
//! Nodes may have different time zone databases, and the numbers of a window must be the same on all nodes.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, column, statement};
use super::{Doing, Store, StoreError};

// A published day never changes, and a day may not begin before the day before it. The rows are inserted in order, so
// that two nodes never wait for each other.
const PUBLISH_DAYS: Statement = statement!(
    "
    insert into refundd.zone_days (zone, day, begins_at, node)
    select :zone, d.day, d.begins_at, :node
      from (select day::date, timestamptz 'epoch' + begins_us * interval '1 microsecond' as begins_at
              from unnest(:day::text[], :begins_us::bigint[]) as d (day, begins_us)) d
     where not exists (select from refundd.zone_days z
                        where z.zone = :zone and (z.day < d.day and z.begins_at >= d.begins_at or z.day > d.day and z.begins_at <= d.begins_at))
     order by d.day
        on conflict do nothing"
);

const DAYS: &str = "
    select day::text as day, (extract(epoch from begins_at) * 1000000)::bigint as begins_us, node
      from refundd.zone_days where zone = $1 and begins_at > now() - interval '3 days' order by begins_at";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("publish_days", PUBLISH_DAYS.sql), ("days", DAYS)];

/// When one day begins, in us since 1970, and the node that published it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedDay {
    pub day: String,
    pub begins_us: i64,
    pub node: String,
}

impl Store {
    /// Publishes when days of a zone begin, where no node has done so; answers how many it wrote, and the days that all nodes
    /// use.
    pub async fn publish_days(
        &self,
        zone: &str,
        days: &[(String, i64)],
        node: &str,
    ) -> Result<(u64, Vec<PublishedDay>), StoreError> {
        let query = bind!(
            PUBLISH_DAYS,
            zone: zone,
            day: column(days, |(day, _)| day.as_str()),
            begins_us: column(days, |(_, begins_us)| *begins_us),
            node: node,
        );
        let done = query.run(&self.db).await.doing("publish the days of a time zone")?;
        let rows = sqlx::query(DAYS).bind(zone).all(&self.db).await;
        let rows = rows.doing("read the days of a time zone")?;
        let day = |row: &PgRow| PublishedDay {
            day: row.get("day"),
            begins_us: row.get("begins_us"),
            node: row.get("node"),
        };
        Ok((done.rows_affected(), rows.iter().map(day).collect()))
    }
}
