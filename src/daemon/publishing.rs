//! Publishes the channels and rules that this node runs: at the start, at each reload, and again when a node that ran others
//! is gone or a failover lost them.
//!
//! The node that publishes last wins. Recovery, the feeder and the checks of producers obey what was published, whether or
//! not a living node runs it. So the leading node looks whether somebody published since it did, and then publishes its own.
//!
//! While living nodes run different files it does nothing: then the last start or reload counts. Only the addresses of banks
//! that Postgres lost are added again by each node, whatever the others run: claims need the address of their own node.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::config::Config;
use crate::failing::Failing;
use crate::logs::chain;
use crate::node::liveness::{CALM, HAS_SEEN_ALL};
use crate::node::running::Running;
use crate::node::{Node, jittered};
use crate::refund::{AmountBounds, LimitName};
use crate::store::{OtherRule, Published, StoreError};

/// Held by a start or a reload from before it publishes until the node runs what it published, and while breakers are switched off
/// by what the node runs.
pub(super) type Publishing = Arc<Mutex<()>>;

/// Publishes what the node is about to run, and above which amounts its file asks for a second person.
///
/// The bound comes last: only the owner of the schema can take it back, so a refused reload must not have written it.
///
/// # Errors
/// When Postgres does not take it. The newest rules and channels are then those that the node runs, unless Postgres refuses
/// these, too.
pub(super) async fn publish_new(
    node: &Node,
    new: &Running,
    second_person_above: &AmountBounds,
) -> Result<(), StoreError> {
    let rules = publish_rules(node, new).await?;
    let (channels, done) = match publish_channels(node, new).await {
        Ok(channels) => (channels, node.store.publish_second_person(&node.name, second_person_above).await),
        Err(error) => (0, Err(error)),
    };
    let Err(error) = done else {
        warn_of_other_bounds(node, second_person_above).await;
        return Ok(());
    };
    // `prove` judges by the newest rules, and this node goes on with the old ones.
    if rules + channels > 0
        && let Err(error) = publish_rules_and_channels(node, &node.running()).await
    {
        tracing::warn!(
            error = %chain(&error),
            "Failed to publish the channels and rules that stay in force; the leading node will try it"
        );
    }
    Err(error)
}

/// Names the bounds of other files: each counts beside this file's bound, until the owner of the schema takes it back. The
/// new configuration is published by then, so a failure is only logged.
async fn warn_of_other_bounds(node: &Node, own: &AmountBounds) {
    let others = match node.store.other_second_person(own).await {
        Ok(others) => others,
        Err(error) => {
            tracing::warn!(
                error = %chain(&error),
                "Failed to look whether other files ask for a second person above other amounts"
            );
            return;
        }
    };
    for OtherRule { above, node, published_at } in others {
        let since = published_at.map_or_else(String::new, |at| format!(" since {at}"));
        tracing::warn!(
            node = %node, above = %above,
            "Another file asks for a second person above {above}, recorded by node {node}{since}. It counts beside this node's file \
             until the owner of the schema deletes it from refundd.second_person"
        );
    }
}

/// Answers how many rules and how many channels changed.
async fn publish_rules_and_channels(node: &Node, running: &Running) -> Result<(u64, u64), StoreError> {
    Ok((publish_rules(node, running).await?, publish_channels(node, running).await?))
}

/// Answers how many rules changed.
async fn publish_rules(node: &Node, running: &Running) -> Result<u64, StoreError> {
    let rules = running.limits.iter().map(|limit| (&limit.name, &limit.rule));
    node.store.publish_rules(&node.name, rules).await
}

/// Answers how many channels changed.
async fn publish_channels(node: &Node, running: &Running) -> Result<u64, StoreError> {
    node.store.publish(&node.name, &published(running)).await
}

/// The channels of a configuration, as a node publishes them.
fn published(running: &Running) -> Vec<Published> {
    running.channels.iter().map(|channel| Published::of(channel, Config::public_settings(channel))).collect()
}

