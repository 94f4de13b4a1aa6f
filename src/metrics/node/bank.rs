//! What a node sees of the channels' banks: their answers, their time, and the way to them.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{ByChannel, Metrics, Of, OfChannels, in_seconds, shown};
use crate::bank::AddressTimes;
use crate::bucket::Purpose;
use crate::refund::{ChannelName, Code};

type Span = Family<ByChannel, Gauge<f64, AtomicU64>>;
type Spans = Family<ByChannel, Histogram, fn() -> Histogram>;

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
struct ByStatus {
    channel: String,
    status: String,
}

pub(super) struct BankMetrics {
    unmapped_answers: OfChannels<ByStatus>,
    pub(super) first_bytes_late: Of<ByChannel>,
    /// From the first byte of a request to the end of the answer.
    pub(super) times: Spans,
    breaker_trips: OfChannels<ByKind>,
    connected: Family<ByPurpose, Gauge>,
    connect_failures: OfChannels<ByCode>,
    set_up: Span,
    round_trip: Span,
    round_trip_variation: Span,
}

impl BankMetrics {
    pub(super) fn new(page: &mut Registry) -> Self {
        BankMetrics {
            unmapped_answers: OfChannels::shown(
                page,
                "unmapped_answers",
                "Answers of a bank that no rule covers, counted as unknown; status is none if there was no HTTP status",
            ),
            first_bytes_late: shown(
                page,
                "first_bytes_late",
                "First bytes that left after their permit had closed, because the process was stalled",
            ),
            times: in_seconds(
                page,
                "bank",
                "Time from the first byte of a request to the bank to the end of its answer",
                Spans::new_with_constructor(bank_spans),
            ),
            breaker_trips: OfChannels::shown(
                page,
                "breaker_trips",
                "Breakers of channels that this node tripped, by kind: rejected or unknown",
            ),
            connected: shown(
                page,
                "bank_connected",
                "1 while this node can open connections to a channel's bank, to send or to inquire, 0 while that fails; absent before the first try",
            ),
            connect_failures: OfChannels::shown(
                page,
                "bank_connect_failures",
                "Connections to a bank that could not be opened, by code, including those for inquiries",
            ),
            set_up: in_seconds(
                page,
                "bank_set_up",
                "Time to set up a connection to a bank: DNS, TCP and TLS, smoothed",
                Span::default(),
            ),
            round_trip: in_seconds(
                page,
                "bank_round_trip",
                "Round trip to a bank, as the kernel measures it",
                Span::default(),
            ),
            round_trip_variation: in_seconds(
                page,
                "bank_round_trip_variation",
                "How much the round trip to a bank varies, as the kernel measures it",
                Span::default(),
            ),
        }
    }
}

impl BankMetrics {
    /// Removes all that counts or shows a channel, but for the late first bytes: their first increase rings an alarm.
    pub(super) fn forget(&self, channel: &ChannelName) {
        let labels = ByChannel { channel: channel.to_string() };
        self.unmapped_answers.forget(channel);
        self.times.remove(&labels);
        self.breaker_trips.forget(channel);
        self.connect_failures.forget(channel);
        self.forget_gauges(channel);
        self.forget_inquiry_address(channel);
    }

    fn forget_inquiry_address(&self, channel: &ChannelName) {
        self.connected.remove(&ByPurpose::of(channel, Purpose::Inquire));
    }

    fn forget_gauges(&self, channel: &ChannelName) {
        let labels = ByChannel { channel: channel.to_string() };
        self.connected.remove(&ByPurpose::of(channel, Purpose::Send));
        for gauge in [&self.set_up, &self.round_trip, &self.round_trip_variation] {
            gauge.remove(&labels);
        }
    }
}

impl Metrics {
    /// Counts a breaker that this node tripped.
    pub fn breaker_tripped(&self, channel: &ChannelName, kind: &'static str) {
        self.bank.breaker_trips.of(channel, &ByKind { channel: channel.to_string(), kind }).inc();
    }

    /// Counts a first byte that left after its permit had closed.
    pub fn first_byte_late(&self, channel: &ChannelName) {
        self.bank.first_bytes_late.get_or_create_owned(&ByChannel { channel: channel.to_string() }).inc();
    }

    /// Counts an answer that no rule covers; `None` if it had no HTTP status.
    pub fn unmapped_answer(&self, channel: &ChannelName, status: Option<u16>) {
        let status = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        let labels = ByStatus { channel: channel.to_string(), status };
        self.bank.unmapped_answers.of(channel, &labels).inc();
    }

    /// Shows whether connections to a channel's bank can be opened.
    pub fn bank_connected(&self, channel: &ChannelName, purpose: Purpose, is: bool) {
        self.bank.connected.get_or_create_owned(&ByPurpose::of(channel, purpose)).set(is.into());
    }

    /// Counts connections that could not be opened.
    pub fn connect_failures(&self, channel: &ChannelName, code: Code, failures: u64) {
        let labels = ByCode { channel: channel.to_string(), code: code.as_str() };
        self.bank.connect_failures.of(channel, &labels).inc_by(failures);
    }

    /// Shows how far away a bank is.
    pub fn bank_distance(&self, channel: &ChannelName, reading: AddressTimes) {
        let spans = [
            (&self.bank.set_up, reading.set_up),
            (&self.bank.round_trip, reading.round_trip),
            (&self.bank.round_trip_variation, reading.round_trip_variation),
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
        self.bank.forget_inquiry_address(channel);
    }

    /// Removes the gauges of a channel's bank.
    pub fn forget_bank(&self, channel: &ChannelName) {
        self.bank.forget_gauges(channel);
    }
}

/// Buckets from a bank nearby to the longest time-out that is usual.
fn bank_spans() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}
