//! What this node did since it started.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::service::Readings;
use crate::bank::Reading;
use crate::bucket::Errand;
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
    outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAnswer {
    channel: String,
    answer: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCode {
    channel: String,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    channel: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    channel: String,
    status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWay {
    way: String,
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
    answer: String,
}

/// The counters of one node, and the page they stand on. Shared through an `Arc`.
pub struct Metrics {
    registry: Registry,
    attempts: Of<ByOutcome>,
    inquiries: Of<ByOutcome>,
    takes: Of<ByAnswer>,
    inquiry_takes: Of<ByAnswer>,
    permits_unused: Of<ByReason>,
    acquired: Of<ByLimitAndAnswer>,
    limit_overruled: Family<ByLimit, Gauge>,
    fed: Of<ByChannel>,
    settled_late: Counter,
    stranded: Of<ByChannel>,
    saved: Of<ByWay>,
    config_reloads: Of<ByResult>,
    unmapped_answers: Of<ByStatus>,
    first_bytes_late: Of<ByChannel>,
    bank: Spans,
    bank_connected: Family<ByChannel, Gauge>,
    bank_connect_failures: Of<ByCode>,
    bank_set_up: Span,
    bank_round_trip: Span,
    bank_round_trip_variation: Span,
    claim: Histogram,
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
        let mut metrics = Metrics {
            registry: Registry::with_prefix("refundd"),
            attempts: Of::default(),
            inquiries: Of::default(),
            takes: Of::default(),
            inquiry_takes: Of::default(),
            permits_unused: Of::default(),
            acquired: Of::default(),
            limit_overruled: Family::default(),
            fed: Of::default(),
            settled_late: Counter::default(),
            stranded: Of::default(),
            saved: Of::default(),
            config_reloads: Of::default(),
            unmapped_answers: Of::default(),
            first_bytes_late: Of::default(),
            bank: Spans::new_with_constructor(bank_spans),
            bank_connected: Family::default(),
            bank_connect_failures: Of::default(),
            bank_set_up: Span::default(),
            bank_round_trip: Span::default(),
            bank_round_trip_variation: Span::default(),
            claim: claim_spans(),
        };
        metrics.register();
        metrics
    }

    // The page adds the full stop.
    fn register(&mut self) {
        let page = &mut self.registry;
        page.register(
            "attempts",
            "Attempts that ended on this node, by what they came to",
            self.attempts.clone(),
        );
        page.register(
            "inquiries",
            "Inquiries that ended on this node, by what the bank said: nothing proves nothing",
            self.inquiries.clone(),
        );
        page.register(
            "takes",
            "Questions to a bucket, by answer: granted, denied or empty",
            self.takes.clone(),
        );
        page.register(
            "inquiry_takes",
            "Questions to a bucket of inquiries, by answer: granted, denied or empty",
            self.inquiry_takes.clone(),
        );
        page.register(
            "permits_unused",
            "Permits that were granted and lapsed without a request to the bank, by reason",
            self.permits_unused.clone(),
        );
        page.register(
            "acquired",
            "Permits other services asked for through this node, by answer: granted or refused",
            self.acquired.clone(),
        );
        page.register(
            "limit_overruled",
            "1 while another node's file is stricter about a limit than this node's, and rules",
            self.limit_overruled.clone(),
        );
        page.register("fed", "Refund ids this node put in line", self.fed.clone());
        page.register(
            "settled_late",
            "Answers that came after their lease had passed on; kept as evidence, they moved nothing",
            self.settled_late.clone(),
        );
        page.register(
            "stranded",
            "Refunds that recovery found left behind, by a node or by Redis, and took up again",
            self.stranded.clone(),
        );
        page.register(
            "saved",
            "Refunds newly saved through this node, by the way they came: http or http_batch",
            self.saved.clone(),
        );
        page.register(
            "config_reloads",
            "Times the configuration file was read again, by result",
            self.config_reloads.clone(),
        );
        page.register(
            "unmapped_answers",
            "Answers of a bank that no rule covers, counted as unknown; status is none if there was no HTTP status",
            self.unmapped_answers.clone(),
        );
        page.register(
            "first_bytes_late",
            "First bytes that left after their permit had closed, because the process was stalled",
            self.first_bytes_late.clone(),
        );
        page.register_with_unit(
            "bank",
            "Time from the first byte of a request to the bank to the end of its answer",
            Unit::Seconds,
            self.bank.clone(),
        );
        page.register(
            "bank_connected",
            "1 while this node can open connections to a channel's bank, 0 while that fails; no line before it tried",
            self.bank_connected.clone(),
        );
        page.register(
            "bank_connect_failures",
            "Connections to a bank that could not be opened, by code, those for inquiries included",
            self.bank_connect_failures.clone(),
        );
        page.register_with_unit(
            "bank_set_up",
            "Time to set up a connection to a bank: DNS, TCP and TLS, smoothed",
            Unit::Seconds,
            self.bank_set_up.clone(),
        );
        page.register_with_unit(
            "bank_round_trip",
            "Round trip to a bank, as the kernel measures it",
            Unit::Seconds,
            self.bank_round_trip.clone(),
        );
        page.register_with_unit(
            "bank_round_trip_variation",
            "How much the round trip to a bank varies, as the kernel measures it",
            Unit::Seconds,
            self.bank_round_trip_variation.clone(),
        );
        page.register_with_unit(
            "claim",
            "Time to lease one handful of refunds and write down their permits",
            Unit::Seconds,
            self.claim.clone(),
        );
    }

    /// Counts an attempt that ended. One that was handed back never reached the bank, so its time
    /// does not count towards the bank's.
    pub fn attempt(&self, channel: &ChannelName, outcome: &str, took: Duration) {
        let labels = ByOutcome { channel: channel.to_string(), outcome: outcome.to_owned() };
        self.attempts.get_or_create_owned(&labels).inc();
        if outcome != "handed_back" {
            let labels = ByChannel { channel: labels.channel };
            self.bank.get_or_create_owned(&labels).observe(took.as_secs_f64());
        }
    }

    /// Counts an inquiry that ended.
    pub fn inquiry(&self, channel: &ChannelName, finding: &str) {
        let labels = ByOutcome { channel: channel.to_string(), outcome: finding.to_owned() };
        self.inquiries.get_or_create_owned(&labels).inc();
    }

    /// Counts one question to a bucket.
    pub fn take(&self, channel: &ChannelName, errand: Errand, answer: &str) {
        let labels = ByAnswer { channel: channel.to_string(), answer: answer.to_owned() };
        let takes = match errand {
            Errand::Send => &self.takes,
            Errand::Inquire => &self.inquiry_takes,
        };
        takes.get_or_create_owned(&labels).inc();
    }

    /// Counts permits that were granted and lapsed.
    pub fn permits_unused(&self, channel: &ChannelName, reason: &str, permits: u64) {
        let labels = ByReason { channel: channel.to_string(), reason: reason.to_owned() };
        self.permits_unused.get_or_create_owned(&labels).inc_by(permits);
    }

    /// Counts permits that another service asked for.
    pub fn acquired(&self, limit: &LimitName, answer: &str, permits: u64) {
        let labels = ByLimitAndAnswer { limit: limit.to_string(), answer: answer.to_owned() };
        self.acquired.get_or_create_owned(&labels).inc_by(permits);
    }

    /// Says whether another node's rule is in force for a limit.
    pub fn limit_overruled(&self, limit: &LimitName, overruled: bool) {
        let labels = ByLimit { limit: limit.to_string() };
        self.limit_overruled.get_or_create_owned(&labels).set(i64::from(overruled));
    }

    /// Counts ids put in line.
    pub fn fed(&self, channel: &ChannelName, ids: u64) {
        self.fed.get_or_create_owned(&ByChannel { channel: channel.to_string() }).inc_by(ids);
    }

    /// Counts an answer that came after its lease had passed on.
    pub fn settled_late(&self) {
        self.settled_late.inc();
    }

    /// Counts refunds that recovery took up again.
    pub fn stranded(&self, channel: &ChannelName, refunds: u64) {
        self.stranded.get_or_create_owned(&ByChannel { channel: channel.to_string() }).inc_by(refunds);
    }

    /// Counts refunds newly saved.
    pub fn saved(&self, way: &str, refunds: u64) {
        self.saved.get_or_create_owned(&ByWay { way: way.to_owned() }).inc_by(refunds);
    }

    /// Counts a reading of the configuration file.
    pub fn config_reload(&self, result: &str) {
        self.config_reloads.get_or_create_owned(&ByResult { result: result.to_owned() }).inc();
    }

    /// Counts an answer that no rule covers.
    /// A first byte left after its permit had closed.
    pub fn first_byte_late(&self, channel: &ChannelName) {
        self.first_bytes_late.get_or_create_owned(&ByChannel { channel: channel.to_string() }).inc();
    }

    pub fn unmapped_answer(&self, channel: &ChannelName, status: Option<u16>) {
        let status = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        self.unmapped_answers.get_or_create_owned(&ByStatus { channel: channel.to_string(), status }).inc();
    }

    /// Whether connections to a channel's bank can be opened.
    pub fn bank_connected(&self, channel: &ChannelName, is: bool) {
        self.bank_connected.get_or_create_owned(&ByChannel { channel: channel.to_string() }).set(is.into());
    }

    /// Counts connections that could not be opened.
    pub fn connect_failures(&self, channel: &ChannelName, code: Code, failures: u64) {
        let labels = ByCode { channel: channel.to_string(), code: code.as_str() };
        self.bank_connect_failures.get_or_create_owned(&labels).inc_by(failures);
    }

    /// Shows how far away a bank is.
    pub fn bank_distance(&self, channel: &ChannelName, reading: Reading) {
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

    /// Shows nothing more of a channel's bank.
    pub fn forget_bank(&self, channel: &ChannelName) {
        let labels = ByChannel { channel: channel.to_string() };
        self.bank_connected.remove(&labels);
        for gauge in [&self.bank_set_up, &self.bank_round_trip, &self.bank_round_trip_variation] {
            gauge.remove(&labels);
        }
    }

    /// Measures one claim.
    pub fn claim(&self, took: Duration) {
        self.claim.observe(took.as_secs_f64());
    }

    /// The page for a scraper: this node's counters and the readings it is handed.
    #[must_use]
    pub fn page(&self, readings: &Readings<'_>) -> String {
        let mut page = String::new();
        let written = encode_registry(&mut page, &self.registry)
            .and_then(|()| encode_registry(&mut page, &readings.registry()))
            .and_then(|()| encode_eof(&mut page));
        debug_assert!(written.is_ok(), "writing to a string does not fail");
        page
    }
}

/// From a bank next door to the longest time-out one would configure.
fn bank_spans() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

fn claim_spans() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0])
}
