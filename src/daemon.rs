//! Runs one node: builds every room from the configuration, starts the loops, changes them on a
//! reload, and stops them in order. This room is the only one that knows all the others.
//!
//! It does not handle signals, systemd or exit codes: `cli` does.

mod channels;
mod exporting;
mod listeners;
mod publishing;
mod reloaded;
mod startup;
mod stop;
mod supervisor;
pub mod systemd;
mod workers;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::bank::Webhook;
use crate::bucket::{Bucket, BucketKind};
use crate::channel::AnswerRule;
use crate::config::{Config, Postgres, RecoverySection};
use crate::due_poller::DuePoller;
use crate::feeder::Feeder;
use crate::heartbeat::Heartbeat;
use crate::http::Api;
use crate::http::access::Access;
use crate::lock::Lock;
use crate::logs::chain;
use crate::metrics::Metrics;
use crate::node::progress::Progress;
use crate::node::{Node, NodeState};
use crate::notify::{LeasePatience, Notifier};
use crate::recovery::{Keep, Recovery};
use crate::refund::ChannelName;
use crate::settler::{OutcomesLeft, Settler};
use crate::store::{Settled, Store, StoreError};
use crate::wake_up::WakeUps;
use exporting::Exporting;
use listeners::Listeners;
use publishing::{Publisher, Publishing};
pub use reloaded::Reloaded;
use startup::{join, retry_during_outage, wait_for_schema};
pub use stop::Stopped;
use supervisor::Supervisor;
use workers::Workers;

/// A running node.
#[derive(Debug)]
pub struct Daemon {
    node: Node,
    /// The wake-ups of the buckets of sends.
    wake_ups: WakeUps,
    /// The wake-ups of the buckets of inquiries.
    inquiry_wake_ups: WakeUps,
    workers: Workers,
    supervisor: Supervisor,
    publishing: Publishing,
    config: Mutex<Arc<Config>>,
    /// The configuration of the start. The keys that need a restart keep its values, whatever a reload reads.
    started_with: Arc<Config>,
    /// The password of `password_file` with which it logs in.
    postgres_password: Mutex<Option<SecretString>>,
    access: Access,
    settler: JoinHandle<()>,
    unwritten: OutcomesLeft,
    listeners: Listeners,
    /// `None` without a collector of spans.
    exporting: Option<Exporting>,
}

/// Opens the store at `[postgres] url`, with at most `connections` connections.
///
/// # Errors
/// When the url cannot be parsed. An unreachable Postgres is no error: the first connection is made when it is
/// needed.
pub fn open_store(postgres: &Postgres, connections: u32) -> anyhow::Result<Store> {
    let password = postgres.password.as_ref().map(ExposeSecret::expose_secret);
    Store::open(postgres.url.expose_secret(), password, connections).context("[postgres] url")
}

/// A warning for each 2xx status for which the rules of a channel read the body and leave answers over. Those are `unknown`.
pub fn open_answer_warnings(config: &Config) -> impl Iterator<Item = String> {
    config.channels.values().flat_map(|channel| {
        AnswerRule::open_statuses(&channel.answer_rules).into_iter().map(move |status| {
            format!(
                "channel `{}` has rules with `pointer` for status {status}, and none without. An answer that they do not match and that has no `status` is `unknown`: end them with a rule that has `status = {status}` and no `pointer`",
                channel.name
            )
        })
    })
}

/// Logs what an operator should know about a configuration.
fn log_warnings(config: &Config, address: SocketAddr) {
    if config.callers.is_empty() {
        tracing::info!(
            "Every program that reaches {address} may use the HTTP interface: the configuration has no [caller.NAME]"
        );
    }
    let expiring = config.callers.warnings(jiff::Timestamp::now());
    for warning in expiring.into_iter().chain(config.warnings()).chain(open_answer_warnings(config)) {
        tracing::warn!("In the configuration, {warning}");
    }
}

