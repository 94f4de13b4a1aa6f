//! This node's shares of limits that nodes count alone.
//!
//! A share belongs to one rule and one number of shares. A limit of another file has none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::bank::Slept;
use crate::limiter::Limit;
use crate::lock::Lock;
use crate::refund::LimitName;

/// The moment at which a node asked for a share, or looked at its share.
#[derive(Debug, Clone, Copy)]
pub struct ShareLook {
    at: Instant,
    slept: Slept,
}

impl ShareLook {
    pub fn now() -> Self {
        ShareLook { at: Instant::now(), slept: Slept::now() }
    }

    /// Whether so much time has passed. While a machine sleeps, its [`Instant`]s stand still: if it slept since then, nobody
    /// knows how much has passed.
    pub fn is_older_than(self, age: Duration) -> bool {
        self.at.elapsed() >= age || self.slept.has_slept_since()
    }

    /// When so much time will have passed, if the machine does not sleep.
    pub fn at_age(self, age: Duration) -> Instant {
        self.at + age
    }

    /// As if the machine had slept for a second since then.
    #[cfg(test)]
    pub fn before_a_sleep() -> Self {
        ShareLook { slept: Slept::a_second_ago(), ..ShareLook::now() }
    }
}

/// The shares of one node, by limit.
#[derive(Debug, Default)]
pub struct OwnShares(Mutex<HashMap<LimitName, OwnShare>>);

#[derive(Debug)]
struct OwnShare {
    number: u32,
    /// The limit when the share was reserved.
    of: Arc<Limit>,
    asked: ShareLook,
}

impl OwnShare {
    fn is_of(&self, limit: &Limit) -> bool {
        self.of.placement == limit.placement && self.of.rule == limit.rule
    }
}

impl OwnShares {
    /// How long a share may be used after it was reserved. `refundd.reserve_share` has the same number.
    const GOOD_FOR: Duration = Duration::from_secs(5);

    /// The number of this node's share of `limit`; `None` while it has no share.
    pub fn number(&self, limit: &Limit) -> Option<u32> {
        let shares = self.0.locked();
        let own = shares.get(&limit.name)?;
        (own.is_of(limit) && !own.asked.is_older_than(Self::GOOD_FOR)).then_some(own.number)
    }

    /// Notes that a share of `limit` was reserved, with a statement that began at `asked`. Returns whether the share is
    /// another one than before.
    pub fn keep(&self, limit: &Arc<Limit>, number: u32, asked: ShareLook) -> bool {
        let own = OwnShare { number, of: Arc::clone(limit), asked };
        let old = self.0.locked().insert(limit.name.clone(), own);
        old.is_none_or(|old| old.number != number || !old.is_of(limit))
    }

    /// Gives up the share of a limit, if this node has one.
    pub fn give_up(&self, limit: &LimitName) {
        self.0.locked().remove(limit);
    }

    /// Gives up the share of `limit` that this node had by another rule or another number of shares.
    pub fn give_up_older(&self, limit: &Limit) {
        let mut shares = self.0.locked();
        if shares.get(&limit.name).is_some_and(|own| !own.is_of(limit)) {
            shares.remove(&limit.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::{Algorithm, Placement, Rule};

    fn limit(permits: u32, nodes: u32) -> Arc<Limit> {
        Arc::new(Limit {
            name: LimitName::stored("acme"),
            rule: Rule {
                algorithm: Algorithm::SlidingLog,
                permits,
                per: Duration::from_secs(1),
                lateness: Duration::from_millis(20),
            },
            ahead: Duration::from_millis(50),
            placement: Placement::LocalShare { nodes },
        })
    }

    #[test]
    fn a_share_counts_only_for_its_own_rule_and_number_of_shares_and_only_for_a_while() {
        let shares = OwnShares::default();
        let now = ShareLook::now();
        assert!(shares.keep(&limit(20, 2), 1, now));
        assert!(!shares.keep(&limit(20, 2), 1, now));
        assert_eq!(shares.number(&limit(20, 2)), Some(1));
        assert_eq!((shares.number(&limit(20, 4)), shares.number(&limit(10, 2))), (None, None));
        shares.give_up_older(&limit(20, 4));
        assert_eq!(shares.number(&limit(20, 2)), None);
        let old = ShareLook { at: now.at.checked_sub(OwnShares::GOOD_FOR).unwrap(), ..now };
        shares.keep(&limit(20, 4), 1, old);
        assert_eq!(shares.number(&limit(20, 4)), None);
    }

    #[test]
    fn a_share_counts_no_more_after_the_machine_slept() {
        let shares = OwnShares::default();
        shares.keep(&limit(20, 2), 1, ShareLook::before_a_sleep());
        assert_eq!(shares.number(&limit(20, 2)), None);
    }

    #[test]
    fn a_look_grows_old() {
        let now = ShareLook::now();
        let age = Duration::from_secs(5);
        assert!(!now.is_older_than(age));
        assert!(ShareLook { at: now.at.checked_sub(age).unwrap(), ..now }.is_older_than(age));
        assert!(ShareLook::before_a_sleep().is_older_than(age));
    }
}
