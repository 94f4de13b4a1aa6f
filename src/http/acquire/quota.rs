//! The `RateLimit` headers of an answer: what is left of a limit's quota, and when the quota is whole again.
//!
//! The headers are a hint; permits are counted by the clock of Redis.

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::super::problem::seconds;
use crate::limiter::{Limit, Permit, Rule};

/// The longest window of several `per` together.
const MOST_SCALED_S: u64 = 60;

/// The header `RateLimit-Policy` with quota and window, and `RateLimit` with what is left and for how many seconds. A rule that
/// no quota in whole seconds says truly has no policy.
pub(super) fn rate_limit(limit: &Limit, left: u64, reset: Duration) -> HeaderMap {
    let name = &limit.name;
    let value = |text: String| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
    let mut headers = HeaderMap::new();
    if let Some((quota, window_s)) = policy(&limit.rule) {
        let policy = value(format!("\"{name}\";q={quota};w={window_s}"));
        headers.insert(HeaderName::from_static("ratelimit-policy"), policy);
    }
    let now = value(format!("\"{name}\";r={left};t={}", seconds(reset)));
    headers.insert(HeaderName::from_static("ratelimit"), now);
    headers
}

/// The quota, and its window in whole seconds: as many `per` together as are whole seconds. `None` if that is too long.
fn policy(rule: &Rule) -> Option<(u64, u64)> {
    const SECOND_US: u64 = 1_000_000;
    let per_us = u64::try_from(rule.per.as_micros()).ok()?;
    let times = SECOND_US / divisor(per_us, SECOND_US);
    let window_s = per_us.checked_mul(times)? / SECOND_US;
    (times == 1 || window_s <= MOST_SCALED_S).then_some((u64::from(rule.permits) * times, window_s))
}

/// The greatest number that divides both.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// How long until the quota is whole again: the rest of the fixed window in which the permits open, and `per` for the
/// other algorithms. `day_of` gives the beginning and the end of a day of the rule's time zone, as all nodes count it.
pub(super) fn reset(
    rule: &Rule,
    permits: &[Permit],
    now: Instant,
    day_of: impl Fn(i64) -> Option<(i64, i64)>,
) -> Duration {
    let span = permits.iter().find_map(|permit| permit.span);
    let (Some(window), Some(span)) = (rule.window(), span) else { return rule.per };
    let ends_us = if rule.zone().is_some() {
        day_of(span.opens_us).map(|(_, ends_us)| ends_us)
    } else {
        let per = i64::try_from(window.as_micros()).ok();
        per.map(|per| span.opens_us - span.opens_us.rem_euclid(per) + per)
    };
    // The window is one of Redis's clock. Only the permits' end is known by this node's clock, too.
    ends_us.map_or(rule.per, |ends_us| {
        let after_close = Duration::from_micros(u64::try_from(ends_us - span.closes_us).unwrap_or(0));
        after_close + span.closes.saturating_duration_since(now)
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::limiter::{Placement, Span};
    use crate::refund::LimitName;

    const DAY: &str = r#"{"algorithm":"fixed_window","permits":20,"per_us":86400000000,"lateness_us":0}"#;

    fn us(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_microsecond()
    }

    /// The seconds until the quota is whole again, at 20:30 UTC, after a grant of a permit that opens then.
    fn rest(rule: &str, opens: &str) -> u64 {
        let (opens_us, now_us, now) = (us(opens), us("2026-03-29T20:30:00Z"), Instant::now());
        let closes_us = opens_us.max(now_us) + 1_000_000;
        let span = Span::translate(opens_us, closes_us, now_us, now, now);
        let permits = [Permit { numbers: Vec::new(), span: Some(span) }];
        // As a node published them whose time zone database lets Berlin's days begin half an hour later.
        let days = ["2026-03-28T23:30:00Z", "2026-03-29T22:30:00Z", "2026-03-30T22:30:00Z"].map(us);
        let day_of = |at_us: i64| {
            let ends = days.iter().position(|begins_us| *begins_us > at_us)?;
            Some((days[ends.checked_sub(1)?], days[ends]))
        };
        reset(&rule.parse().unwrap(), &permits, now, day_of).as_secs()
    }

    #[test]
    fn a_days_quota_is_whole_again_at_the_end_of_the_day_and_not_a_day_later() {
        assert_eq!(rest(DAY, "2026-03-29T00:00:00Z"), 3 * 3600 + 1800);
        let log = DAY.replace("fixed_window", "sliding_log");
        assert_eq!(rest(&log, "2026-03-29T00:00:00Z"), 86_400);
    }

    #[test]
    fn the_days_of_a_zone_are_those_by_which_all_nodes_count() {
        let berlin = DAY.replace("\"lateness_us\":0", "\"lateness_us\":0,\"zone\":\"Europe/Berlin\"");
        // This day has 23 hours.
        assert_eq!(rest(&berlin, "2026-03-28T23:30:00Z"), 2 * 3600);
        // A permit that is granted ahead belongs to the next day.
        assert_eq!(rest(&berlin, "2026-03-29T22:30:00Z"), 26 * 3600);
        // Nobody has published this day.
        assert_eq!(rest(&berlin, "2026-04-02T22:00:00Z"), 86_400);
    }

    /// The two headers of a limit of so many permits.
    fn headers(permits: u32, per_us: u64) -> [Option<String>; 2] {
        let rule = format!(
            r#"{{"algorithm":"fixed_window","permits":{permits},"per_us":{per_us},"lateness_us":20000}}"#
        );
        let limit = Limit {
            name: LimitName::new("acme").unwrap(),
            rule: rule.parse().unwrap(),
            ahead: Duration::ZERO,
            placement: Placement::Shared,
        };
        let headers = rate_limit(&limit, 3, Duration::from_millis(200));
        ["ratelimit-policy", "ratelimit"]
            .map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn the_headers_say_quota_window_and_what_is_left() {
        let [policy, now] = headers(20, 2_000_000);
        assert_eq!(policy.as_deref(), Some("\"acme\";q=20;w=2"));
        assert_eq!(now.as_deref(), Some("\"acme\";r=3;t=1"));
    }

    #[test]
    fn a_quota_is_that_of_the_rule_also_where_its_span_is_no_whole_number_of_seconds() {
        for (permits, per_us, said) in [
            (20, 1_500_000, Some("q=40;w=3")),
            (1, 100_000, Some("q=10;w=1")),
            (3, 400_000, Some("q=15;w=2")),
            (1_000_000, 86_400_000_000, Some("q=1000000;w=86400")),
            (7, 60_500_000, None),
            (7, 1_000_001, None),
        ] {
            let [policy, now] = headers(permits, per_us);
            let said = said.map(|said| format!("\"acme\";{said}"));
            assert_eq!(policy, said, "{permits} in {per_us} us");
            assert!(now.is_some());
        }
    }
}
