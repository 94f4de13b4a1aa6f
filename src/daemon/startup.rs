//! Waits until a node may run: Postgres takes writes, the schema is new enough, and the buckets of all living
//! nodes can work together.
//!
//! It does not wait for Redis.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::bucket::BucketKind;
use crate::logs::chain;
use crate::node::Node;
use crate::store::{Liveness, NodeReport, SchemaFault, Store, StoreError};

/// Writes this node's liveness row. A bucket in memory cannot be shared, so `join` waits for the other node to end if
/// either has one.
///
/// # Errors
/// When the other node still lives after six seconds, or when Postgres refuses the row.
pub(super) async fn join(node: &Node, kind: BucketKind) -> anyhow::Result<()> {
    let liveness = Liveness {
        node: &node.name,
        channels: Some(&[]),
        config_digest: "",
        redis_is_away: false,
        bucket: kind,
        status_report: Some(&NodeReport::default()),
        settings: None,
    };
    // A killed node counts as living for four seconds. A living node whose row is ahead of Postgres's clock writes it
    // again meanwhile.
    let patience = Instant::now() + Duration::from_secs(6);
    loop {
        let peers = node.store.heartbeat(&liveness).await?;
        let is_over = Instant::now() >= patience;
        let Some(other) = peers.incompatible.or(peers.incompatible_ahead.filter(|_| !is_over)) else {
            node.note_heartbeat();
            return Ok(());
        };
        if is_over {
            let _ = node.store.leave(&node.name).await;
            bail!(
                "[bucket] kind = \"{}\": node {other} runs on this database, and a bucket in memory cannot be shared; \
                 stop that node, or set kind = \"redis\" for both",
                kind.as_str(),
            );
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Repeats `work` while it fails because Postgres is away or takes no writes. A node that gave up would need somebody
/// to start it again.
///
/// # Errors
/// When `work` fails for another reason.
pub(super) async fn retry_during_outage<T>(
    waiting: &impl Fn(),
    work: impl AsyncFn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut has_warned = false;
    loop {
        let error = match work().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let is_outage = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<StoreError>().is_some_and(StoreError::is_outage)
        };
        let is_unfit = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<StoreError>().is_some_and(StoreError::is_unfit)
        };
        if !error.chain().any(is_outage) || error.chain().any(is_unfit) {
            return Err(error);
        }
        if !has_warned {
            has_warned = true;
            tracing::warn!("Postgres takes no writes; waiting for it: {}", chain(error.as_ref()));
        }
        waiting();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until Postgres answers; warns every ten seconds.
///
/// # Errors
/// When the schema is too old or rights are missing, or when the database cannot be used at all.
pub(super) async fn wait_for_schema(store: &Store, waiting: &impl Fn()) -> anyhow::Result<()> {
    let mut warned_at: Option<Instant> = None;
    loop {
        match fault_of(store).await {
            Ok(None) => return Ok(()),
            Ok(Some(fault)) => bail!(fault),
            Err(error) if error.is_unfit() => return Err(error.into()),
            Err(error) if error.is_outage() => {
                if warned_at.is_none_or(|at| at.elapsed() > Duration::from_secs(10)) {
                    warned_at = Some(Instant::now());
                    tracing::warn!(
                        error = %format_args!("failed to {}", chain(&error)),
                        "Postgres cannot be used yet; trying again"
                    );
                }
                waiting();
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Err(error) => return Err(error).context("failed to look at the database"),
        }
    }
}

/// The fault of a database that answers: missing rights or an old schema. `None` when there is no fault.
async fn fault_of(store: &Store) -> Result<Option<SchemaFault>, StoreError> {
    store.reach().await?;
    // The rights come first: without the right to use the schema, the next statement fails and names no missing right.
    match store.fault_of_rights().await? {
        Some(fault) => Ok(Some(fault)),
        None => store.fault_of_schema().await,
    }
}
