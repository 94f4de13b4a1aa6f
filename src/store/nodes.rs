//! The rows of living nodes, and which node leads.
//!
//! A node that is taken for dead keeps its leases: only recovery ends them.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, column, statement};
use super::node_report::NodeReport;
use super::{Doing, Store, StoreError};
use crate::bucket::BucketKind;
use crate::refund::ChannelName;

/// What a node writes into its row once a second.
#[derive(Debug, Clone)]
pub struct Liveness<'a> {
    pub node: &'a str,
    /// `None` leaves the channels and the digest as they are, so that no heartbeat writes ten thousand names.
    pub channels: Option<&'a [ChannelName]>,
    pub config_digest: &'a str,
    /// A node without Redis leads only while no living node has Redis.
    pub redis_is_away: bool,
    pub bucket: BucketKind,
    /// `None` leaves the report as it is.
    pub status_report: Option<&'a NodeReport>,
    /// The sections of its file that a reload takes over, beside channels and limits. `None` leaves them as they are.
    pub settings: Option<&'a serde_json::Value>,
}

const HEARTBEAT: Statement = statement!(include_str!("sql/heartbeat.sql"));

// For people: the name of the node, without the process.
const LEASES: &str = "
    select split_part(lease_node, '#', 1) as node, count(*) as n
      from refundd.refunds where state = 'sending' group by 1 order by 2 desc";

const STATUS_REPORTS: &str = "
    select split_part(node, '#', 1) as node, standing::text as standing from refundd.nodes
     where seen_at between now() - interval '4 seconds' and now() + interval '4 seconds' and standing <> '{}' order by node";

const SETTINGS: &str = "
    select split_part(node, '#', 1) as node, settings::text as settings from refundd.nodes
     where seen_at between now() - interval '4 seconds' and now() + interval '4 seconds' and settings <> '{}'
     order by started_at, node";

// As long as in the census.
const IS_RUN: &str = "
    select exists (select from refundd.nodes
                    where seen_at between now() - interval '10 seconds' and now() + interval '4 seconds'
                      and ($1::text is null or $1 = any(channels)))";

// A row ahead of the clock would grow old only after the time of the step. Its node may live and not have written it since. So the
// row is not deleted at once: the node's channels would be retired.
const DATE_BACK: &str = "
    update refundd.nodes set seen_at = now() - interval '10 seconds' where seen_at > now() + interval '4 seconds'";

const DELETE_DEAD: &str = "delete from refundd.nodes where seen_at < now() - interval '1 minute'";
const LEAVE: &str = "delete from refundd.nodes where node = $1";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("heartbeat", HEARTBEAT.sql),
    ("date_back", DATE_BACK),
    ("delete_dead", DELETE_DEAD),
    ("leave", LEAVE),
    ("leases", LEASES),
    ("status_reports", STATUS_REPORTS),
    ("settings_of_nodes", SETTINGS),
    ("is_run", IS_RUN),
];

/// The other living nodes, as the answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    /// Whether this node leads: it runs the due poller and recovery for all nodes.
    pub leads: bool,
    /// Living nodes whose channels or limits differ from those of this node.
    pub differing: Vec<String>,
    /// Whether the node's row still has the channels of this digest.
    pub is_known: bool,
    /// How many other nodes live now.
    pub others: usize,
    /// A node beside which this node cannot work, because one of the two has its buckets in memory.
    pub incompatible: Option<String>,
    /// Such a node whose row is ahead of Postgres's clock. Either it died before the clock was set back, or it lives
    /// and writes its row again within a second.
    pub incompatible_ahead: Option<String>,
}

