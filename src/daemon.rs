//! Runs one node: builds every room from the configuration, starts the loops, changes them on a
//! reload, and stops them in order. This room is the only one that knows all the others.
//!
//! It does not handle signals, systemd or exit codes: `cli` does.

mod listeners;
mod startup;
mod supervisor;
pub mod systemd;
mod workers;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use secrecy::ExposeSecret;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::bucket::Bucket;
use crate::channel::Channel;
use crate::config::{BucketKind, Config};
use crate::due_poller::DuePoller;
use crate::feeder::Feeder;
use crate::heartbeat::Heartbeat;
use crate::http::Api;
use crate::lock::Lock;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::node::running::Running;
use crate::recovery::{Keep, Recovery};
use crate::refund::{ChannelName, OnUnknown};
use crate::settler::Settler;
use crate::store::{Published, Settled, Store};
use crate::telemetry::chain;
use crate::wake_up::WakeUps;
use listeners::Listeners;
use startup::{join, retry_during_outage, wait_for_schema};
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
    config: Mutex<Arc<Config>>,
    settler: JoinHandle<()>,
    listeners: Listeners,
}

/// The result of a reload.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    pub started: Vec<ChannelName>,
    pub changed: Vec<ChannelName>,
    pub stopped: Vec<ChannelName>,
    /// Changed keys that take effect only at a restart, such as `redis.url`.
    pub needs_restart: Vec<String>,
}

/// The result of a stop.
#[derive(Debug, Default)]
pub struct Stopped {
    /// The ids of refunds still under this node's lease; a refund becomes `unknown` when its lease ends.
    pub still_leased: Vec<i64>,
}

/// Opens the store at `[postgres] url`, with at most `connections` connections.
///
/// # Errors
/// When the url cannot be parsed. An unreachable Postgres is no error: the first connection is made when it is
/// needed.
pub fn open_store(config: &Config, connections: u32) -> anyhow::Result<Store> {
    let password = config.postgres.password.as_ref().map(ExposeSecret::expose_secret);
    Store::open(config.postgres.url.expose_secret(), password, connections).context("[postgres] url")
}

