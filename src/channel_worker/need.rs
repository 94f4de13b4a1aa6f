//! How many open connections a worker reserves before it takes. It is the number of permits that the channel's limits
//! can grant before more connections could be opened. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::limiter::{Limit, Supply};

/// The number of connections for a channel with these limits, at least 1; `usize::MAX` for a channel without limits.
///
/// `horizon` is the time from asking for a connection to its first byte: set-up, claim and `ahead`.
/// `is_rare` says that a connection can be opened between two takes of this node.
pub(super) fn need(limits: &[Arc<Limit>], horizon: Duration, is_rare: bool) -> usize {
    limits.iter().map(|limit| of(limit, horizon, is_rare)).min().unwrap_or(usize::MAX).max(1)
}

fn of(limit: &Limit, horizon: Duration, is_rare: bool) -> usize {
    let rule = &limit.rule;
    let spacing = rule.spacing_us() as f64 / 1_000_000.0;
    let granted = rule.at_once() as usize;
    let over_horizon = || whole(horizon.as_secs_f64() / spacing).saturating_add(1);
    match rule.algorithm.supply() {
        // Unused slots of a paced limit do not add up: one take is granted slots up to `ahead` from now.
        Supply::Slots if is_rare => whole((limit.ahead.as_secs_f64() / spacing).floor()).saturating_add(1),
        Supply::Slots => over_horizon(),
        Supply::OneByOne => bounded(over_horizon().saturating_add(granted), spacing, horizon),
        Supply::Together => bounded(granted, spacing, horizon),
    }
}

/// The number of connections for a limit that grants many permits at once. Some of the requests can wait for a
/// connection that another request has used. These connections keep up with four times the rate.
fn bounded(permits: usize, spacing: f64, horizon: Duration) -> usize {
    permits.min(whole(4.0 * horizon.as_secs_f64() / spacing).saturating_add(1))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float turns into the nearest integer there is"
)]
fn whole(number: f64) -> usize {
    number.ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::{Algorithm, Placement, Rule};
    use crate::refund::LimitName;

    fn limit(algorithm: Algorithm, permits: u32, per: Duration) -> Arc<Limit> {
        let rule = Rule { algorithm, permits, per, lateness: Duration::from_millis(20) };
        let ahead = Duration::from_millis(50);
        Arc::new(Limit { name: LimitName::new("acme").unwrap(), rule, ahead, placement: Placement::Shared })
    }

    #[test]
    fn a_channel_of_one_a_second_wants_one_or_two_and_a_fast_one_many() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        let far = Duration::from_millis(560);
        for algorithm in Algorithm::all(1, 10).into_iter().filter(|kind| *kind != Algorithm::PacedStrict) {
            let of = |permits, per, is_rare| need(&[limit(algorithm.clone(), permits, per)], far, is_rare);
            assert!((1..=3).contains(&of(1, second, false)), "{algorithm:?}: {}", of(1, second, false));
            assert!((1..=3).contains(&of(10, minute, true)), "{algorithm:?}: {}", of(10, minute, true));
            assert!(of(50, second, false) >= 28, "{algorithm:?}: {}", of(50, second, false));
        }
        assert_eq!(need(&[limit(Algorithm::Paced, 1, second)], far, true), 1);
        assert_eq!(need(&[limit(Algorithm::Paced, 50, second)], far, true), 3);
        assert_eq!(need(&[], far, true), usize::MAX, "an unlimited channel uses all its slots");
    }
}
