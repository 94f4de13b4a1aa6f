//! Brings a configuration's channels into force, at the start and on each reload.

use std::sync::Arc;

use super::publishing::{Publishing, publish_new};
use super::workers::Workers;
use super::{Daemon, Reloaded};
use crate::bank::refresh_system_roots;
use crate::channel::Channel;
use crate::config::Config;
use crate::logs::chain;
use crate::node::Node;
use crate::node::running::Running;

impl Daemon {
    /// Publishes a configuration's channels, then starts, replaces and stops channel workers to match it.
    pub(super) async fn run_channels(&self, config: &Config) -> anyhow::Result<Reloaded> {
        let channels: Vec<Arc<Channel>> = config.channels.values().cloned().collect();
        let roots = refresh_system_roots();
        // The clients come first: a channel without a usable client must fail the reload before anything changes.
        let banks = Workers::banks(&channels)?;
        let running = Running {
            channels: channels.clone(),
            limits: config.limits.values().cloned().collect(),
            digest: config.digest(),
            settings: config.public_sections(),
        };
        let _publishing = self.publishing.lock().await;
        self.node.publish_days(&running.limits).await?;
        // This is the last step that may fail the reload: after it, all nodes know where these channels send.
        publish_new(&self.node, &running, &config.second_person_above).await?;
        warn_of_other_placements(&self.node.running(), &running);
        warn_of_other_limits(&self.node.running(), &running);
        self.node.set_running(running);
        config.group(&self.node.bucket);
        self.wake_ups.set_capacity(config.bucket.capacity);
        Ok(self.workers.fit(&channels, banks, roots, &self.supervisor))
    }

    /// Ends and reports what an earlier configuration left behind. It may take half a minute, so the new configuration
    /// is in force before.
    pub(super) async fn clear_up(node: Node, publishing: Publishing) {
        switch_breakers_off(&node, &publishing).await;
        warn_of_refunds_left_behind(&node, &node.running().channels).await;
    }
}

async fn warn_of_refunds_left_behind(node: &Node, channels: &[Arc<Channel>]) {
    let places: Vec<_> = channels.iter().map(|channel| (&channel.name, channel.bank_address())).collect();
    match node.store.left_behind(places).await {
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
}

/// Ends the breakers' suspensions of channels that have no breaker now. All nodes know the new configuration by then,
/// so a failure is only logged.
async fn switch_breakers_off(node: &Node, publishing: &Publishing) {
    // A reload waits until the statement is over. Else it might turn on a breaker whose suspension the statement then ends.
    let _publishing = publishing.lock().await;
    let running = node.running();
    let without: Vec<&str> =
        running.channels.iter().filter(|c| c.breaker.is_none()).map(|c| c.name.as_str()).collect();
    if let Err(error) = node.store.switch_breakers_off(&without, &node.name).await {
        tracing::warn!(
            error = %chain(&error),
            "Failed to end the breaker's suspension of channels whose breaker the configuration switches off; if one of them is \
             still suspended, reload once more, or use `refundd resume CHANNEL --breaker`"
        );
    }
}

/// Nodes that count a limit in Redis do not look at shares, so both counts may be used up while files differ.
fn warn_of_other_placements(before: &Running, after: &Running) {
    for limit in &after.limits {
        let old = before.limits.iter().find(|old| old.name == limit.name);
        if old.is_some_and(|old| old.shares().is_some() != limit.shares().is_some()) {
            tracing::warn!(
                limit.name = %limit.name,
                "Limit `{}` has another `placement` now: until all nodes are reloaded, and for one more `per`, nodes together may \
                 send more than it allows. Pause its channels meanwhile", limit.name,
            );
        }
    }
}

/// Permits that were spent under a limit do not count under another one.
fn warn_of_other_limits(before: &Running, after: &Running) {
    for channel in &after.channels {
        let Some(old) = before.channel(&channel.name).filter(|old| *old != channel) else { continue };
        let (old, new) = (Config::public_settings(old), Config::public_settings(channel));
        for advice in Config::exchange_advice(channel.name.as_str(), &old, &new) {
            tracing::warn!(channel.name = %channel.name, "{advice}");
        }
    }
}
