//! What a node reports about itself in its row, for people and for forecasts.
//!
//! Nodes and commands of other versions read it. They ignore what they do not know, and what is missing has its default.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The status report of one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    /// Why Redis does not answer or refuses.
    pub redis: Option<String>,
    /// The channels that wait long for a limit.
    pub waits: BTreeMap<String, ReportedWait>,
    /// The limits for which the stricter rule of another node's file is in force, each with that rule.
    #[serde(rename = "overruled")]
    pub stricter_rules: BTreeMap<String, String>,
    /// By channel.
    pub banks: BTreeMap<String, ReportedBank>,
}

/// The limit that makes a channel wait, and how much longer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedWait {
    pub limit: String,
    pub seconds: u64,
}

/// One channel on one node: its bank, and what binds the channel there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedBank {
    #[serde(flatten)]
    pub status: BankStatus,
    /// What keeps the channel from sending faster; `None` if nothing does. A newer node may know more kinds.
    pub binds: Option<String>,
    pub binds_share: Option<f64>,
    /// Of how many seconds it is the share; an older node does not say it.
    pub binds_over_seconds: Option<u32>,
    pub binds_limit: Option<String>,
}

/// What a node sees of the bank. Times are null until they are measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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

impl NodeReport {
    /// Reads a report as it stands in the row. A member that a newer node writes in another form counts as missing, and so does
    /// one bank or one wait; the others are read.
    #[must_use]
    pub fn read(text: &str) -> NodeReport {
        let report: Value = serde_json::from_str(text).unwrap_or_default();
        NodeReport {
            redis: lenient(&report["redis"]),
            waits: each(&report["waits"]),
            stricter_rules: each(&report["overruled"]),
            banks: each(&report["banks"]),
        }
    }

    /// As it stands in the row: `{}` if there is nothing to report.
    #[must_use]
    pub fn to_json(&self) -> Value {
        without_gaps(json!(self))
    }
}

impl ReportedBank {
    /// Reads what a report says of one bank. What a newer node writes in another form counts as missing, the whole bank with it.
    #[must_use]
    pub fn read(member: &Value) -> ReportedBank {
        lenient(member)
    }
}

fn lenient<T: Default + DeserializeOwned>(member: &Value) -> T {
    T::deserialize(member).unwrap_or_default()
}

fn each<T: Default + DeserializeOwned>(members: &Value) -> BTreeMap<String, T> {
    let members = members.as_object().into_iter().flatten();
    members.map(|(name, member)| (name.clone(), lenient(member))).collect()
}

/// Leaves out what is null, and objects without members.
fn without_gaps(value: Value) -> Value {
    let Value::Object(members) = value else { return value };
    let members = members.into_iter().map(|(name, member)| (name, without_gaps(member)));
    let says_something =
        |member: &Value| !member.is_null() && member.as_object().is_none_or(|object| !object.is_empty());
    Value::Object(members.filter(|(_, member)| says_something(member)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_only_what_there_is_to_report_and_is_read_back() {
        assert_eq!(NodeReport::default().to_json(), json!({}));
        let written = json!({
            "banks": { "acme": { "binds": "limit", "binds_share": 0.93, "unreachable": "connect: refused" } },
            "overruled": { "day": "5/1d" },
            "waits": { "acme": { "limit": "day", "seconds": 60 } },
        });
        let mut report = NodeReport::read(&written.to_string());
        report.banks.insert("globex".to_owned(), ReportedBank::default());
        assert_eq!(report.to_json(), written);
    }

    #[test]
    fn a_report_of_another_version_is_read_without_what_is_new_there() {
        let bank = json!({ "request_ms": 12, "of_another_version": [1] });
        let other = json!({ "request_ms": "12 ms" });
        let report = json!({ "banks": { "acme": bank, "globex": other }, "waits": [], "redis": "away", "of_another_version": { "a": 1 } });
        let report = NodeReport::read(&report.to_string());
        assert_eq!(report.banks["acme"].status.request_ms, Some(12.0));
        assert_eq!(report.to_json(), json!({ "redis": "away", "banks": { "acme": { "request_ms": 12.0 } } }));
        assert_eq!(NodeReport::read("no JSON"), NodeReport::default());
    }
}
