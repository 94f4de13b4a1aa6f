//! The full pace of a channel, for the forecast of missed deadlines in Postgres (`store/sql/forecast.sql`). Pure.
//!
//! Limits count as an even pace. Only of one limit the windows are counted: of a quota that a channel has for itself. What
//! is unspent of a quota may go at once, and when it is used up nothing goes until the next window.
//!
//! It knows nothing of inquiries beside an even pace, nor of permits that other services will acquire.

use std::sync::Arc;
use std::time::Duration;

use super::allowance::{Allowance, windows};
use super::climb::Seconds;
use super::together::rule_on;
use crate::limiter::{Limit, Placement, Rule};
use crate::refund::LimitName;

/// What a channel may send while nothing suspends or slows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FullPace {
    /// Requests a second, evenly spaced; infinite if only the quota counts.
    pub per_second: f64,
    pub quota: Option<Quota>,
}

/// A limit of which each window counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    /// The refunds of one window.
    pub permits: f64,
    /// Of the running window.
    pub spent: f64,
    /// When the running window ends.
    pub ends: Seconds,
    /// The length of the next windows.
    pub per: Seconds,
}

impl FullPace {
    /// An even pace alone, in requests a second.
    #[must_use]
    pub fn even(per_second: f64) -> Self {
        FullPace { per_second, quota: None }
    }

    /// The pace under these limits; `None` without limits. `quota` is one of them. `with_share` says how many nodes have a share
    /// of a limit that nodes count alone.
    #[must_use]
    pub fn of(
        limits: &[Arc<Limit>],
        quota: Option<(&LimitName, Quota)>,
        with_share: impl Fn(&LimitName) -> usize,
        now_us: i64,
    ) -> Option<Self> {
        let rate = |limit: &Arc<Limit>| {
            Allowance::of(&rule_on(limit, with_share(&limit.name)), &[], now_us).mean_rate()
        };
        let others = limits.iter().filter(|limit| quota.is_none_or(|(own, _)| *own != limit.name));
        let slowest = others.map(rate).min_by(f64::total_cmp);
        let quota = quota.map(|(_, quota)| quota);
        Some(FullPace { per_second: slowest.or(quota.map(|_| f64::INFINITY))?, quota })
    }
}

impl Quota {
    /// In shorter windows an even pace is near enough.
    const LEAST_WINDOW: Duration = Duration::from_mins(10);

    /// The slowest of these limits whose windows can be counted. `is_own` says whether no other channel has the limit: other
    /// channels may spend what is unspent now.
    #[must_use]
    pub fn among(limits: &[Arc<Limit>], is_own: impl Fn(&LimitName) -> bool) -> Option<&Arc<Limit>> {
        let is_quota = |limit: &&Arc<Limit>| {
            limit.placement == Placement::Shared
                && limit.rule.window().is_some_and(|window| window >= Self::LEAST_WINDOW)
                && is_own(&limit.name)
        };
        let rate = |limit: &Arc<Limit>| limit.rule.per_second();
        limits.iter().filter(is_quota).min_by(|a, b| rate(a).total_cmp(&rate(b)))
    }

    /// The quota of this rule with windows, of which so many permits are spent in the running window. Inquiries that share it
    /// get one permit in ten.
    #[must_use]
    pub fn of(rule: &Rule, spent: u64, inquiries_share: bool, now_us: i64) -> Self {
        let for_refunds = |permits: u64| {
            let left = if inquiries_share { permits - permits / 10 } else { permits };
            left as f64
        };
        let permits = u64::from(rule.permits);
        let per = rule.per.as_secs_f64();
        Quota {
            permits: for_refunds(permits),
            spent: for_refunds(permits) - for_refunds(permits.saturating_sub(spent)),
            ends: windows(rule, now_us).1.front().copied().unwrap_or(per),
            per,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Algorithm;

    /// Monday, 2026-11-23 13:20:00 UTC.
    const NOW_US: i64 = 1_795_440_000_000_000;
    const FIXED: Algorithm = Algorithm::FixedWindow { zone: None };

    fn limit(name: &str, algorithm: Algorithm, permits: u32, per_s: u64) -> Limit {
        let (per, lateness) = (Duration::from_secs(per_s), Duration::from_millis(10));
        let rule = Rule { algorithm, permits, per, lateness };
        let ahead = Duration::from_millis(50);
        Limit { name: LimitName::stored(name), rule, ahead, placement: Placement::Shared }
    }

    #[test]
    fn a_quota_is_the_slowest_long_window_that_a_channel_has_for_itself() {
        let mut limits = [
            limit("second", FIXED, 1, 1),
            limit("hour", FIXED, 100, 3600),
            limit("day", FIXED, 1_000, 86_400),
            limit("sliding", Algorithm::SlidingLog, 10, 86_400),
        ];
        let among = |limits: &[Limit], is_own: fn(&LimitName) -> bool| {
            let limits: Vec<Arc<Limit>> = limits.iter().cloned().map(Arc::new).collect();
            Quota::among(&limits, is_own).map(|limit| limit.name.to_string())
        };
        assert_eq!(among(&limits, |_| true).as_deref(), Some("day"));
        assert_eq!(among(&limits, |name| name.as_str() != "day").as_deref(), Some("hour"));
        assert_eq!(among(&limits, |_| false), None);
        limits[2].placement = Placement::LocalShare { nodes: 2 };
        assert_eq!(among(&limits, |_| true).as_deref(), Some("hour"));
    }

    #[test]
    fn a_quota_knows_what_is_spent_and_leaves_one_permit_in_ten_to_inquiries() {
        let day = limit("day", FIXED, 1_000, 86_400).rule;
        let alone = Quota::of(&day, 150, false, NOW_US);
        let ends = 86_400.0 - 48_000.0;
        assert_eq!(alone, Quota { permits: 1_000.0, spent: 150.0, ends, per: 86_400.0 });
        let shared = Quota::of(&day, 150, true, NOW_US);
        assert_eq!((shared.permits, shared.spent), (900.0, 135.0));
        let over = Quota::of(&day, 2_000, true, NOW_US);
        assert_eq!((over.permits, over.spent), (900.0, 900.0));
    }

    #[test]
    fn the_pace_is_that_of_the_slowest_other_limit_as_it_truly_grants() {
        let of = |limits: &[Limit], quota: Option<&str>| {
            let limits: Vec<Arc<Limit>> = limits.iter().cloned().map(Arc::new).collect();
            let name = quota.map(LimitName::stored);
            let counted = Quota { permits: 1.0, spent: 0.0, ends: 1.0, per: 1.0 };
            FullPace::of(&limits, name.as_ref().map(|name| (name, counted)), |_| 2, NOW_US)
                .map(|pace| pace.per_second)
        };
        let day = limit("day", FIXED, 1_000, 86_400);
        // Slots 60 ms apart.
        let strict = limit("strict", Algorithm::PacedStrict, 20, 1);
        let mut share = limit("share", FIXED, 20, 1);
        share.placement = Placement::LocalShare { nodes: 5 };
        assert_eq!(of(&[], None), None);
        assert_eq!(of(std::slice::from_ref(&day), Some("day")), Some(f64::INFINITY));
        let is = |found: Option<f64>, expected: f64| {
            assert!((found.unwrap_or(f64::NAN) / expected - 1.0).abs() < 1e-6, "{found:?}, not {expected}");
        };
        is(of(&[day.clone(), strict.clone()], None), 1_000.0 / 86_400.0);
        is(of(&[day, strict.clone()], Some("day")), 1.0 / 0.06);
        is(of(&[strict, share], None), 8.0);
    }
}
