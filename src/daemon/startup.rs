//! What a node waits for before it runs: a Postgres that takes writes, a schema that is new enough, and company that
//! it can work beside.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::config::BucketKind;
use crate::node::Node;
use crate::store::{Beat, Store, StoreError};
use crate::telemetry::chain;

/// Puts this node on the list of those that live, unless it cannot work beside one that does.
pub(super) async fn join(node: &Node, kind: BucketKind) -> anyhow::Result<()> {
    let beat = Beat {
        node: &node.name,
        channels: Some(&[]),
        config_digest: "",
        redis_is_away: false,
        bucket: kind.as_str(),
        standing: Some(&serde_json::json!({})),
    };
    // One that was killed is taken for alive for four seconds.
    let patience = Instant::now() + Duration::from_secs(6);
    loop {
        let Some(other) = node.store.beat(&beat).await?.alone else {
            return Ok(());
        };
        if Instant::now() >= patience {
            let _ = node.store.leave(&node.name).await;
            bail!(
                "[bucket] kind = \"{}\": node {other} runs on this database, and a bucket in memory cannot be shared; \
                 stop that node, or give both kind = \"redis\"",
                kind.as_str(),
            );
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Does something again for as long as Postgres is away in between, or takes no writes: a node that gives
/// up its start is one that somebody has to start.
pub(super) async fn while_away<T>(
    waiting: &impl Fn(),
    work: impl AsyncFn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut told = false;
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
        if !told {
            told = true;
            tracing::warn!("Postgres takes no writes; waiting for it: {error:#}");
        }
        waiting();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

pub(super) async fn wait_for_schema(store: &Store, waiting: &impl Fn()) -> anyhow::Result<()> {
    let mut told: Option<Instant> = None;
    loop {
        match fault_of(store).await {
            Ok(None) => return Ok(()),
            Ok(Some(fault)) => bail!(fault),
            Err(error) if error.is_unfit() => return Err(error.into()),
            Err(error) if error.is_outage() => {
                if told.is_none_or(|at| at.elapsed() > Duration::from_secs(10)) {
                    told = Some(Instant::now());
                    tracing::warn!(
                        error = %chain(&error),
                        "Postgres does not answer; waiting for it"
                    );
                }
                waiting();
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Err(error) => return Err(error).context("failed to look at the database"),
        }
    }
}

/// What is wrong with a database that answers.
async fn fault_of(store: &Store) -> Result<Option<String>, StoreError> {
    store.reach().await?;
    // First, or whoever may not use the schema learns only that.
    let (role, lacking) = store.lacking_rights().await?;
    if !lacking.is_empty() {
        return Ok(Some(format!(
            "[postgres] url: the role `{role}` lacks rights that a node needs ({}): as the owner of the schema, run \
             config/node-role.sql (again after each `refundd migrate`) and `grant refundd_node to \"{role}\"`; or name the owner in the url",
            lacking.join(", ")
        )));
    }
    let schema = store.schema().await?;
    Ok((!schema.is_enough()).then(|| {
        format!(
            "the database's schema is at version {} and this refundd needs {}: run `refundd migrate`",
            schema.applied, schema.known
        )
    }))
}
