//! The rule of a limit that nodes count by shares, for all shares together. Pure.

use std::sync::Arc;

use crate::limiter::{Limit, Placement, Rule};

/// What so many shares allow together. Nodes take from one bucket, so a share that is used up leaves its refunds to the
/// others.
#[must_use]
pub fn together(share: &Rule, count: usize) -> Rule {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let mut all = share.clone();
    all.permits = all.permits.saturating_mul(count);
    if let Some(burst) = all.algorithm.burst() {
        all.algorithm = all.algorithm.with_burst(burst.saturating_mul(count));
    }
    all
}

/// What a limit allows on so many nodes. No more nodes than it has shares use it.
#[must_use]
pub fn rule_on(limit: &Arc<Limit>, nodes: usize) -> Rule {
    match limit.placement {
        Placement::Shared => limit.rule.clone(),
        Placement::LocalShare { nodes: shares } => {
            let most = usize::try_from(shares).unwrap_or(usize::MAX);
            together(&limit.share(1).rule, nodes.min(most).max(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::Algorithm;
    use crate::refund::id::LimitName;

    #[test]
    fn a_limit_in_shares_allows_no_more_than_the_shares_that_nodes_have() {
        let limit = |placement| {
            let rule = Rule {
                algorithm: Algorithm::TokenBucket { burst: 45 },
                permits: 21,
                per: Duration::from_secs(1),
                lateness: Duration::from_millis(20),
            };
            let name = LimitName::stored("acme");
            Arc::new(Limit { name, rule, ahead: Duration::from_millis(50), placement })
        };
        let of = |placement, nodes| {
            let rule = rule_on(&limit(placement), nodes);
            (rule.permits, rule.algorithm.burst())
        };
        let in_ten = Placement::LocalShare { nodes: 10 };
        assert_eq!(of(in_ten, 0), (2, Some(4)));
        assert_eq!(of(in_ten, 3), (6, Some(12)));
        assert_eq!(of(in_ten, 11), (20, Some(40)));
        assert_eq!(of(Placement::Shared, 3), (21, Some(45)));
    }
}