impl Daemon {
    /// Starts a node. While Postgres is away, `start` waits for it and calls `waiting` twice a second.
    ///
    /// # Errors
    /// When the HTTP address is taken, or when the configuration does not fit Postgres, Redis or a living node.
    pub async fn start(config: Config, waiting: impl Fn()) -> anyhow::Result<Daemon> {
        let config = Arc::new(config);
        let bound = listeners::bind(&config.http)?;
        let webhook =
            config.notify.as_ref().map(Webhook::new).transpose().context("failed to prepare [notify]")?;
        let store = open_store(&config.postgres, config.postgres.connections)?;
        let redis = &config.redis;
        let bucket = match config.bucket.kind {
            BucketKind::Memory => Bucket::in_memory(redis.clock_tolerance).context("[bucket] kind")?,
            BucketKind::Redis => redis.open().context("[redis] url")?,
        };
        let mut node = NodeState::new(&config.node.name, store, bucket, Arc::new(Metrics::new()));
        let collector = config.telemetry.otlp.clone();
        let exporting = collector.map(|collector| Exporting::start(collector, &mut node));
        let node = Node::from(node);
        let wake_ups = WakeUps::of_sends(config.bucket.capacity);
        let supervisor = Supervisor::new(node.stop.clone());

        // Health checks are answered from here on, also while this node waits for Postgres.
        let nudged = wake_ups.clone();
        let nudge = Arc::new(move |channel: &ChannelName| nudged.nudge(channel));
        let api = Api::new(node.clone(), nudge, config.http.hosts.clone().into(), config.http.body_timeout);
        let access = api.access.clone();
        access.set(&config.callers);
        let listeners = bound.serve(&api, &config.http, &supervisor);
        log_warnings(&config, listeners.address);
        let failed_start = listeners.stop_signal().drop_guard();

        wait_for_schema(&node.store, &waiting).await?;
        if let Some(wrong_server) = node.bucket.wrong_server().await {
            bail!("{} {wrong_server}", redis.named());
        }
        let made = retry_during_outage(&waiting, async || {
            let made = Recovery::make_tables(&node.store).await;
            join(&node, config.bucket.kind).await.map(|()| made)
        })
        .await?;
        if let Err(error) = made {
            tracing::warn!(
                error = %chain(&error),
                "Failed to make the tables of the next days and months; the leading node will try it"
            );
        }
        let (outbox, inbox) = mpsc::channel::<Settled>(Settler::INBOX);
        let settler = Settler::new(node.clone(), inbox);
        let unwritten = settler.unwritten.clone();
        let settler = supervisor.spawn_apart("settler", node.stop.clone(), settler.run());
        let inquiry_wake_ups = WakeUps::of_inquiries();
        let workers = Workers::new(node.clone(), wake_ups.clone(), inquiry_wake_ups.clone(), outbox);

        let daemon = Daemon {
            config: Mutex::new(Arc::clone(&config)),
            started_with: Arc::clone(&config),
            postgres_password: Mutex::new(config.postgres.password.clone()),
            access,
            node,
            wake_ups,
            inquiry_wake_ups,
            workers,
            supervisor,
            publishing: Publishing::default(),
            settler,
            unwritten,
            listeners,
            exporting,
        };
        // Dropped before `daemon`: its workers end the settler, which must see the stop signal first.
        let failed_run = daemon.node.stop.clone().drop_guard();
        retry_during_outage(&waiting, async || daemon.run_channels(&config).await).await?;
        daemon.start_loops(&config, webhook);
        // It may take half a minute, so the start does not wait for it. No loop needs its result: what suspends channels is read
        // anew every second, and the refunds left behind are only counted.
        let clearing = Daemon::clear_up(daemon.node.clone(), Arc::clone(&daemon.publishing));
        let stop = failed_run.disarm();
        tokio::spawn(async move { stop.run_until_cancelled(clearing).await });
        failed_start.disarm();
        let address = daemon.address();
        if let Some(admin) = daemon.admin_address() {
            tracing::info!(http.admin_listen = %admin, "Health and metrics on {admin}");
        }
        tracing::info!(
            node = %daemon.node.name, http.listen = %address, channels = config.channels.len(),
            "Node {} runs {} channels; HTTP on {address}", daemon.node.name, config.channels.len(),
        );
        Ok(daemon)
    }