/// The loop that publishes again. The heartbeat leaves it to a loop of its own, because ten thousand channels may take seconds.
#[derive(Debug)]
pub(super) struct Publisher {
    node: Node,
    publishing: Publishing,
    /// A configuration that Postgres was seen to have as published last, and the mark of that; `None` if nothing is known.
    seen: Option<(Arc<Running>, String)>,
    /// Since when every pass found this node speaking for all.
    calm_since: Option<Instant>,
}

impl Publisher {
    const PERIOD: Duration = Duration::from_secs(3);

    pub fn new(node: Node, publishing: Publishing) -> Self {
        Publisher { node, publishing, seen: None, calm_since: None }
    }

    pub async fn run(mut self) {
        let stop = self.node.stop.clone();
        let mut failing = Failing::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(jittered(Self::PERIOD)) => {}
            }
            let is_lost = self.node.publication_lost.swap(false, Ordering::Relaxed);
            let is_calm = self.has_long_spoken_for_all();
            if !is_lost && !is_calm {
                continue;
            }
            let done = tokio::select! {
                () = stop.cancelled() => return,
                done = self.pass(is_lost, is_calm) => done,
            };
            failing.note(
                &done,
                |error| {
                    tracing::warn!(
                        error = %chain(error),
                        "Failed to publish this node's channels and limits again, will try again"
                    );
                },
                || tracing::info!("Publishing channels and limits works again"),
            );
        }
    }

    /// Whether this node leads, and every living node has run what it runs for a while.
    fn has_long_spoken_for_all(&mut self) -> bool {
        if !self.speaks_for_all() {
            self.calm_since = None;
            return false;
        }
        self.calm_since.get_or_insert_with(Instant::now).elapsed() >= CALM
    }

    /// Whether this node leads, and every living node runs what it runs.
    fn speaks_for_all(&self) -> bool {
        let node = &self.node;
        let has_seen_all = node.leads_for().is_some_and(|led| led >= HAS_SEEN_ALL);
        has_seen_all && node.writes_to_postgres() && !node.differs.load(Ordering::Relaxed)
    }

    async fn pass(&mut self, is_lost: bool, is_calm: bool) -> Result<(), StoreError> {
        if is_lost {
            self.add_addresses().await?;
        }
        if is_calm { self.publish_if_changed().await } else { Ok(()) }
    }

    /// Adds the addresses of this node's banks, if Postgres lost them, and forgets what it was seen to have.
    async fn add_addresses(&mut self) -> Result<(), StoreError> {
        self.seen = None;
        let channels = published(&self.node.running());
        let added =
            self.node.store.publish_addresses(&self.node.name, &channels).await.inspect_err(|_| {
                self.node.publication_lost.store(true, Ordering::Relaxed);
            })?;
        if added > 0 {
            tracing::warn!(
                addresses = added,
                "Postgres had lost {added} addresses of banks, as after a failover: this node published them again"
            );
        }
        Ok(())
    }

    /// Publishes what this node runs, unless Postgres was seen to have that and nobody has published since.
    async fn publish_if_changed(&mut self) -> Result<(), StoreError> {
        let running = self.node.running();
        let limits: Vec<LimitName> = running.limits.iter().map(|limit| limit.name.clone()).collect();
        let Some(mark) = self.node.store.published_mark(&limits).await? else { return Ok(()) };
        let is_seen = |(seen, of): &(Arc<Running>, String)| Arc::ptr_eq(seen, &running) && *of == mark;
        if self.seen.as_ref().is_some_and(is_seen) {
            return Ok(());
        }
        // A reload under way publishes by itself.
        let Ok(_publishing) = self.publishing.try_lock() else { return Ok(()) };
        if !Arc::ptr_eq(&running, &self.node.running()) {
            return Ok(());
        }
        let (rules, channels) = publish_rules_and_channels(&self.node, &running).await?;
        if rules + channels > 0 {
            tracing::info!(
                channels,
                rules,
                "Postgres had other channels and limits than all living nodes run, from a node that is gone or after a failover: \
                 this node published its own again"
            );
        }
        // A failover may lose what was written now, and bring the old mark back. So only what needed no change was seen.
        self.seen = (rules + channels == 0).then_some((running, mark));
        Ok(())
    }
}