impl Store {
    /// Writes that this node lives, and reads the other nodes. The oldest node that has Redis leads.
    pub async fn heartbeat(&self, liveness: &Liveness<'_>) -> Result<Peers, StoreError> {
        let query = bind!(
            HEARTBEAT,
            node: liveness.node,
            version: env!("CARGO_PKG_VERSION"),
            channels: liveness.channels.map(|channels| column(channels, ChannelName::as_str)),
            config_digest: liveness.config_digest,
            redis_is_away: liveness.redis_is_away,
            bucket: liveness.bucket.as_str(),
            status_report: liveness.status_report.map(|report| report.to_json().to_string()),
            settings: liveness.settings.map(ToString::to_string),
        );
        let rows = query.all(&self.db).await.doing("write this node's heartbeat")?;
        let (ahead, rows): (Vec<PgRow>, Vec<PgRow>) = rows.into_iter().partition(|row| row.get("is_ahead"));
        let cannot_share = |row: &PgRow| {
            let kinds = [Some(liveness.bucket), BucketKind::named(row.get("bucket"))];
            kinds.contains(&Some(BucketKind::Memory))
        };
        // Older nodes, and nodes that have joined already whatever their age: a node that cannot reach Redis looks
        // younger than it is.
        let at =
            rows.iter().position(|row| row.get::<&str, _>("node") == liveness.node).unwrap_or(rows.len());
        let relevant = rows.iter().enumerate().filter(|(place, row)| {
            row.get::<&str, _>("node") != liveness.node
                && (*place < at || !row.get::<&str, _>("config_digest").is_empty())
        });
        let incompatible =
            relevant.map(|(_, row)| row).find(|row| cannot_share(row)).map(|row| row.get("node"));
        let others = || rows.iter().filter(|r| r.get::<&str, _>("node") != liveness.node);
        Ok(Peers {
            // The first heartbeat of a node does not see the node's own row yet.
            leads: rows.get(at).map_or(rows.is_empty(), |own| own.get("leads")),
            // The statement answers the row from before this heartbeat. So a heartbeat without channels shows whether
            // the row still has them.
            is_known: liveness.channels.is_some()
                || rows.get(at).is_some_and(|r| r.get::<&str, _>("config_digest") == liveness.config_digest),
            others: others().count(),
            differing: others()
                // A node that has just joined has not read its configuration yet; its digest is empty.
                .filter(|r| !["", liveness.config_digest].contains(&r.get::<&str, _>("config_digest")))
                .map(|r| r.get("node"))
                .collect(),
            incompatible,
            incompatible_ahead: ahead.iter().find(|row| cannot_share(row)).map(|row| row.get("node")),
        })
    }

    /// Deletes the rows of nodes without a heartbeat for a minute. A row ahead of Postgres's clock counts as 10 s old
    /// from now on.
    pub async fn delete_dead_nodes(&self) -> Result<(), StoreError> {
        sqlx::query(DATE_BACK).run(&self.db).await.doing("date rows of nodes back")?;
        sqlx::query(DELETE_DEAD).run(&self.db).await.doing("delete the rows of dead nodes")?;
        Ok(())
    }

    /// How many refunds each node has leased, the most first.
    pub async fn leases(&self) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = sqlx::query(LEASES).all(&self.db).await.doing("count leases")?;
        Ok(rows.iter().map(|row| (row.get("node"), row.get("n"))).collect())
    }

    /// The status report of each living node that has something to report.
    pub async fn status_reports(&self) -> Result<Vec<(String, NodeReport)>, StoreError> {
        let rows =
            sqlx::query(STATUS_REPORTS).all(&self.db).await.doing("read the status reports of nodes")?;
        Ok(rows.iter().map(|row| (row.get("node"), NodeReport::read(row.get("standing")))).collect())
    }

    /// The sections that a reload takes over, beside channels and limits, of each living node that published them.
    pub async fn settings_of_nodes(&self) -> Result<Vec<(String, serde_json::Value)>, StoreError> {
        let rows = sqlx::query(SETTINGS).all(&self.db).await.doing("read the settings of nodes")?;
        let read = |text: &str| serde_json::from_str(text).unwrap_or_default();
        Ok(rows.iter().map(|row| (row.get("node"), read(row.get("settings")))).collect())
    }

    /// Whether a living node runs this channel; without a channel, whether a node lives.
    pub async fn is_run(&self, channel: Option<&str>) -> Result<bool, StoreError> {
        sqlx::query_scalar(IS_RUN).bind(channel).one(&self.db).await.doing("look which nodes live")
    }

    /// Deletes this node's row.
    pub async fn leave(&self, node: &str) -> Result<(), StoreError> {
        sqlx::query(LEAVE).bind(node).run(&self.db).await.doing("delete this node's row")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::store::statements;

    #[test]
    fn every_statement_that_asks_which_nodes_live_leaves_out_rows_ahead_of_the_clock() {
        let mut asking = 0;
        for (name, sql) in statements() {
            // `refundd.limit_shares` has a column of this name, too.
            if !sql.contains("refundd.nodes") || !sql.contains("seen_at") {
                continue;
            }
            let is_bounded = sql.contains("now() + interval '4 seconds'");
            assert!(is_bounded || name == "delete_dead", "statement `{name}`: {sql}");
            asking += 1;
        }
        assert!(asking > 8, "{asking}");
    }
}