    fn start_loops(&self, config: &Config, webhook: Option<Webhook>) {
        let node = || self.node.clone();
        let start = &self.supervisor;
        start.spawn("heartbeat", Heartbeat::new(node(), config.bucket.kind).run());
        start.spawn("feeder", Feeder::new(node(), self.wake_ups.clone()).run());
        for wake_ups in [&self.wake_ups, &self.inquiry_wake_ups] {
            let name = DuePoller::name(wake_ups.purpose());
            start.spawn(name, DuePoller::new(node(), wake_ups.clone()).run());
        }
        let RecoverySection { keep_permits, keep_attempts, keep_events } = config.recovery;
        let keep = Keep { permits: keep_permits, attempts: keep_attempts, events: keep_events };
        start.spawn("recovery", Recovery::new(node(), self.wake_ups.clone(), keep).run());
        start.spawn("publisher", Publisher::new(node(), Arc::clone(&self.publishing)).run());
        if let Some(webhook) = webhook {
            start.spawn("notify", Notifier::new(node(), webhook, LeasePatience::default()).run());
        }
    }

    /// The address on which this node serves HTTP; it names the real port if the file says port 0.
    pub fn address(&self) -> SocketAddr {
        self.listeners.address
    }

    /// The address on which this node serves health and metrics alone, if it has one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.listeners.admin_address
    }

    /// The name of this process in leases; two processes never share one.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// The configuration that this node runs now.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.locked())
    }

    /// Replaces the configuration by a checked one.
    ///
    /// # Errors
    /// When a channel cannot be run, or when Postgres does not take the new channels. The node then keeps the old
    /// configuration.
    pub async fn reload(&self, new: Config) -> anyhow::Result<Reloaded> {
        let needs_restart = self.started_with.needs_restart(&new);
        let sections = self.config().changed_sections(&new);
        if let Some(why) = self.config().refuses(&new) {
            bail!(why);
        }
        self.take_password(&new).await.context("[postgres] password_file")?;
        let done = self.run_channels(&new).await?;
        // With no await between the new workers and the new callers, no slow statement lets a removed caller in.
        self.access.set(&new.callers);
        log_warnings(&new, self.address());
        self.listeners.take_over(&self.config().http, &new.http);
        *self.config.locked() = Arc::new(new);
        Self::clear_up(self.node.clone(), Arc::clone(&self.publishing)).await;
        Ok(Reloaded { sections, needs_restart, ..done })
    }

    /// Takes over a new password for Postgres. It comes first: after a change of the role's password the old one may let
    /// this node in no more, and nothing else could be reloaded. It stays, whatever becomes of the rest of the reload.
    async fn take_password(&self, new: &Config) -> Result<(), StoreError> {
        // A new address needs a restart, and its password belongs to it.
        let is_here = new.postgres.url.expose_secret() == self.started_with.postgres.url.expose_secret();
        let Some(password) = new.postgres.password.as_ref().filter(|_| is_here) else { return Ok(()) };
        let is_in_use = self
            .postgres_password
            .locked()
            .as_ref()
            .is_some_and(|used| used.expose_secret() == password.expose_secret());
        if !is_in_use {
            self.node.store.take_password(password.expose_secret()).await?;
            *self.postgres_password.locked() = Some(password.clone());
            tracing::info!("New connections to Postgres log in with the new password");
        }
        Ok(())
    }

    /// Counts a reload for the metrics page.
    pub fn count_reload(&self, result: &str) {
        self.node.metrics.config_reload(result);
    }

    /// The names of the loops that have been inside one pass for over a minute.
    pub fn stuck(&self) -> Vec<String> {
        self.node.progress.stuck(Progress::PATIENCE)
    }

    /// Waits until a loop crashes or ends by itself, and returns its name.
    pub async fn crashed(&self) -> String {
        self.supervisor.crashed().await
    }
}
