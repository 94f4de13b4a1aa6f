//! Makes the workers of a channel: one for sends and, if its bank can be asked, one for inquiries.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::blocked::ObstacleReport;
use super::waits::Waits;
use super::{ChannelWorker, Inquiries, RedisNotices, Sends, Work};
use crate::bank::{Bank, Pool, Tokens};
use crate::bucket::Purpose;
use crate::channel::Channel;
use crate::node::Node;
use crate::node::effective_limits::EffectiveLimits;
use crate::node::reach::Reach;
use crate::store::Settled;
use crate::wake_up::WakeUps;

/// What a worker needs to make requests.
struct Means {
    connections: Pool,
    tokens: Option<Tokens>,
    /// The most requests in progress.
    slots: u32,
}

impl ChannelWorker<Sends> {
    /// The worker that sends a channel's refunds.
    pub fn sends(
        node: Node,
        wake_ups: WakeUps,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        outbox: mpsc::Sender<Settled>,
        stop: CancellationToken,
    ) -> Self {
        let (connections, tokens) = (bank.connections().clone(), bank.tokens().cloned());
        let means = Means { connections, tokens, slots: channel.max_in_flight };
        let lead_time = node.lead_times_of_sends.of(&channel.name);
        let sends = Sends::new(outbox, lead_time, node.status_report.meter(&channel.name));
        Self::new(node, wake_ups, channel, bank, means, sends, stop)
    }
}

impl ChannelWorker<Inquiries> {
    /// The worker that asks a channel's bank; `None` for a channel without an inquiry.
    pub fn inquiries(
        node: Node,
        wake_ups: WakeUps,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        stop: CancellationToken,
    ) -> Option<Self> {
        let inquiry = Arc::clone(channel.inquiry.as_ref()?);
        let (connections, tokens) = (bank.inquiry_connections()?.clone(), bank.inquiry_tokens().cloned());
        let channel = match &inquiry.limits {
            None => channel,
            // When the bank asks to slow down, that slows the channel's limits and not the inquiry's own limits.
            Some(limits) => {
                Arc::new(Channel { limits: limits.clone(), adaptive: false, ..channel.as_ref().clone() })
            }
        };
        let means = Means { connections, tokens, slots: (channel.max_in_flight / 4).max(1) };
        let of_sends = node.lead_times_of_sends.of(&channel.name);
        let inquiries = Inquiries::new(inquiry, &channel.limits, of_sends);
        Some(Self::new(node, wake_ups, channel, bank, means, inquiries, stop))
    }
}

impl<W: Work> ChannelWorker<W> {
    fn new(
        node: Node,
        wake_ups: WakeUps,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        Means { connections, tokens, slots }: Means,
        work: W,
        stop: CancellationToken,
    ) -> Self {
        let is_of_sends = W::PURPOSE == Purpose::Send;
        node.metrics.channel_begins(&channel.name, W::PURPOSE);
        ChannelWorker {
            waits: Waits::new(is_of_sends.then(|| node.status_report.meter(&channel.name))),
            effective_limits: EffectiveLimits::new(node.clone(), Arc::clone(&channel)),
            reach: Reach::new(node.clone(), &channel, W::PURPOSE),
            blocked: ObstacleReport::new(node.clone(), channel.name.clone(), W::PURPOSE),
            slots: node.slots.of(&channel.name, W::PURPOSE, slots),
            node,
            wake_ups,
            channel,
            bank,
            connections,
            tokens,
            stop,
            work,
            depth: None,
            is_rare: false,
            probe: None,
            most_wanted: u32::MAX,
            forgot: false,
            prefetched: Vec::new(),
            met_unclaimable: false,
            outdated_claims: 0,
            // Nodes that died before this worker began may have left turns. So has this channel's worker before a reload.
            notices: RedisNotices { departed: true, ..RedisNotices::default() },
        }
    }
}
