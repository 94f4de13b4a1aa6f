//! The counters of this node since it started, and the gauges of its banks.

mod bank;
mod of_channels;
mod traffic;

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::service::Readings;
use super::{ByChannel, PageFormat};
use crate::bucket::Purpose;
use crate::refund::{ChannelName, LimitName};
use bank::BankMetrics;
use of_channels::OfChannels;
use traffic::TrafficMetrics;

type Of<L> = Family<L, Counter>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    channel: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAnswer {
    channel: String,
    answer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    channel: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLimit {
    limit: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLimitAndAnswer {
    limit: String,
    answer: &'static str,
}

/// The counters and gauges of one node, and the page that shows them. Shared through an `Arc`.
pub struct Metrics {
    attempts: OfChannels<ByOutcome>,
    inquiries: OfChannels<ByOutcome>,
    takes: OfChannels<ByAnswer>,
    inquiry_takes: OfChannels<ByAnswer>,
    permits_unused: OfChannels<ByReason>,
    acquired: Of<ByLimitAndAnswer>,
    limit_has_stricter_rule: Family<ByLimit, Gauge>,
    filled: Of<ByChannel>,
    settled_late: Counter,
    late_answers_differ: Of<ByChannel>,
    stranded: Of<ByChannel>,
    recovery_failing: Gauge,
    traffic: TrafficMetrics,
    bank: BankMetrics,
    claim: Histogram,
    registry: Registry,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("refundd");
        let page = &mut registry;
        // In the order of the page. The help texts have no full stop: the encoder adds one.
        Metrics {
            attempts: OfChannels::shown(page, "attempts", "Attempts that ended on this node, by outcome"),
            inquiries: OfChannels::shown(
                page,
                "inquiries",
                "Inquiries that ended on this node, by outcome; the outcome `nothing` proves nothing",
            ),
            takes: OfChannels::shown(
                page,
                "takes",
                "Takes from a bucket, by answer: granted, denied, empty, forgot, clock_stepped or failed",
            ),
            inquiry_takes: OfChannels::shown(
                page,
                "inquiry_takes",
                "Takes from a bucket of inquiries, by answer: granted, denied, empty, forgot, clock_stepped or failed",
            ),
            permits_unused: OfChannels::shown(
                page,
                "permits_unused",
                "Permits that were granted and lapsed without a request to the bank, by reason",
            ),
            acquired: shown(
                page,
                "acquired",
                "Permits other services asked for through this node, by answer: granted, refused or paused",
            ),
            limit_has_stricter_rule: shown(
                page,
                "limit_overruled",
                "1 while another node's stricter rule of a limit is in force instead of this node's rule",
            ),
            filled: shown(page, "fed", "Refund ids that this node put into a bucket"),
            settled_late: shown(
                page,
                "settled_late",
                "Answers that came after their lease had ended; they are kept as evidence and moved no refund",
            ),
            late_answers_differ: shown(
                page,
                "late_answers_differ",
                "Answers that came after their lease had ended and contradict their refund, or whose refund Postgres has lost",
            ),
            stranded: shown(page, "stranded", "Stranded refunds that recovery put back into their bucket"),
            recovery_failing: shown(
                page,
                "recovery_failing",
                "1 while this node leads and a part of recovery fails, and up to half a minute after that; 0 otherwise",
            ),
            traffic: TrafficMetrics::new(page),
            bank: BankMetrics::new(page),
            claim: in_seconds(
                page,
                "claim",
                "Time to claim some refunds: to take their leases and write their permits to the ledger",
                claim_spans(),
            ),
            registry,
        }
    }

    /// Counts an attempt that ended, and measures the bank's time. An attempt that was handed back never reached the
    /// bank, so it is not measured.
    pub fn attempt(&self, channel: &ChannelName, outcome: &'static str, took: Duration) {
        let labels = ByOutcome { channel: channel.to_string(), outcome };
        self.attempts.of(channel, &labels).inc();
        if outcome != "handed_back" {
            let labels = ByChannel { channel: labels.channel };
            self.bank.times.get_or_create_owned(&labels).observe(took.as_secs_f64());
        }
    }

    /// Counts an inquiry that ended.
    pub fn inquiry(&self, channel: &ChannelName, outcome: &'static str) {
        let labels = ByOutcome { channel: channel.to_string(), outcome };
        self.inquiries.of(channel, &labels).inc();
    }

    /// Counts one take from a bucket.
    pub fn take(&self, channel: &ChannelName, purpose: Purpose, answer: &'static str) {
        let labels = ByAnswer { channel: channel.to_string(), answer };
        let takes = match purpose {
            Purpose::Send => &self.takes,
            Purpose::Inquire => &self.inquiry_takes,
        };
        takes.of(channel, &labels).inc();
    }

    /// Counts permits that lapsed without a request.
    pub fn permits_unused(&self, channel: &ChannelName, reason: &'static str, permits: u64) {
        let labels = ByReason { channel: channel.to_string(), reason };
        self.permits_unused.of(channel, &labels).inc_by(permits);
    }

    /// Counts permits that another service asked for.
    pub fn acquired(&self, limit: &LimitName, answer: &'static str, permits: u64) {
        let labels = ByLimitAndAnswer { limit: limit.to_string(), answer };
        self.acquired.get_or_create_owned(&labels).inc_by(permits);
    }

    /// Shows whether another node's stricter rule is in force for a limit.
    pub fn limit_has_stricter_rule(&self, limit: &LimitName, has_stricter_rule: bool) {
        let labels = ByLimit { limit: limit.to_string() };
        self.limit_has_stricter_rule.get_or_create_owned(&labels).set(i64::from(has_stricter_rule));
    }

    /// Counts ids that the feeder put into a bucket.
    pub fn filled(&self, channel: &ChannelName, ids: u64) {
        self.filled.get_or_create_owned(&ByChannel { channel: channel.to_string() }).inc_by(ids);
    }

    /// Counts an answer that came after its lease had ended.
    pub fn settled_late(&self) {
        self.settled_late.inc();
    }

    /// Begins counters of a channel at 0: a counter that appears at 1 has no increase, and its alarm would not ring.
    pub fn channel_begins(&self, channel: &ChannelName, purpose: Purpose) {
        for counters in [&self.late_answers_differ, &self.bank.first_bytes_late] {
            counters.get_or_create_owned(&ByChannel { channel: channel.to_string() });
        }
        let begin = |counters: &OfChannels<ByOutcome>, outcomes: &[&'static str]| {
            for &outcome in outcomes {
                counters.of(channel, &ByOutcome { channel: channel.to_string(), outcome });
            }
        };
        match purpose {
            Purpose::Send => begin(&self.attempts, &["succeeded", "accepted", "rejected", "unknown"]),
            Purpose::Inquire => begin(&self.inquiries, &["succeeded", "rejected"]),
        }
    }

    /// Removes the counters and gauges of a channel that this node runs no more, but for the two counters whose first increase
    /// rings an alarm. What still ends of the channel later, such as a request in flight, begins the others anew.
    pub fn forget(&self, channel: &ChannelName) {
        for counters in [&self.attempts, &self.inquiries] {
            counters.forget(channel);
        }
        for counters in [&self.takes, &self.inquiry_takes] {
            counters.forget(channel);
        }
        self.permits_unused.forget(channel);
        let labels = ByChannel { channel: channel.to_string() };
        for counters in [&self.filled, &self.stranded] {
            counters.remove(&labels);
        }
        self.bank.forget(channel);
    }

    /// Counts a late answer that contradicts its refund, or whose refund Postgres has lost.
    pub fn late_answer_differs(&self, channel: &str) {
        self.late_answers_differ.get_or_create_owned(&ByChannel { channel: channel.to_owned() }).inc();
    }

    /// Counts stranded refunds that recovery put back.
    pub fn stranded(&self, channel: &ChannelName, refunds: u64) {
        self.stranded.get_or_create_owned(&ByChannel { channel: channel.to_string() }).inc_by(refunds);
    }

    /// Shows whether this node leads and a part of recovery fails.
    pub fn recovery_fails(&self, is_failing: bool) {
        self.recovery_failing.set(is_failing.into());
    }

    /// Measures one claim.
    pub fn claim(&self, took: Duration) {
        self.claim.observe(took.as_secs_f64());
    }

    /// The page for a scraper: this node's metrics, and the gauges of `readings`.
    #[must_use]
    pub fn page(&self, readings: &Readings<'_>, format: PageFormat) -> String {
        let mut page = String::new();
        let written = encode_registry(&mut page, &self.registry)
            .and_then(|()| encode_registry(&mut page, &readings.registry()))
            .and_then(|()| encode_eof(&mut page));
        debug_assert!(written.is_ok(), "writing to a string does not fail");
        format.of(page)
    }
}

/// A new metric, put on the page.
fn shown<M: Metric + Clone + Default>(page: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    page.register(name, help, metric.clone());
    metric
}

/// This metric of times, put on the page.
fn in_seconds<M: Metric + Clone>(page: &mut Registry, name: &str, help: &str, metric: M) -> M {
    page.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

fn claim_spans() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0])
}