impl Daemon {
    /// Starts a node. While Postgres is away, `start` waits for it and calls `waiting` twice a second.
    ///
    /// # Errors
    /// When the HTTP address is taken, or when the configuration does not fit Postgres, Redis or a living node.
    pub async fn start(config: Config, waiting: impl Fn()) -> anyhow::Result<Daemon> {
        let config = Arc::new(config);
        let bound = listeners::bind(&config.http)?;
        let store = open_store(&config, config.postgres.connections)?;
        let redis = &config.redis;
        let bucket = match config.bucket.kind {
            BucketKind::Memory => Bucket::in_memory(redis.clock_tolerance).context("[bucket] kind")?,
            BucketKind::Redis => {
                Bucket::open(redis.url.expose_secret(), &redis.key_prefix, redis.clock_tolerance)
                    .context("[redis] url")?
            }
        };
        let node = Node::new(&config.node.name, store, bucket, Arc::new(Metrics::new()));
        let wake_ups = WakeUps::of_sends(config.bucket.capacity);
        let supervisor = Supervisor::new(node.stop.clone());

        // Health checks are answered from here on, also while this node waits for Postgres.
        let nudged = wake_ups.clone();
        let nudge = Arc::new(move |channel: &ChannelName| nudged.nudge(channel));
        let api = Api::new(node.clone(), nudge, config.http.hosts.clone().into(), config.http.body_timeout);
        let listeners = bound.serve(&api, &config.http, &supervisor);
        let failed_start = listeners.stop_signal().drop_guard();

        wait_for_schema(&node.store, &waiting).await?;
        if let Some(wrong_server) = node.bucket.wrong_server().await {
            bail!("{} {wrong_server}", redis.named());
        }
        retry_during_outage(&waiting, async || join(&node, config.bucket.kind).await).await?;
        let (outbox, inbox) = mpsc::channel::<Settled>(Settler::INBOX);
        let settler =
            supervisor.spawn_apart("settler", node.stop.clone(), Settler::new(node.clone(), inbox).run());
        let inquiry_wake_ups = WakeUps::of_inquiries();
        let workers = Workers::new(node.clone(), wake_ups.clone(), inquiry_wake_ups.clone(), outbox);

        let daemon = Daemon {
            config: Mutex::new(Arc::clone(&config)),
            node,
            wake_ups,
            inquiry_wake_ups,
            workers,
            supervisor,
            settler,
            listeners,
        };
        retry_during_outage(&waiting, async || daemon.run_channels(&config).await).await?;
        daemon.start_loops(&config);
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

    fn start_loops(&self, config: &Config) {
        let node = || self.node.clone();
        let start = &self.supervisor;
        let bucket = config.bucket.kind.as_str();
        start.spawn("heartbeat", Heartbeat::new(node(), bucket).run());
        start.spawn("feeder", Feeder::new(node(), self.wake_ups.clone()).run());
        for wake_ups in [&self.wake_ups, &self.inquiry_wake_ups] {
            let name = DuePoller::name(wake_ups.purpose());
            start.spawn(name, DuePoller::new(node(), wake_ups.clone()).run());
        }
        let keep = Keep { permits: config.recovery.keep_permits, attempts: config.recovery.keep_attempts };
        start.spawn("recovery", Recovery::new(node(), self.wake_ups.clone(), keep).run());
    }

    /// Publishes a configuration's channels, then starts, replaces and stops channel workers to match it.
    async fn run_channels(&self, config: &Config) -> anyhow::Result<Reloaded> {
        let channels: Vec<Arc<Channel>> = config.channels.values().cloned().collect();
        let published: Vec<Published> = channels
            .iter()
            .map(|channel| Published {
                name: channel.name.clone(),
                endpoint: channel.bank_address().endpoint,
                settings: Config::public_settings(channel),
                max_backlog: channel.max_backlog,
                on_unknown: match channel.on_unknown {
                    OnUnknown::Review => "review",
                    OnUnknown::Inquire => "inquire",
                    OnUnknown::Resend { .. } => "resend",
                },
                inquires: channel.inquiry.is_some(),
                resend_within: channel.resend_within(),
                most_sends: channel.retry.sends,
                bank_address: channel.bank_address(),
            })
            .collect();
        // The clients come first: a channel without a usable client must fail the reload before anything changes.
        let banks = Workers::banks(&channels)?;
        let rules = config.limits.values().map(|limit| (&limit.name, &limit.rule));
        self.node.store.publish_rules(&self.node.name, rules).await?;
        self.node.share_days(config.limits.values()).await?;
        // This is the last step that may fail the reload: after it, all nodes know where these channels send.
        self.node.store.publish(&self.node.name, &published).await?;
        let places = channels.iter().map(|channel| (&channel.name, channel.bank_address()));
        match self.node.store.left_behind(places).await {
            Ok(left) => {
                for left in left {
                    tracing::warn!(channel.name = left.channel, refunds = left.refunds, "{left}");
                }
            }
            Err(error) => tracing::warn!(
                error = %chain(&error),
                "Failed to count the refunds that may have been sent to an earlier address of their channel"
            ),
        }
        self.node.set_running(Running {
            channels: channels.clone(),
            limits: config.limits.values().cloned().collect(),
            digest: config.digest(),
        });
        let limits = config.limits.values().map(AsRef::as_ref);
        self.node.bucket.group(config.channels.values().map(AsRef::as_ref), limits);
        self.wake_ups.set_capacity(config.bucket.capacity);
        Ok(self.workers.fit(&channels, banks, &self.supervisor))
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
        let needs_restart = self.config().needs_restart(&new);
        let done = self.run_channels(&new).await?;
        self.listeners.take_over(&self.config().http, &new.http);
        *self.config.locked() = Arc::new(new);
        Ok(Reloaded { needs_restart, ..done })
    }

    /// Counts a reload for the metrics page.
    pub fn count_reload(&self, result: &str) {
        self.node.metrics.config_reload(result);
    }

    /// The names of the loops that have been inside one pass for over a minute.
    pub fn stuck(&self) -> Vec<String> {
        self.node.progress.stuck(Duration::from_mins(1))
    }

    /// Waits until a loop crashes or ends by itself, and returns its name.
    pub async fn crashed(&self) -> String {
        self.supervisor.crashed().await
    }

    /// Stops in order: takes no more refunds, lets requests in flight finish and settles them. The result names the
    /// refunds that stay leased. When `hurry` is cancelled, the waits for loops, requests and outcomes end a second
    /// later.
    pub async fn stop(self, hurry: CancellationToken) -> Stopped {
        let longest =
            self.config().channels.values().map(|c| c.timeout + c.connect_timeout).max().unwrap_or_default();
        let bounded = |limit: Duration| {
            let hurry = hurry.clone();
            async move {
                tokio::select! {
                    () = tokio::time::sleep(limit) => {}
                    () = async { hurry.cancelled().await; tokio::time::sleep(Duration::from_secs(1)).await } => {}
                }
            }
        };
        let began = Instant::now();
        self.listeners.stop_signal().cancel();
        self.node.stop.cancel();
        self.workers.stop();
        let in_flight = self.node.calls.len();
        tracing::info!(
            calls = in_flight,
            "Stopping: taking no more refunds; {in_flight} calls to banks are under way"
        );
        self.supervisor.finished(bounded(Duration::from_secs(40))).await;
        self.node.calls.close();
        tokio::select! {
            () = self.node.calls.wait() => {}
            () = bounded(longest + Duration::from_secs(2)) => {
                tracing::warn!(calls = self.node.calls.len(), "Stopped waiting for calls that are still under way");
            }
        }
        // The workers own the last senders of the settler's channel. Once they are dropped, the settler writes the
        // outcomes that it still has, and ends.
        drop(self.workers);
        let mut settler = self.settler;
        tokio::select! {
            _ = &mut settler => {}
            () = bounded(Duration::from_secs(20)) => tracing::warn!("Stopped waiting for outcomes to be written"),
        }
        tokio::select! {
            () = self.listeners.finished() => {}
            () = bounded(Duration::from_secs(6)) => {}
        }
        let mut stopped = Stopped::default();
        if let Ok(Ok(left)) =
            tokio::time::timeout(Duration::from_secs(3), self.node.store.leased_by(&self.node.name)).await
        {
            for (id, channel) in left {
                tracing::warn!(
                    refund.id = id,
                    channel.name = channel,
                    "Refund {id} is left under this node's lease; it becomes unknown when the lease ends"
                );
                stopped.still_leased.push(id);
            }
            let _ =
                tokio::time::timeout(Duration::from_secs(3), self.node.store.leave(&self.node.name)).await;
            let _ =
                tokio::time::timeout(Duration::from_secs(3), self.node.store.leave_shares(&self.node.name))
                    .await;
        } else {
            tracing::warn!(
                "Postgres does not answer; refunds under this node's lease become unknown when their leases end"
            );
        }
        tracing::info!(
            duration_ms = began.elapsed().as_millis(),
            left = stopped.still_leased.len(),
            "Stopped"
        );
        stopped
    }
}
