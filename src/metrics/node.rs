//! The counters of this node since it started, and the gauges of its banks.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::PageFormat;
use super::service::Readings;
use crate::bank::AddressTimes;
use crate::bucket::Purpose;
use crate::refund::{ChannelName, Code, LimitName};

type Of<L> = Family<L, Counter>;
type Span = Family<ByChannel, Gauge<f64, AtomicU64>>;
type Spans = Family<ByChannel, Histogram, fn() -> Histogram>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByChannel {
    channel: String,
}

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
struct ByCode {
    channel: String,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    channel: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPurpose {
    channel: String,
    purpose: &'static str,
}

impl ByPurpose {
    fn of(channel: &ChannelName, purpose: Purpose) -> Self {
        let purpose = match purpose {
            Purpose::Send => "send",
            Purpose::Inquire => "inquire",
        };
        ByPurpose { channel: channel.to_string(), purpose }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    channel: String,
    reason: &'static str,
}

/// Of what concerns no channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    channel: String,
    status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWay {
    way: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: String,
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
    attempts: Of<ByOutcome>,
    inquiries: Of<ByOutcome>,
    takes: Of<ByAnswer>,
    inquiry_takes: Of<ByAnswer>,
    permits_unused: Of<ByReason>,
    acquired: Of<ByLimitAndAnswer>,
    limit_has_stricter_rule: Family<ByLimit, Gauge>,
    filled: Of<ByChannel>,
    settled_late: Counter,
    late_answers_differ: Of<ByChannel>,
    stranded: Of<ByChannel>,
    saved: Of<ByWay>,
    http_refused_callers: Of<ByCause>,
    config_reloads: Of<ByResult>,
    notify_deliveries: Of<ByResult>,
    unmapped_answers: Of<ByStatus>,
    first_bytes_late: Of<ByChannel>,
    bank: Spans,
    breaker_trips: Of<ByKind>,
    bank_connected: Family<ByPurpose, Gauge>,
    bank_connect_failures: Of<ByCode>,
    bank_set_up: Span,
    bank_round_trip: Span,
    bank_round_trip_variation: Span,
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
            attempts: shown(page, "attempts", "Attempts that ended on this node, by outcome"),
            inquiries: shown(
                page,
                "inquiries",
                "Inquiries that ended on this node, by outcome; the outcome `nothing` proves nothing",
            ),
            takes: shown(
                page,
                "takes",
                "Takes from a bucket, by answer: granted, denied, empty, forgot, clock_stepped or failed",
            ),
            inquiry_takes: shown(
                page,
                "inquiry_takes",
                "Takes from a bucket of inquiries, by answer: granted, denied, empty, forgot, clock_stepped or failed",
            ),
            permits_unused: shown(
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
                "Answers that came after their lease had ended and contradict their refund",
            ),
            stranded: shown(page, "stranded", "Stranded refunds that recovery put back into their bucket"),
            saved: shown(
                page,
                "saved",
                "Refunds newly saved through this node, by the way they came: http or http_batch",
            ),
            http_refused_callers: shown(
                page,
                "http_refused_callers",
                "HTTP requests that were refused because of their caller, by reason",
            ),
            config_reloads: shown(
                page,
                "config_reloads",
                "Times the configuration file was read again, by result",
            ),
            notify_deliveries: shown(
                page,
                "notify_deliveries",
                "Messages to the receiver of webhooks, by result: delivered or failed",
            ),
            unmapped_answers: shown(
                page,
                "unmapped_answers",
                "Answers of a bank that no rule covers, counted as unknown; status is none if there was no HTTP status",
            ),
            first_bytes_late: shown(
                page,
                "first_bytes_late",
                "First bytes that left after their permit had closed, because the process was stalled",
            ),
            bank: in_seconds(
                page,
                "bank",
                "Time from the first byte of a request to the bank to the end of its answer",
                Spans::new_with_constructor(bank_spans),
            ),
            breaker_trips: shown(
                page,
                "breaker_trips",
                "Breakers of channels that this node tripped, by kind: rejected or unknown",
            ),
            bank_connected: shown(
                page,
                "bank_connected",
                "1 while this node can open connections to a channel's bank, to send or to inquire, 0 while that fails; absent before the first try",
            ),
            bank_connect_failures: shown(
                page,
                "bank_connect_failures",
                "Connections to a bank that could not be opened, by code, including those for inquiries",
            ),
            bank_set_up: in_seconds(
                page,
                "bank_set_up",
                "Time to set up a connection to a bank: DNS, TCP and TLS, smoothed",
                Span::default(),
            ),
            bank_round_trip: in_seconds(
                page,
                "bank_round_trip",
                "Round trip to a bank, as the kernel measures it",
                Span::default(),
            ),
            bank_round_trip_variation: in_seconds(
                page,
                "bank_round_trip_variation",
                "How much the round trip to a bank varies, as the kernel measures it",
                Span::default(),
            ),
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
        self.attempts.get_or_create_owned(&labels).inc();
        if outcome != "handed_back" {
            let labels = ByChannel { channel: labels.channel };
            self.bank.get_or_create_owned(&labels).observe(took.as_secs_f64());
        }
    }

