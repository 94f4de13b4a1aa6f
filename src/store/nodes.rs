//! Which nodes live, and which of them looks out for all.

use sqlx::Row;

use super::connections::{Ask, Run};
use super::{Doing, Store, StoreError};
use crate::refund::ChannelName;

/// What a node says of itself once a second.
#[derive(Debug, Clone)]
pub struct Beat<'a> {
    pub node: &'a str,
    /// `None` leaves them, and the digest, as they were last said: ten thousand names are not written each second.
    pub channels: Option<&'a [ChannelName]>,
    pub config_digest: &'a str,
    /// It cannot lead without Redis.
    pub redis_is_away: bool,
    /// Where its lines stand: `redis` or `memory`.
    pub bucket: &'a str,
    /// Which limits its channels wait for, and which rules of other files rule; for people. `None` leaves it as it was.
    pub standing: Option<&'a serde_json::Value>,
}

const BEAT: &str = include_str!("sql/beat.sql");

// For people: nodes by name, without the process.
const LEASES: &str = "
    select split_part(lease_node, '#', 1) as node, count(*) as n
      from refundd.refunds where state = 'sending' group by 1 order by 2 desc";

const STANDING: &str = "
    select split_part(node, '#', 1) as node, standing::text as standing from refundd.nodes
     where seen_at > now() - interval '4 seconds' and standing <> '{}' order by node";

const BURY: &str = "delete from refundd.nodes where seen_at < now() - interval '1 minute'";
const LEAVE: &str = "delete from refundd.nodes where node = $1";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("beat", BEAT), ("bury", BURY), ("leave", LEAVE), ("leases", LEASES), ("standing", STANDING)];

/// What a node learns by saying it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Company {
    /// Whether this node looks out for newly due refunds on behalf of all.
    pub leads: bool,
    /// Living nodes whose channels or limits differ from ours.
    pub differing: Vec<String>,
    /// Whether the channels this node said last are those of this digest, and still stand there.
    pub is_known: bool,
    /// How many other nodes live.
    pub others: usize,
    /// An older node beside which we cannot work, because one of us has its lines in memory.
    pub alone: Option<String>,
}

impl Store {
    /// Says that this node lives; the one that has lived longest leads.
    pub async fn beat(&self, beat: &Beat<'_>) -> Result<Company, StoreError> {
        let channels: Option<Vec<&str>> =
            beat.channels.map(|channels| channels.iter().map(ChannelName::as_str).collect());
        let rows = sqlx::query(BEAT)
            .bind(beat.node)
            .bind(env!("CARGO_PKG_VERSION"))
            .bind(channels)
            .bind(beat.config_digest)
            .bind(beat.redis_is_away)
            .bind(beat.bucket)
            .bind(beat.standing.map(ToString::to_string))
            .all(&self.db)
            .await
            .doing("say that this node lives")?;
        // Older ones, and those that run whatever their age: who cannot reach Redis looks younger than it is.
        let at = rows.iter().position(|row| row.get::<&str, _>("node") == beat.node).unwrap_or(rows.len());
        let before_us = rows.iter().enumerate().filter(|(place, row)| {
            row.get::<&str, _>("node") != beat.node
                && (*place < at || !row.get::<&str, _>("config_digest").is_empty())
        });
        let alone = before_us
            .map(|(_, row)| row)
            .find(|row| beat.bucket == "memory" || row.get::<&str, _>("bucket") == "memory")
            .map(|row| row.get("node"));
        let others = || rows.iter().filter(|r| r.get::<&str, _>("node") != beat.node);
        Ok(Company {
            leads: rows.first().is_none_or(|r| r.get::<&str, _>("node") == beat.node),
            // The row as it was before: a beat that says less than all finds out whether all still stands there.
            is_known: beat.channels.is_some()
                || rows.get(at).is_some_and(|r| r.get::<&str, _>("config_digest") == beat.config_digest),
            others: others().count(),
            differing: others()
                // One that has just joined has not read its file yet.
                .filter(|r| !["", beat.config_digest].contains(&r.get::<&str, _>("config_digest")))
                .map(|r| r.get("node"))
                .collect(),
            alone,
        })
    }

    /// Forgets nodes that have not been seen for a minute.
    pub async fn bury_nodes(&self) -> Result<(), StoreError> {
        sqlx::query(BURY).run(&self.db).await.doing("forget dead nodes")?;
        Ok(())
    }

    /// How many refunds each node holds under lease, the most first.
    pub async fn leases(&self) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = sqlx::query(LEASES).all(&self.db).await.doing("count leases")?;
        Ok(rows.iter().map(|row| (row.get("node"), row.get("n"))).collect())
    }

    /// What each living node says of the limits it waits for and the rules that overrule its file.
    pub async fn standing(&self) -> Result<Vec<(String, serde_json::Value)>, StoreError> {
        let rows = sqlx::query(STANDING).all(&self.db).await.doing("read how nodes stand")?;
        let read = |text: &str| serde_json::from_str(text).unwrap_or_default();
        Ok(rows.iter().map(|row| (row.get("node"), read(row.get("standing")))).collect())
    }

    /// Takes this node off the list.
    pub async fn leave(&self, node: &str) -> Result<(), StoreError> {
        sqlx::query(LEAVE).bind(node).run(&self.db).await.doing("take this node off the list")?;
        Ok(())
    }
}
