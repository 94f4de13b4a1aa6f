//! Starts, replaces and stops the workers of each channel, at the start and on each reload.
//!
//! A changed channel gets new workers. The old workers take no more refunds and let their requests in
//! flight finish. They hand back the refunds that they have not begun, so no permit granted under an old
//! rule is used. Requests in flight keep their slots, which old and new workers share (`node::slots`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Reloaded;
use super::supervisor::Supervisor;
use crate::bank::Bank;
use crate::channel::Channel;
use crate::channel_worker::ChannelWorker;
use crate::lock::Lock;
use crate::node::Node;
use crate::refund::ChannelName;
use crate::store::Settled;
use crate::wake_up::WakeUps;

#[derive(Debug)]
pub(super) struct Workers {
    node: Node,
    /// The wake-ups of the buckets of sends.
    wake_ups: WakeUps,
    /// The wake-ups of the buckets of inquiries.
    inquiry_wake_ups: WakeUps,
    outbox: mpsc::Sender<Settled>,
    running: Mutex<HashMap<ChannelName, RunningChannel>>,
    longest_call: Mutex<Duration>,
}

/// What the workers of a channel were started with.
#[derive(Debug)]
struct RunningChannel {
    channel: Arc<Channel>,
    /// The number of the system's roots.
    roots: u64,
    stop: CancellationToken,
}

impl Workers {
    pub fn new(
        node: Node,
        wake_ups: WakeUps,
        inquiry_wake_ups: WakeUps,
        outbox: mpsc::Sender<Settled>,
    ) -> Self {
        let (running, longest_call) = (Mutex::default(), Mutex::default());
        Workers { node, wake_ups, inquiry_wake_ups, outbox, running, longest_call }
    }

    /// Makes a client for each channel.
    ///
    /// # Errors
    /// When a client cannot be made, for example because of its root certificates.
    pub fn banks(channels: &[Arc<Channel>]) -> anyhow::Result<HashMap<ChannelName, Bank>> {
        channels
            .iter()
            .map(|channel| Ok((channel.name.clone(), Bank::new(channel)?)))
            .collect::<Result<_, crate::bank::BankError>>()
            .map_err(|error| anyhow::Error::new(error).context("failed to prepare a channel"))
    }

    /// Starts, replaces and stops workers until they match `channels`, and those without roots of their own `roots`, the number of
    /// the system's roots.
    pub fn fit(
        &self,
        channels: &[Arc<Channel>],
        mut banks: HashMap<ChannelName, Bank>,
        roots: u64,
        supervisor: &Supervisor,
    ) -> Reloaded {
        let calls = channels.iter().map(|channel| channel.timeout + channel.connect_timeout);
        let longest = calls.chain([self.longest_call()]).max().unwrap_or_default();
        *self.longest_call.locked() = longest;
        let mut done = Reloaded::default();
        let mut running = self.running.locked();
        let gone: Vec<ChannelName> =
            running.keys().filter(|name| channels.iter().all(|c| c.name != **name)).cloned().collect();
        for name in gone {
            if let Some(old) = running.remove(&name) {
                old.stop.cancel();
                self.node.note_change(&name);
                self.node.forget(&name);
                done.stopped.push(name);
            }
        }
        for channel in channels {
            match running.get(&channel.name) {
                Some(old) if old.channel == *channel && (old.roots == roots || channel.roots.is_some()) => {
                    continue;
                }
                Some(old) => {
                    old.stop.cancel();
                    self.node.note_change(&channel.name);
                    done.changed.push(channel.name.clone());
                }
                None => done.started.push(channel.name.clone()),
            }
            let Some(bank) = banks.remove(&channel.name) else { continue };
            let bank = Arc::new(bank);
            let stop = self.node.stop.child_token();
            let started = RunningChannel { channel: Arc::clone(channel), roots, stop: stop.clone() };
            running.insert(channel.name.clone(), started);
            let sends = ChannelWorker::sends(
                self.node.clone(),
                self.wake_ups.clone(),
                Arc::clone(channel),
                Arc::clone(&bank),
                self.outbox.clone(),
                stop.clone(),
            );
            supervisor.spawn_until(sends.name(), stop.clone(), sends.run());
            let inquiries = ChannelWorker::inquiries(
                self.node.clone(),
                self.inquiry_wake_ups.clone(),
                Arc::clone(channel),
                bank,
                stop.clone(),
            );
            if let Some(inquiries) = inquiries {
                supervisor.spawn_until(inquiries.name(), stop, inquiries.run());
            }
        }
        done
    }

    /// The longest time-outs of a channel since the start. After a reload, requests run on under those of the old configuration.
    pub fn longest_call(&self) -> Duration {
        *self.longest_call.locked()
    }

    /// Signals all workers to stop; does not wait for their end.
    pub fn stop(&self) {
        for one in self.running.locked().values() {
            one.stop.cancel();
        }
    }
}
