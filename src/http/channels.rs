//! The channels: for each its limits, its counts of refunds, and when its backlog will be gone.
//!
//! The counts come from the census in Postgres. Limits, waits, depths and banks are as this node sees them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;

use super::{Api, Json, Problem, Who};
use crate::channel::Channel;
use crate::limiter::Limit;
use crate::node::Node;
use crate::node::status_report::{BankReport, millis};
use crate::refund::{ChannelName, State as RefundState};
use crate::store::ChannelCensus;

/// How long a person waits for the first count. The store's own time-out ends sooner if Postgres is away.
const MOST_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize)]
pub(super) struct Listing {
    channels: Vec<ChannelStatus>,
    redis: Redis,
}

#[derive(Debug, Serialize)]
struct Redis {
    up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

/// One channel.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ChannelStatus {
    pub channel: String,
    /// The limits on this node, empty for unlimited; null if this node does not run the channel.
    pub limits: Option<Vec<LimitStatus>>,
    pub counts: BTreeMap<RefundState, u64>,
    /// Refunds that are ready, due or not.
    pub backlog: u64,
    pub max_backlog: Option<u64>,
    /// Whether new refunds are refused, because the backlog is full.
    pub full: bool,
    /// How long the longest due refund has been due; null if none is.
    pub oldest_ready_age_seconds: Option<f64>,
    /// Ids in the bucket, as this node last saw it; null if it never did.
    #[serde(rename = "in_line")]
    pub ids_in_bucket: Option<u64>,
    /// Sends that wrote at least one byte, per second over the last minute.
    pub observed_per_second: f64,
    /// The limit that makes this node wait since it last asked, and how much longer; null if none does.
    pub waits_for: Option<WaitsFor>,
    /// What this node sees of the bank; null if this node does not run the channel.
    pub bank: Option<Bank>,
    /// How long the backlog takes at the full rate of the slowest limit. Null if the channel is unlimited, paused, or
    /// not run by this node.
    pub expected_seconds_to_drain: Option<u64>,
    pub paused: Option<Pause>,
    pub cooling: Option<Cooling>,
    /// The share of its rate that it may use for now, in percent, after the bank asked for fewer requests; null for
    /// the full rate.
    pub slowed_to_percent: Option<u32>,
    /// Refunds that will miss their deadlines at the rate of the limits; null if none will.
    pub late: Option<Late>,
    /// The living nodes that run the channel.
    pub run_by: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct LimitStatus {
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
pub(super) struct WaitsFor {
    pub limit: String,
    pub seconds: f64,
}

/// What this node sees of the bank. Times are null until they are measured.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Bank {
    /// Why no connection for sends can be opened; null while one can, or before the first try.
    pub unreachable: Option<String>,
    /// Why no connection for inquiries can be opened; null while one can, or before the first try.
    pub unreachable_to_ask: Option<String>,
    /// The time of DNS, TCP and TLS for a new connection.
    pub set_up_ms: Option<f64>,
    pub round_trip_ms: Option<f64>,
    pub round_trip_variation_ms: Option<f64>,
    /// Which limit's `lateness` is too small for how much the round trip varies, and why.
    pub lateness_too_small: Option<String>,
    /// Why permits lapse one after the other; null while they do not.
    pub permits_lapse: Option<String>,
    /// Why no refund can be taken or claimed; null while Redis and Postgres work.
    pub blocked: Option<String>,
}

impl From<BankReport> for Bank {
    fn from(bank: BankReport) -> Self {
        Bank {
            blocked: bank.blocked().map(|blocked| blocked.why.clone()),
            unreachable: bank.unreachable,
            unreachable_to_ask: bank.unreachable_to_ask,
            set_up_ms: bank.reading.set_up.map(millis),
            round_trip_ms: bank.reading.round_trip.map(millis),
            round_trip_variation_ms: bank.reading.round_trip_variation.map(millis),
            lateness_too_small: bank.lateness,
            permits_lapse: bank.lapses,
        }
    }
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Pause {
    pub reason: String,
    pub by: String,
    pub since: Timestamp,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Late {
    pub refunds: u64,
    /// The earliest of their deadlines.
    pub from: Timestamp,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Cooling {
    pub until: Timestamp,
    pub reason: String,
}

/// `GET /v1/channels`.
pub(super) async fn list(State(api): State<Api>, who: Who) -> Result<Json<Listing>, Problem> {
    let census = api.census.read(&api.node.store, MOST_PATIENCE).await?;
    let own = census.iter().filter(|census| who.has_channel(&census.channel));
    let redis = Redis { up: api.node.bucket.trouble().is_none(), trouble: api.node.bucket.trouble() };
    Ok(Json(Listing { channels: statuses(&api.node, own), redis }))
}

/// The statuses of these channels, with what this node sees of each.
pub(super) fn statuses<'c>(
    node: &Node,
    census: impl Iterator<Item = &'c ChannelCensus>,
) -> Vec<ChannelStatus> {
    let (running, depths) = (node.running(), node.depths());
    let running: HashMap<&str, &Arc<Channel>> =
        running.channels.iter().map(|channel| (channel.name.as_str(), channel)).collect();
    let status = |census: &ChannelCensus| {
        let channel = running.get(census.channel.as_str()).copied();
        let ids_in_bucket =
            ChannelName::new(&census.channel).ok().and_then(|name| depths.get(&name).copied());
        let mut status = channel_status(census, channel.map(AsRef::as_ref), ids_in_bucket);
        if let Some(channel) = channel {
            status.waits_for = node
                .status_report
                .wait_of(&channel.name)
                .map(|(limit, left)| WaitsFor { limit: limit.to_string(), seconds: left.as_secs_f64() });
            status.bank = Some(node.status_report.bank_of(&channel.name).into());
            for (shown, limit) in status.limits.iter_mut().flatten().zip(&channel.limits) {
                shown.stricter_rule = node.status_report.stricter_rule(&limit.name);
            }
        }
        status
    };
    census.map(status).collect()
}

/// The status of one channel, without what only the running node knows; `channel` is `None` if this node does not
/// run it.
fn channel_status(
    census: &ChannelCensus,
    channel: Option<&Channel>,
    ids_in_bucket: Option<u64>,
) -> ChannelStatus {
    let counts: BTreeMap<_, _> =
        RefundState::ALL.into_iter().map(|s| (s, census.counts.get(&s).copied().unwrap_or(0))).collect();
    let backlog = counts.get(&RefundState::Ready).copied().unwrap_or(0);
    let limits: Option<Vec<LimitStatus>> =
        channel.map(|channel| channel.limits.iter().map(|limit| limit_status(limit)).collect());
    let rate = limits.iter().flatten().map(|limit| limit.permits_per_second).min_by(f64::total_cmp);
    ChannelStatus {
        channel: census.channel.clone(),
        counts,
        backlog,
        max_backlog: channel.and_then(|channel| channel.max_backlog),
        full: census.full,
        oldest_ready_age_seconds: census.oldest_ready_age.map(|age| age.as_secs_f64()),
        ids_in_bucket,
        waits_for: None,
        bank: None,
        observed_per_second: census.sends_last_minute as f64 / 60.0,
        expected_seconds_to_drain: rate
            .filter(|_| census.paused.is_none())
            .map(|rate| seconds(backlog, rate)),
        paused: census.paused.clone().map(|(reason, by, since)| Pause { reason, by, since }),
        cooling: census.cool_until.clone().map(|(until, reason)| Cooling { until, reason }),
        slowed_to_percent: census.slowed,
        late: census.late.map(|(refunds, from)| Late { refunds, from }),
        run_by: census.run_by.clone(),
        limits,
    }
}

fn limit_status(limit: &Limit) -> LimitStatus {
    let rule = &limit.rule;
    LimitStatus {
        limit: limit.name.to_string(),
        algorithm: rule.algorithm.name(),
        rule: rule.describe(),
        permits: rule.permits,
        per_seconds: rule.per.as_secs_f64(),
        permits_per_second: rule.per_second(),
        stricter_rule: None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count over a positive rate, rounded up; the cast gives the nearest integer that exists"
)]
fn seconds(backlog: u64, rate: f64) -> u64 {
    (backlog as f64 / rate).ceil() as u64
}

#[cfg(test)]
mod tests;
