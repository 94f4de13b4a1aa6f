//! The gauges of all channels, from Postgres and this node, at the moment of a scrape.
//!
//! Each scrape builds the gauges anew, so a channel that is gone leaves no gauge behind: the census goes on counting a retired
//! channel, and its gauges end with its last refund that had not ended. All nodes show the same
//! figures from Postgres: take one node's, or the maximum, never the sum. Nine gauges are this node's own:
//! `bucket_depth`, `census_age`, `channel_blocked`, `channel_bound`, `limit_wait`, `postgres_up`, `saves_fail`, `snapshot_held` and
//! `redis_up`.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::ByChannel;
use crate::refund::{ChannelName, State};
use crate::store::ChannelCensus;
use crate::store::SuspendedBy::{All, Breaker, Cooling, Credentials, Person};

type Count = Gauge<u64, AtomicU64>;
type Measure = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    channel: String,
    by: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    channel: String,
    state: &'static str,
}

/// What a scrape reads from Postgres and the node.
#[derive(Debug, Default)]
pub struct Readings<'a> {
    /// `None` when Postgres did not answer, or before the first count.
    pub census: Option<&'a [ChannelCensus]>,
    /// The time since the last good count began.
    pub census_age: Option<Duration>,
    /// The age of the oldest line of the journal that is not sealed.
    pub unsealed: Option<Duration>,
    /// The age of the oldest line of the journal that was not delivered by webhooks.
    pub undelivered: Option<Duration>,
    /// For how long this node has seen the oldest snapshot in Postgres.
    pub snapshot_held: Option<Duration>,
    /// How many proposals wait for a second person, by channel. `None` when Postgres did not answer.
    pub proposals: Option<Vec<(String, u64)>>,
    /// How many ids each bucket had when this node last looked.
    pub depths: HashMap<ChannelName, u64>,
    /// The channels of which this node can take or claim nothing, and by what they are blocked.
    pub blocked: Vec<(ChannelName, &'static str)>,
    /// The channels that something binds on this node, and what.
    pub bound: Vec<(ChannelName, &'static str)>,
    /// The channels that wait long for a limit, and how much longer.
    pub waits: HashMap<ChannelName, Duration>,
    /// Whether Postgres answered this scrape and takes this node's heartbeats.
    pub postgres_is_up: bool,
    /// Whether no refund can be saved through this node although Postgres may answer.
    pub saves_fail: bool,
    /// Whether this node reaches Redis.
    pub redis_is_up: bool,
}

impl Readings<'_> {
    /// The channels that have gauges.
    fn channels(&self) -> impl Iterator<Item = &ChannelCensus> {
        self.census.unwrap_or_default().iter().filter(|channel| channel.is_in_use())
    }

    pub(super) fn registry(&self) -> Registry {
        let refunds = Family::<ByState, Count>::default();
        let oldest = Family::<ByChannel, Measure>::default();
        let paused = Family::<ByChannel, Count>::default();
        let suspended = Family::<ByCause, Count>::default();
        let slowed = Family::<ByChannel, Count>::default();
        let late = Family::<ByChannel, Count>::default();
        let cooling = Family::<ByChannel, Count>::default();
        let nothing_accepted = Family::<ByChannel, Measure>::default();
        let full = Family::<ByChannel, Count>::default();
        let nodes = Family::<ByChannel, Count>::default();
        let depth = Family::<ByChannel, Count>::default();
        let blocked = Family::<ByCause, Count>::default();
        let bound = Family::<ByCause, Count>::default();
        let wait = Family::<ByChannel, Measure>::default();
        for channel in self.channels() {
            let by_channel = ByChannel { channel: channel.channel.clone() };
            for state in State::ALL {
                let labels = ByState { channel: channel.channel.clone(), state: state.as_str() };
                let count = channel.counts.get(&state).copied().unwrap_or(0);
                refunds.get_or_create_owned(&labels).set(count);
            }
            let age = channel.oldest_ready_age.unwrap_or_default();
            oldest.get_or_create_owned(&by_channel).set(age.as_secs_f64());
            for by in [All, Breaker, Credentials, Person] {
                let labels = ByCause { channel: channel.channel.clone(), by: by.as_str() };
                let is_so = channel.suspension(by).is_some();
                suspended.get_or_create_owned(&labels).set(is_so.into());
            }
            paused.get_or_create_owned(&by_channel).set(channel.pause().is_some().into());
            cooling.get_or_create_owned(&by_channel).set(channel.suspension(Cooling).is_some().into());
            let refused_for =
                channel.nothing_accepted.as_ref().map_or(Duration::ZERO, |refusing| refusing.lasts);
            nothing_accepted.get_or_create_owned(&by_channel).set(refused_for.as_secs_f64());
            full.get_or_create_owned(&by_channel).set(channel.full.into());
            nodes.get_or_create_owned(&by_channel).set(channel.run_by.len() as u64);
            late.get_or_create_owned(&by_channel).set(channel.late.map_or(0, |(refunds, _)| refunds));
            slowed.get_or_create_owned(&by_channel).set(channel.slowed.unwrap_or(100).into());
        }
        for (channel, ids) in &self.depths {
            depth.get_or_create_owned(&ByChannel { channel: channel.to_string() }).set(*ids);
        }
        for (channel, by) in &self.blocked {
            blocked.get_or_create_owned(&ByCause { channel: channel.to_string(), by }).set(1);
        }
        for (channel, by) in &self.bound {
            bound.get_or_create_owned(&ByCause { channel: channel.to_string(), by }).set(1);
        }
        for (channel, left) in &self.waits {
            wait.get_or_create_owned(&ByChannel { channel: channel.to_string() }).set(left.as_secs_f64());
        }
        let mut page = Registry::with_prefix("refundd");
        page.register("refunds", "Refunds in Postgres, by channel and state", refunds);
        page.register("bucket_depth", "Refund ids in a bucket in Redis, as this node last saw it", depth);
        page.register_with_unit(
            "oldest_ready",
            "How long the longest due refund has been due; zero if none is",
            Unit::Seconds,
            oldest,
        );
        page.register("channel_paused", "1 while a channel is paused", paused);
        page.register(
            "channel_suspended",
            "1 while this suspends a channel: a person paused all or the channel, the bank refuses the credentials, or the breaker tripped",
            suspended,
        );
        page.register("channel_cooling", "1 while a channel waits because the bank asked to wait", cooling);
        page.register_with_unit(
            "nothing_accepted",
            "How long the bank of a channel has refused every send; zero while it does not, or while nothing was sent for a minute",
            Unit::Seconds,
            nothing_accepted,
        );
        page.register(
            "channel_blocked",
            "1 while this node can take or claim nothing of a channel: redis or postgres fails, or their clocks disagree; else absent",
            blocked,
        );
        page.register(
            "channel_bound",
            "1 for what kept a channel from sending faster on this node in the last minute: limit, quota, in_flight, bank, paused, cooling or breaker; else absent",
            bound,
        );
        page.register("channel_nodes", "Living nodes that run a channel", nodes);
        page.register(
            "backlog_full",
            "1 while a channel's backlog is full and new refunds are refused",
            full,
        );
        page.register_with_unit(
            "limit_wait",
            "How much longer a channel waits for a limit on this node; absent for waits below 30 s",
            Unit::Seconds,
            wait,
        );
        page.register(
            "channel_rate_percent",
            "The share of its configured rate that a channel may use; below 100 after the bank asked for fewer requests",
            slowed,
        );
        page.register(
            "refunds_late",
            "Refunds that will miss their deadlines at the rate of the channel's limits",
            late,
        );
        let ages = [
            (
                "journal_unsealed",
                "The age of the oldest line of the journal that is not sealed; zero if every line is",
                self.unsealed,
            ),
            (
                "notify_lag",
                "The age of the oldest line of the journal that the receiver of webhooks has not taken; zero if none waits",
                self.undelivered,
            ),
            (
                "census_age",
                "The age of the last count of refunds that succeeded: the gauges by channel are from it, but what suspends channels is newer",
                self.census_age,
            ),
            (
                "snapshot_held",
                "How long this node has seen the oldest snapshot or open transaction in Postgres, which cleans up nothing newer",
                self.snapshot_held,
            ),
        ];
        for (name, help, age) in ages {
            let Some(age) = age else { continue };
            let measure = Measure::default();
            measure.set(age.as_secs_f64());
            page.register_with_unit(name, help, Unit::Seconds, measure);
        }
        if let Some(waiting) = &self.proposals {
            let proposals = Family::<ByChannel, Count>::default();
            for channel in self.channels() {
                proposals.get_or_create_owned(&ByChannel { channel: channel.channel.clone() }).set(0);
            }
            for (channel, count) in waiting {
                proposals.get_or_create_owned(&ByChannel { channel: channel.clone() }).set(*count);
            }
            page.register(
                "proposals_waiting",
                "Decisions that wait for a second person's approval",
                proposals,
            );
        }
        page.register(
            "postgres_up",
            "Whether Postgres answered this scrape and takes this node's heartbeats",
            flag(self.postgres_is_up),
        );
        page.register(
            "saves_fail",
            "1 while no refund can be saved over HTTP on this node, whatever the refund",
            flag(self.saves_fail),
        );
        page.register("redis_up", "Whether this node reaches Redis", flag(self.redis_is_up));
        page
    }
}

