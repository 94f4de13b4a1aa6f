//! The parts of a channel's status.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limiter::{Limit, Rule};
use crate::node::meter::{Binds, MeterReading};
use crate::node::status_report::{BankReport, millis};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitStatus {
    pub limit: String,
    pub algorithm: &'static str,
    /// The rule as a text for people.
    pub rule: String,
    pub permits: u32,
    pub per_seconds: f64,
    pub permits_per_second: f64,
    /// The stricter rule of another node's file, which is in force until all files agree.
    #[serde(rename = "overruled_by", skip_serializing_if = "Option::is_none")]
    pub stricter_rule: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct LimitAwaited {
    pub limit: String,
    pub seconds: f64,
}

/// What a node sees of the bank. Times are null until they are measured.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BankStatus {
    /// Why no connection for sends can be opened; null while one can, or before the first try.
    pub unreachable: Option<String>,
    /// Why no connection for inquiries can be opened; null while one can, or before the first try.
    pub unreachable_to_ask: Option<String>,
    /// The time of DNS, TCP and TLS for a new connection.
    pub set_up_ms: Option<f64>,
    pub round_trip_ms: Option<f64>,
    pub round_trip_variation_ms: Option<f64>,
    /// From the first byte of a request to the end of the answer: half of the answers took no longer, and 95 in a hundred.
    pub bank_p50_ms: Option<f64>,
    pub bank_p95_ms: Option<f64>,
    /// How long a request keeps its slot, in the mean.
    pub request_ms: Option<f64>,
    /// Which limit's `lateness` is too small for how much the round trip varies, and why.
    pub lateness_too_small: Option<String>,
    /// Why permits lapse one after the other; null while they do not.
    pub permits_lapse: Option<String>,
    /// Why no refund can be taken or claimed; null while Redis and Postgres work.
    pub blocked: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct PauseStatus {
    pub reason: String,
    pub by: String,
    pub since: Timestamp,
    /// An older name of `since`.
    pub at: Timestamp,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct BreakerStatus {
    pub reason: String,
    pub since: Timestamp,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct LateStatus {
    pub refunds: u64,
    /// The earliest of their deadlines.
    pub from: Timestamp,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct CoolingStatus {
    pub until: Timestamp,
    pub reason: String,
}

/// What a node measured of a channel: what binds it there.
#[derive(Debug, Clone, PartialEq)]
pub struct BindsSeen {
    pub binds: Binds,
    pub share: f64,
    pub limit: Option<String>,
}

impl BankStatus {
    pub fn new(bank: BankReport, reading: &MeterReading) -> Self {
        BankStatus {
            blocked: bank.blocked().map(|blocked| blocked.why.clone()),
            unreachable: bank.unreachable,
            unreachable_to_ask: bank.unreachable_to_ask,
            set_up_ms: bank.reading.set_up.map(millis),
            round_trip_ms: bank.reading.round_trip.map(millis),
            round_trip_variation_ms: bank.reading.round_trip_variation.map(millis),
            bank_p50_ms: reading.bank_p50.map(millis),
            bank_p95_ms: reading.bank_p95.map(millis),
            request_ms: reading.request.map(millis),
            lateness_too_small: bank.lateness,
            permits_lapse: bank.lapses,
        }
    }
}

impl BindsSeen {
    pub fn new(reading: &MeterReading) -> Self {
        let limit = reading.limit.as_ref().map(ToString::to_string);
        BindsSeen { binds: reading.binds, share: reading.share, limit }
    }

    /// As a node's report says it about one bank.
    pub(super) fn read(bank: &Value) -> Option<Self> {
        let limit = bank["binds_limit"].as_str().map(str::to_owned);
        BindsSeen::named(bank["binds"].as_str()?, bank["binds_share"].as_f64(), limit)
    }

    /// From the texts of a node's report; `None` for a kind of another version.
    pub fn named(binds: &str, share: Option<f64>, limit: Option<String>) -> Option<Self> {
        Some(BindsSeen { binds: Binds::named(binds)?, share: share.unwrap_or(0.0), limit })
    }
}

impl LimitStatus {
    pub fn new(name: &str, rule: &Rule) -> Self {
        LimitStatus {
            limit: name.to_owned(),
            algorithm: rule.algorithm.name(),
            rule: rule.describe(),
            permits: rule.permits,
            per_seconds: rule.per.as_secs_f64(),
            permits_per_second: rule.per_second(),
            stricter_rule: None,
        }
    }

    pub fn of(limit: &Limit) -> Self {
        LimitStatus::new(limit.name.as_str(), &limit.rule)
    }
}
