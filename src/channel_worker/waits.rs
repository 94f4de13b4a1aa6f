//! Tells the channel's meter what the worker for sends waits for. The worker for inquiries tells nothing: refunds go
//! first, and their way is what people ask about.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bucket::LimitWait;
use crate::channel::Channel;
use crate::limiter::{Rule, Supply};
use crate::node::Node;
use crate::node::meter::{Binds, Meter};
use crate::refund::LimitName;

#[derive(Debug, Default)]
pub(super) struct Waits {
    meter: Option<Arc<Meter>>,
    /// The limit of the last denial, and what a wait for it counts as.
    limit: Option<(LimitName, Binds)>,
    /// How long the last take waited for connections.
    pub connecting: Duration,
}

impl Waits {
    /// A used-up limit with a window of at least this length is a quota.
    const QUOTA: Duration = Duration::from_mins(10);

    pub fn new(meter: Option<Arc<Meter>>) -> Self {
        Waits { meter, ..Waits::default() }
    }

    /// The worker waits for this from now on, or works.
    pub fn on(&self, binds: Binds) {
        self.on_since(binds, Instant::now());
    }

    fn on_since(&self, binds: Binds, since: Instant) {
        if let Some(meter) = &self.meter {
            meter.waits_since(binds, since);
        }
    }

    /// The worker waits until the channel may send, as far as this node knows.
    pub fn on_suspension(&self, node: &Node, channel: &Channel) {
        if let Some(binds) = node.suspensions.binds(&channel.name) {
            self.on(binds);
        }
    }

    /// The worker waits for the next permit of the limit that denied one.
    pub fn on_limit(&self) {
        match (&self.meter, &self.limit) {
            (Some(meter), Some((limit, binds))) => meter.waits_for_limit(*binds, limit),
            (Some(_), None) => self.on(Binds::Limit),
            (None, _) => {}
        }
    }

    /// Connections were open at last; the worker began to wait for them at `began`. Until `opens` it would have waited for
    /// the limit anyway.
    pub fn connected(&mut self, began: Instant, opens: Option<Instant>) {
        let late_since = opens.map_or(began, |opens| opens.max(began));
        let now = Instant::now();
        self.connecting = now.saturating_duration_since(late_since);
        if late_since < now {
            self.on_since(Binds::Bank, late_since);
        }
    }

    /// Notes the limit that makes the channel wait.
    pub fn note_limit(&mut self, channel: &Channel, wait: Option<&LimitWait>) {
        let Some(LimitWait { limit: name, .. }) = wait.filter(|_| self.meter.is_some()) else { return };
        if self.limit.as_ref().is_some_and(|(known, _)| known == name) {
            return;
        }
        let rule = channel.limits.iter().find(|limit| limit.name == *name).map(|limit| &limit.rule);
        let binds = if rule.is_some_and(is_quota) { Binds::Quota } else { Binds::Limit };
        self.limit = Some((name.clone(), binds));
    }
}

/// Whether a wait for this rule means that a quota is used up. The permits of a paced limit, and the tokens of a bucket,
/// come one by one, so they are never used up for long.
fn is_quota(rule: &Rule) -> bool {
    rule.per >= Waits::QUOTA && rule.algorithm.supply() == Supply::Together
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Algorithm;

    #[test]
    fn a_used_up_window_of_ten_minutes_is_a_quota_and_a_slow_pace_is_not() {
        let rule =
            |algorithm, per| Rule { algorithm, permits: 100, per, lateness: Duration::from_millis(20) };
        let day = Duration::from_hours(24);
        for algorithm in Algorithm::all(5, 10) {
            let comes_at_once = algorithm.supply() == Supply::Together;
            assert_eq!(is_quota(&rule(algorithm.clone(), day)), comes_at_once, "{algorithm:?}");
            assert!(!is_quota(&rule(algorithm, Duration::from_mins(9))));
        }
    }
}