fn flag(is: bool) -> Count {
    let gauge = Count::default();
    gauge.set(is.into());
    gauge
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_channel_has_gauges_only_while_a_refund_of_it_has_not_ended() {
        let gauges_of = |is_retired, counts: &[(State, u64)]| {
            let counts = counts.iter().copied().collect();
            let census = [ChannelCensus {
                channel: "acme".to_owned(),
                counts,
                is_retired,
                ..ChannelCensus::default()
            }];
            let readings = Readings {
                census: Some(&census),
                proposals: Some(Vec::new()),
                postgres_is_up: true,
                redis_is_up: true,
                ..Readings::default()
            };
            let mut page = String::new();
            prometheus_client::encoding::text::encode_registry(&mut page, &readings.registry()).unwrap();
            page.matches("channel=\"acme\"").count()
        };
        let ended = [(State::Succeeded, 9), (State::Failed, 1), (State::Cancelled, 1), (State::Ready, 0)];
        assert_eq!(gauges_of(true, &ended), 0);
        let all = gauges_of(false, &ended);
        assert!(all > State::ALL.len(), "{all}");
        for open in [State::Ready, State::Sending, State::Accepted, State::Unknown, State::Review] {
            assert_eq!(gauges_of(true, &[(State::Succeeded, 9), (open, 1)]), all, "{open}");
        }
    }
}
