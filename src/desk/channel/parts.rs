//! The parts of a channel's status.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::limiter::{Limit, Rule};
use crate::node::meter::{Binds, MeterReading};
use crate::refund::text::counted;
use crate::store::{NothingAccepted, ReportedBank, SuspendedBy, Suspension};

/// A share is one of at most so many seconds.
pub(super) const MINUTE: u32 = 60;

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

#[derive(Debug, PartialEq, Serialize)]
pub struct PauseStatus {
    pub reason: String,
    pub by: String,
    pub since: Timestamp,
    /// When it ends by itself; null if somebody must end it.
    pub until: Option<Timestamp>,
    /// An older name of `since`.
    pub at: Timestamp,
}

/// One cause that suspends one channel, or all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SuspensionStatus {
    /// The channel; `*` for all channels.
    pub channel: String,
    pub suspended_by: SuspendedBy,
    pub reason: String,
    /// Null for cooling.
    pub by: Option<String>,
    /// Null for cooling.
    pub since: Option<Timestamp>,
    /// When it ends by itself; null if somebody must end it.
    pub until: Option<Timestamp>,
    /// The time until the breaker probes the bank; null for other causes.
    pub probe_in_seconds: Option<f64>,
    /// The `lift` of a resume over HTTP that ends it; null for a pause of everything.
    pub lift: Option<&'static str>,
    /// The command that ends it.
    pub end_with: Option<String>,
}

/// How long, and how often, the bank refused every send.
#[derive(Debug, PartialEq, Serialize)]
pub struct NothingAcceptedStatus {
    /// The first of these sends; an earlier one may not be known.
    pub since: Timestamp,
    pub sends: u64,
    /// To how many of them the bank answered that refundd should wait.
    pub asked_to_wait: u64,
    /// For people.
    pub text: String,
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
    /// Of how many seconds it is the share.
    pub over_seconds: u32,
    pub limit: Option<String>,
}

impl BindsSeen {
    pub fn new(reading: &MeterReading) -> Self {
        let limit = reading.limit.as_ref().map(ToString::to_string);
        let over_seconds = MeterReading::over(reading.watched.as_secs());
        BindsSeen { binds: reading.binds, share: reading.share, over_seconds, limit }
    }

    /// As a node's report says it about one bank; `None` if nothing binds there, and for a kind of another version.
    pub fn read(bank: &ReportedBank) -> Option<Self> {
        // An older node does not say the seconds, and its shares are of a minute.
        let over_seconds = MeterReading::over(bank.binds_over_seconds.map_or(u64::MAX, u64::from));
        let binds = Binds::named(bank.binds.as_deref()?)?;
        let share = bank.binds_share.unwrap_or(0.0);
        Some(BindsSeen { binds, share, over_seconds, limit: bank.binds_limit.clone() })
    }

    /// The part of a whole minute, so that the first seconds of a node do not outweigh a minute of another one.
    pub(super) fn part_of_a_minute(&self) -> f64 {
        self.share * f64::from(self.over_seconds) / f64::from(MINUTE)
    }
}

impl PauseStatus {
    pub(super) fn of(pause: &Suspension) -> Option<Self> {
        let Suspension { reason, who, since, until, .. } = pause.clone();
        Some(PauseStatus { reason, by: who, since: since?, until, at: since? })
    }
}

impl BreakerStatus {
    pub(super) fn of(suspension: &Suspension) -> Option<Self> {
        Some(BreakerStatus { reason: suspension.reason.clone(), since: suspension.since? })
    }
}

impl CoolingStatus {
    pub(super) fn of(cooling: &Suspension) -> Option<Self> {
        Some(CoolingStatus { until: cooling.until?, reason: cooling.reason.clone() })
    }
}

impl From<Suspension> for SuspensionStatus {
    fn from(suspension: Suspension) -> Self {
        let Suspension { channel, by, reason, who, since, until, left: _, probe_in } = suspension;
        let channel = channel.unwrap_or_else(|| "*".to_owned());
        let (lift, end_with) = match by {
            SuspendedBy::All => (None, Some("refundd resume --all".to_owned())),
            SuspendedBy::Person => (Some("pause"), Some(format!("refundd resume {channel}"))),
            SuspendedBy::Credentials => {
                (Some("credentials"), Some(format!("refundd resume {channel} --credentials")))
            }
            SuspendedBy::Breaker => (Some("breaker"), Some(format!("refundd resume {channel} --breaker"))),
            SuspendedBy::Cooling => (Some("cooling"), Some(format!("refundd resume {channel} --cooling"))),
        };
        SuspensionStatus {
            lift,
            end_with,
            channel,
            suspended_by: by,
            reason,
            by: Some(who).filter(|who| !who.is_empty()),
            since,
            until,
            probe_in_seconds: probe_in.map(|span| span.as_secs_f64()),
        }
    }
}

impl From<&NothingAccepted> for NothingAcceptedStatus {
    fn from(refusing: &NothingAccepted) -> Self {
        let NothingAccepted { since, lasts, is_older, sends, asked_to_wait } = *refusing;
        let lasts = if lasts < Duration::from_mins(2) {
            format!("{} s", lasts.as_secs())
        } else {
            format!("{} min", lasts.as_secs() / 60)
        };
        let at_least = if is_older { "at least " } else { "" };
        let answers = if asked_to_wait == sends {
            format!("asked to wait {}", counted(sends, "time"))
        } else {
            format!("refused {}, {asked_to_wait} of them with the request to wait", counted(sends, "send"))
        };
        let text = format!("nothing was accepted for {at_least}{lasts}: the bank {answers}");
        NothingAcceptedStatus { since, sends, asked_to_wait, text }
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
