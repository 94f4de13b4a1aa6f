//! The dispatchers, one for each channel, and whoever asks its bank, made to fit the configuration at start and on each reload.
//!
//! A changed channel gets a new dispatcher. The old one takes no more, hands back what it has not
//! begun (so no permit granted under old numbers is used), and lets its calls in flight finish.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Reloaded;
use super::supervisor::Supervisor;
use crate::bank::Bank;
use crate::channel::Channel;
use crate::channel_worker::ChannelWorker;
use crate::inquiry::Inquirer;
use crate::lock::Lock;
use crate::node::Node;
use crate::refund::ChannelName;
use crate::store::Settled;
use crate::wake_up::WakeUps;

#[derive(Debug)]
pub(super) struct Lanes {
    node: Node,
    /// Of sends, and of inquiries.
    wake_ups: WakeUps,
    wake_ups_to_ask: WakeUps,
    outbox: mpsc::Sender<Settled>,
    clock_tolerance: Duration,
    running: Mutex<HashMap<ChannelName, (Arc<Channel>, CancellationToken)>>,
}

impl Lanes {
    pub fn new(
        node: Node,
        wake_ups: WakeUps,
        wake_ups_to_ask: WakeUps,
        outbox: mpsc::Sender<Settled>,
        clock_tolerance: Duration,
    ) -> Self {
        Lanes { node, wake_ups, wake_ups_to_ask, outbox, clock_tolerance, running: Mutex::default() }
    }

    /// A client for each channel, or the reason why one cannot be made.
    pub fn banks(channels: &[Arc<Channel>]) -> anyhow::Result<HashMap<ChannelName, Bank>> {
        channels
            .iter()
            .map(|channel| Ok((channel.name.clone(), Bank::new(channel)?)))
            .collect::<Result<_, crate::bank::BankError>>()
            .map_err(|error| anyhow::Error::new(error).context("failed to prepare a channel"))
    }

    /// Starts, changes and stops dispatchers until they fit `channels`.
    pub fn fit(
        &self,
        channels: &[Arc<Channel>],
        mut banks: HashMap<ChannelName, Bank>,
        supervisor: &Supervisor,
    ) -> Reloaded {
        let mut done = Reloaded::default();
        let mut running = self.running.locked();
        let gone: Vec<ChannelName> =
            running.keys().filter(|name| channels.iter().all(|c| c.name != **name)).cloned().collect();
        for name in gone {
            if let Some((_, stop)) = running.remove(&name) {
                stop.cancel();
                done.stopped.push(name);
            }
        }
        for channel in channels {
            match running.get(&channel.name) {
                Some((old, _)) if same(old, channel) => continue,
                Some((_, stop)) => {
                    stop.cancel();
                    done.changed.push(channel.name.clone());
                }
                None => done.started.push(channel.name.clone()),
            }
            let Some(bank) = banks.remove(&channel.name) else { continue };
            let bank = Arc::new(bank);
            let stop = self.node.stop.child_token();
            running.insert(channel.name.clone(), (Arc::clone(channel), stop.clone()));
            let dispatcher = ChannelWorker::new(
                self.node.clone(),
                self.wake_ups.clone(),
                Arc::clone(channel),
                Arc::clone(&bank),
                self.outbox.clone(),
                self.clock_tolerance,
                stop.clone(),
            );
            supervisor.spawn_until(format!("dispatcher of {}", channel.name), stop.clone(), dispatcher.run());
            let inquirer = Inquirer::new(
                self.node.clone(),
                self.wake_ups_to_ask.clone(),
                Arc::clone(channel),
                bank,
                self.clock_tolerance,
                stop.clone(),
            );
            if let Some(inquirer) = inquirer {
                supervisor.spawn_until(format!("inquirer of {}", channel.name), stop, inquirer.run());
            }
        }
        done
    }

    /// Ends all dispatchers.
    pub fn stop(&self) {
        for (_, stop) in self.running.locked().values() {
            stop.cancel();
        }
    }
}

/// Whether a dispatcher may go on as it is.
fn same(a: &Channel, b: &Channel) -> bool {
    let secret = |c: &Channel| c.authorization.as_ref().map(|s| s.expose_secret().to_owned());
    // Debug prints every field, and secrets as REDACTED.
    format!("{a:?}") == format!("{b:?}") && secret(a) == secret(b)
}
