//! Counters with the name of a channel and one more label, which can be removed by the channel alone.
//!
//! A [`Family`] removes only labels that its caller can name, and nobody lists all codes and HTTP statuses of a bank.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Metric, Registry};

use super::shown;
use crate::lock::Lock;
use crate::refund::ChannelName;

pub(super) struct OfChannels<L> {
    counters: Family<L, Counter>,
    /// The labels that were counted, by channel.
    labels_of: Mutex<HashMap<ChannelName, Vec<L>>>,
}

impl<L: Clone + Eq + Hash> OfChannels<L> {
    /// New counters, put on the page.
    pub fn shown(page: &mut Registry, name: &str, help: &str) -> Self
    where
        Family<L, Counter>: Metric,
    {
        OfChannels { counters: shown(page, name, help), labels_of: Mutex::default() }
    }

    /// The counter with these labels, which name this channel.
    pub fn of(&self, channel: &ChannelName, labels: &L) -> Counter {
        if let Some(counter) = self.counters.get(labels) {
            return counter.clone();
        }
        let counter = self.counters.get_or_create_owned(labels);
        self.labels_of.locked().entry(channel.clone()).or_default().push(labels.clone());
        counter
    }

    /// Removes the counters of a channel.
    pub fn forget(&self, channel: &ChannelName) {
        for labels in self.labels_of.locked().remove(channel).into_iter().flatten() {
            self.counters.remove(&labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::encoding::text::encode_registry;

    use super::*;
    use crate::bank::AddressTimes;
    use crate::bucket::Purpose;
    use crate::metrics::Metrics;
    use crate::refund::Code;

    #[test]
    fn a_channel_that_is_forgotten_leaves_only_what_rings_an_alarm_and_another_keeps_all_of_its_lines() {
        let metrics = Metrics::new();
        let [acme, globex] = ["acme", "globex"].map(|name| ChannelName::new(name).unwrap());
        let span = Duration::from_millis(40);
        for channel in [&acme, &globex] {
            for purpose in [Purpose::Send, Purpose::Inquire] {
                metrics.channel_begins(channel, purpose);
                metrics.take(channel, purpose, "granted");
                metrics.bank_connected(channel, purpose, true);
            }
            metrics.attempt(channel, "review", span);
            metrics.inquiry(channel, "pending");
            metrics.permits_unused(channel, "late", 1);
            metrics.filled(channel, 1);
            metrics.late_answer_differs(channel.as_str());
            metrics.stranded(channel, 1);
            metrics.first_byte_late(channel);
            metrics.unmapped_answer(channel, Some(418));
            metrics.breaker_tripped(channel, "unknown");
            metrics.connect_failures(channel, Code::ConnectFailed, 1);
            let measured = Some(span);
            let reading =
                AddressTimes { set_up: measured, round_trip: measured, round_trip_variation: measured };
            metrics.bank_distance(channel, reading);
        }
        let lines = |channel: &ChannelName| {
            let mut page = String::new();
            encode_registry(&mut page, &metrics.registry).unwrap();
            let label = format!("channel=\"{channel}\"");
            let mut lines: Vec<String> =
                page.lines().filter(|line| line.contains(&label)).map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let of_globex = lines(&globex);
        assert_eq!(lines(&acme).len(), of_globex.len());
        metrics.forget(&acme);
        let rings = [
            "refundd_first_bytes_late_total{channel=\"acme\"} 1",
            "refundd_late_answers_differ_total{channel=\"acme\"} 1",
        ];
        assert_eq!(lines(&acme), rings);
        assert_eq!(lines(&globex), of_globex);
        // A request that was in flight ends.
        metrics.attempt(&acme, "review", span);
        let counter = "refundd_attempts_total{channel=\"acme\",outcome=\"review\"} 1".to_owned();
        assert!(lines(&acme).contains(&counter));
        metrics.forget(&acme);
        assert_eq!(lines(&acme), rings);
    }
}
