//! How every channel stands: what limits it, what waits in it, and when that will be gone.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;

use super::{Api, Problem};
use crate::channel::Channel;
use crate::limiter::Limit;
use crate::node::standing::{BankStanding, millis};
use crate::refund::{ChannelName, State as RefundState};
use crate::store::ChannelCensus;

/// For people; the store gives up by itself.
const MOST_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize)]
pub(super) struct Listing {
    channels: Vec<Standing>,
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
struct Standing {
    channel: String,
    /// Those in force on this node, empty for unlimited; null if this node does not run the channel.
    limits: Option<Vec<InForce>>,
    counts: BTreeMap<RefundState, u64>,
    /// Refunds that wait: those that are ready, due or not.
    backlog: u64,
    max_backlog: Option<u64>,
    /// New refunds are refused.
    full: bool,
    /// How long the longest due refund has been due; null if none is.
    oldest_ready_age_seconds: Option<f64>,
    /// Ids in the bucket, as this node last saw it; null if it never did.
    in_line: Option<u64>,
    /// Sends of which a byte was written, over the last minute.
    observed_per_second: f64,
    /// The limit that made this node wait when it last asked, and for how long yet; null if none does.
    waits_for: Option<WaitsFor>,
    /// How the bank looks from this node; null if this node does not run the channel.
    bank: Option<Bank>,
    /// The backlog at the full rate of the tightest limit; null if unlimited, unknown or paused.
    expected_seconds_to_drain: Option<u64>,
    paused: Option<Pause>,
    cooling: Option<Cooling>,
    /// The share of its rate it goes at for now, in percent, after the bank asked for slower; null for all.
    slowed_to_percent: Option<u32>,
    /// Refunds that will pass their deadlines before it is their turn; null if none will.
    late: Option<Late>,
    /// The living nodes that run it.
    run_by: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct InForce {
    limit: String,
    algorithm: &'static str,
    /// In words.
    rule: String,
    permits: u32,
    per_seconds: f64,
    permits_per_second: f64,
    /// The stricter rule of another node's file, which is in force until all files agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    overruled_by: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct WaitsFor {
    limit: String,
    seconds: f64,
}

/// Times are null before anything was measured.
#[derive(Debug, PartialEq, Serialize)]
struct Bank {
    /// Why no connection can be opened; null while one can, or before it was tried.
    unreachable: Option<String>,
    /// The same of inquiries.
    unreachable_to_ask: Option<String>,
    /// DNS, TCP and TLS of a new connection.
    set_up_ms: Option<f64>,
    round_trip_ms: Option<f64>,
    round_trip_variation_ms: Option<f64>,
    /// Which limit's `lateness` is too small for how much the round trip varies, and why.
    lateness_too_small: Option<String>,
    /// Why permits lapse one after the other; null while they do not.
    permits_lapse: Option<String>,
}

impl From<BankStanding> for Bank {
    fn from(bank: BankStanding) -> Self {
        Bank {
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
struct Pause {
    reason: String,
    by: String,
    since: Timestamp,
}

#[derive(Debug, PartialEq, Serialize)]
struct Late {
    refunds: u64,
    /// The first of their deadlines.
    from: Timestamp,
}

#[derive(Debug, PartialEq, Serialize)]
struct Cooling {
    until: Timestamp,
    reason: String,
}

/// `GET /v1/channels`.
pub(super) async fn list(State(api): State<Api>) -> Result<Json<Listing>, Problem> {
    let census = api.census.read(&api.store, MOST_PATIENCE).await?;
    let config = api.status.config();
    let depths = api.status.depths();
    let channels = census
        .iter()
        .map(|census| {
            let channel = config.iter().find(|channel| channel.name.as_str() == census.channel);
            let in_line = ChannelName::new(&census.channel).ok().and_then(|name| depths.get(&name).copied());
            let mut standing = standing(census, channel.map(AsRef::as_ref), in_line);
            if let Some(channel) = channel {
                standing.waits_for = api
                    .status
                    .wait_of(&channel.name)
                    .map(|(limit, left)| WaitsFor { limit: limit.to_string(), seconds: left.as_secs_f64() });
                standing.bank = Some(api.status.bank_of(&channel.name).into());
                for (shown, limit) in standing.limits.iter_mut().flatten().zip(&channel.limits) {
                    shown.overruled_by = api.status.overruled_by(&limit.name);
                }
            }
            standing
        })
        .collect();
    let redis = Redis { up: api.status.redis_is_up(), trouble: api.status.redis_trouble() };
    Ok(Json(Listing { channels, redis }))
}

fn standing(census: &ChannelCensus, channel: Option<&Channel>, in_line: Option<u64>) -> Standing {
    let counts: BTreeMap<_, _> =
        RefundState::ALL.into_iter().map(|s| (s, census.counts.get(&s).copied().unwrap_or(0))).collect();
    let backlog = counts.get(&RefundState::Ready).copied().unwrap_or(0);
    let limits: Option<Vec<InForce>> =
        channel.map(|channel| channel.limits.iter().map(|limit| in_force(limit)).collect());
    let rate = limits.iter().flatten().map(|limit| limit.permits_per_second).min_by(f64::total_cmp);
    Standing {
        channel: census.channel.clone(),
        counts,
        backlog,
        max_backlog: channel.and_then(|channel| channel.max_backlog),
        full: census.full,
        oldest_ready_age_seconds: census.oldest_ready_age.map(|age| age.as_secs_f64()),
        in_line,
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

fn in_force(limit: &Limit) -> InForce {
    let rule = &limit.rule;
    InForce {
        limit: limit.name.to_string(),
        algorithm: rule.algorithm.name(),
        rule: rule.describe(),
        permits: rule.permits,
        per_seconds: rule.per.as_secs_f64(),
        permits_per_second: rule.per_second(),
        overruled_by: None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count over a positive rate, rounded up; a float turns into the nearest integer there is"
)]
fn seconds(backlog: u64, rate: f64) -> u64 {
    (backlog as f64 / rate).ceil() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limiter::{Algorithm, Placement, Rule};
    use crate::refund::LimitName;
    use crate::refund::retry::RetryPolicy;

    fn limit(name: &str, permits: u32, per: Duration) -> Arc<Limit> {
        let name = LimitName::new(name).unwrap();
        let algorithm = Algorithm::FixedWindow { zone: None };
        let rule = Rule { algorithm, permits, per, lateness: Duration::ZERO };
        Arc::new(Limit { name, rule, ahead: Duration::ZERO, placement: Placement::Shared })
    }

    fn channel(limits: Vec<Arc<Limit>>) -> Channel {
        Channel {
            name: ChannelName::new("acme").unwrap(),
            endpoint: "http://127.0.0.1:9001/refunds".parse().unwrap(),
            authorization: None,
            roots: None,
            limits,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
            lease: Duration::from_secs(30),
            max_in_flight: 16,
            max_backlog: Some(1_000_000),
            on_unknown: crate::refund::OnUnknown::Review,
            inquiry: None,
            bank_ref: None,
            retry: RetryPolicy::default(),
            cool_down: Duration::from_secs(5),
            adaptive: true,
            verdicts: Vec::new(),
        }
    }

    fn census() -> ChannelCensus {
        ChannelCensus {
            channel: "acme".to_owned(),
            counts: BTreeMap::from([(RefundState::Ready, 101), (RefundState::Succeeded, 7)]),
            oldest_ready_age: Some(Duration::from_millis(1500)),
            sends_last_minute: 90,
            paused: None,
            cool_until: None,
            slowed: None,
            late: None,
            full: false,
            run_by: vec!["node-a#1".to_owned()],
        }
    }

    #[test]
    fn the_tightest_limit_says_when_the_backlog_is_gone() {
        let minute = Duration::from_mins(1);
        let channel =
            channel(vec![limit("acme", 20, Duration::from_secs(1)), limit("acme-slow", 60, minute)]);
        let standing = standing(&census(), Some(&channel), Some(50));
        assert_eq!((standing.backlog, standing.expected_seconds_to_drain), (101, Some(101)));
        assert!((standing.observed_per_second - 1.5).abs() < 1e-9);
        insta::assert_json_snapshot!(standing);
    }

    #[test]
    fn nobody_can_say_when_an_unlimited_an_unknown_or_a_paused_channel_is_drained() {
        let unlimited = standing(&census(), Some(&channel(Vec::new())), None);
        assert_eq!((unlimited.expected_seconds_to_drain, unlimited.limits), (None, Some(Vec::new())));
        let unknown = standing(&census(), None, None);
        assert_eq!((unknown.expected_seconds_to_drain, unknown.limits), (None, None));
        let mut census = census();
        census.paused = Some(("maintenance".to_owned(), "ops".to_owned(), Timestamp::UNIX_EPOCH));
        let limited = channel(vec![limit("acme", 20, Duration::from_secs(1))]);
        assert_eq!(standing(&census, Some(&limited), None).expected_seconds_to_drain, None);
    }
}