    /// Counts an inquiry that ended.
    pub fn inquiry(&self, channel: &ChannelName, outcome: &'static str) {
        let labels = ByOutcome { channel: channel.to_string(), outcome };
        self.inquiries.get_or_create_owned(&labels).inc();
    }

    /// Counts one take from a bucket.
    pub fn take(&self, channel: &ChannelName, purpose: Purpose, answer: &'static str) {
        let labels = ByAnswer { channel: channel.to_string(), answer };
        let takes = match purpose {
            Purpose::Send => &self.takes,
            Purpose::Inquire => &self.inquiry_takes,
        };
        takes.get_or_create_owned(&labels).inc();
    }

    /// Counts permits that lapsed without a request.
    pub fn permits_unused(&self, channel: &ChannelName, reason: &'static str, permits: u64) {
        let labels = ByReason { channel: channel.to_string(), reason };
        self.permits_unused.get_or_create_owned(&labels).inc_by(permits);
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

    /// Begins the counter of a channel at 0: a counter that appears at 1 has no increase, and its alarm would not ring.
    pub fn channel_begins(&self, channel: &ChannelName) {
        self.late_answers_differ.get_or_create_owned(&ByChannel { channel: channel.to_string() });
    }

    /// Counts a late answer that contradicts its refund.
    pub fn late_answer_differs(&self, channel: &str) {
        self.late_answers_differ.get_or_create_owned(&ByChannel { channel: channel.to_owned() }).inc();
    }

    /// Counts stranded refunds that recovery put back.
    pub fn stranded(&self, channel: &ChannelName, refunds: u64) {
        self.stranded.get_or_create_owned(&ByChannel { channel: channel.to_string() }).inc_by(refunds);
    }

    /// Counts refunds newly saved; `way` is `http` or `http_batch`.
    pub fn saved(&self, way: &'static str, refunds: u64) {
        self.saved.get_or_create_owned(&ByWay { way }).inc_by(refunds);
    }

    /// Counts a request that was refused because of its caller.
    pub fn caller_refused(&self, reason: &'static str) {
        self.http_refused_callers.get_or_create_owned(&ByCause { reason }).inc();
    }

    /// Counts a reading of the configuration file.
    pub fn config_reload(&self, result: &str) {
        self.config_reloads.get_or_create_owned(&ByResult { result: result.to_owned() }).inc();
    }

    /// Counts a message to the receiver of webhooks; `result` is `delivered` or `failed`.
    pub fn notified(&self, result: &str) {
        self.notify_deliveries.get_or_create_owned(&ByResult { result: result.to_owned() }).inc();
    }

    /// Counts a breaker that this node tripped.
    pub fn breaker_tripped(&self, channel: &ChannelName, kind: &'static str) {
        self.breaker_trips.get_or_create_owned(&ByKind { channel: channel.to_string(), kind }).inc();
    }

    /// Counts a first byte that left after its permit had closed.
    pub fn first_byte_late(&self, channel: &ChannelName) {
        self.first_bytes_late.get_or_create_owned(&ByChannel { channel: channel.to_string() }).inc();
    }

    /// Counts an answer that no rule covers; `None` if it had no HTTP status.
    pub fn unmapped_answer(&self, channel: &ChannelName, status: Option<u16>) {
        let status = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        self.unmapped_answers.get_or_create_owned(&ByStatus { channel: channel.to_string(), status }).inc();
    }

    /// Shows whether connections to a channel's bank can be opened.
    pub fn bank_connected(&self, channel: &ChannelName, purpose: Purpose, is: bool) {
        self.bank_connected.get_or_create_owned(&ByPurpose::of(channel, purpose)).set(is.into());
    }

    /// Counts connections that could not be opened.
    pub fn connect_failures(&self, channel: &ChannelName, code: Code, failures: u64) {
        let labels = ByCode { channel: channel.to_string(), code: code.as_str() };
        self.bank_connect_failures.get_or_create_owned(&labels).inc_by(failures);
    }

    /// Shows how far away a bank is.
    pub fn bank_distance(&self, channel: &ChannelName, reading: AddressTimes) {
        let spans = [
            (&self.bank_set_up, reading.set_up),
            (&self.bank_round_trip, reading.round_trip),
            (&self.bank_round_trip_variation, reading.round_trip_variation),
        ];
        for (gauge, span) in spans {
            if let Some(span) = span {
                gauge
                    .get_or_create_owned(&ByChannel { channel: channel.to_string() })
                    .set(span.as_secs_f64());
            }
        }
    }

    /// Removes the gauge of a channel's inquiry address.
    pub fn forget_inquiry_address(&self, channel: &ChannelName) {
        self.bank_connected.remove(&ByPurpose::of(channel, Purpose::Inquire));
    }

    /// Removes the gauges of a channel's bank.
    pub fn forget_bank(&self, channel: &ChannelName) {
        let labels = ByChannel { channel: channel.to_string() };
        self.bank_connected.remove(&ByPurpose::of(channel, Purpose::Send));
        for gauge in [&self.bank_set_up, &self.bank_round_trip, &self.bank_round_trip_variation] {
            gauge.remove(&labels);
        }
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

/// Buckets from a bank nearby to the longest time-out that is usual.
fn bank_spans() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

fn claim_spans() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0])
}
