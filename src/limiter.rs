//! Limits and permits: a limit's rule, and the permits that its script grants.
//!
//! This file does not count: the scripts in `limiter/lua` count, by Redis's clock.

pub mod algorithm;
pub mod rule;
pub mod timing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::refund::id::LimitName;
pub use algorithm::{Algorithm, Supply};
pub use rule::Rule;

/// A limit: a rule, and the place where its permits are counted. Channels that name the same limit share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub name: LimitName,
    pub rule: Rule,
    /// How long before its span opens a permit may be granted. In this time the node writes the claim and opens the
    /// connection.
    pub ahead: Duration,
    pub placement: Placement,
}

/// The place where a limit's permits are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// All nodes count together, in Redis.
    Shared,
    /// At most `nodes` nodes count one share each, in memory.
    LocalShare { nodes: u32 },
}

impl Limit {
    /// Among how many nodes the limit is shared out; `None` if all nodes count it together.
    #[must_use]
    pub fn shares(&self) -> Option<u32> {
        match self.placement {
            Placement::Shared => None,
            Placement::LocalShare { nodes } => Some(nodes),
        }
    }

    /// The share of the limit that one node counts alone; the limit itself if all nodes count it together.
    #[must_use]
    pub fn share(self: &Arc<Self>, share: u32) -> Arc<Limit> {
        let Placement::LocalShare { nodes } = self.placement else { return Arc::clone(self) };
        let mut own = self.as_ref().clone();
        own.name = LimitName::derived(self.name.as_str(), &format!("share{share}"));
        own.rule.permits /= nodes.max(1);
        if let Some(burst) = own.rule.algorithm.burst() {
            own.rule.algorithm = own.rule.algorithm.with_burst(burst / nodes.max(1));
        }
        Arc::new(own)
    }

    /// The longest time from the moment at which a node looks at its share until the take under it grants permits. A node may
    /// ask Postgres in between, and it waits up to 5 s for an answer. It uses no permit that is granted later.
    pub const SLOWEST_TAKE: Duration = Duration::from_secs(5);

    /// For how long permits of a share may count after a node gave the share up: until the last take under it is done, its
    /// permits have opened and closed, and they are older than the rule looks back.
    #[must_use]
    pub fn rest_of_share(&self) -> Duration {
        // A day of a time zone has 28 hours at most (migration 0070).
        let longer_day = if self.rule.zone().is_some() { Duration::from_hours(4) } else { Duration::ZERO };
        let opens = self.ahead.max(Permit::NEXT_SLOT);
        let closes = self.rule.per.min(Permit::LIFETIME);
        Self::SLOWEST_TAKE + opens + closes + self.rule.memory() + longer_day
    }
}

/// The number of a permit. It can be spent only once, because it is a key in Postgres.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PermitNumber {
    pub limit: LimitName,
    /// The first microsecond of the window or slot, by Redis's clock. For algorithms without windows and slots, the
    /// moment at which the permit opens.
    pub window_start_us: i64,
    /// The number of the permit within its window, from 1.
    pub ordinal: i32,
    /// The limit's generation at the grant; the ledger refuses permits of older generations.
    pub generation: i64,
    /// The limit's rule on this node, as JSON. The ledger refuses a permit that does not keep it.
    pub own_rule: Arc<str>,
    /// The stricter rule of another node under which Redis granted the permit, as JSON; `None` under `own_rule`.
    pub stricter_rule: Option<Arc<str>>,
    pub counted: Counted,
}

/// What the ledger needs to count once more after a claim's commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Counted {
    /// Whether the numbers alone never keep the rule. Numbers of windows keep it while one clock names the windows.
    pub is_always: bool,
    /// How long after its grant the permit opens at the latest.
    pub lead: Duration,
    /// For how long the node has seen Redis's clock run without a step; `None` for always.
    pub clock_known: Option<Duration>,
}

impl Counted {
    /// For this long after a step of Redis's clock, windows may have been named by another clock.
    pub const STEP_MATTERS: Duration = Duration::from_secs(30);

    /// Whether the ledger must count. `has_new_server` says that another server took over less than
    /// [`Counted::STEP_MATTERS`] ago.
    #[must_use]
    pub fn is_needed(&self, has_new_server: bool) -> bool {
        self.is_always || has_new_server || self.clock_known.is_some_and(|known| known < Self::STEP_MATTERS)
    }
}

impl PermitNumber {
    /// The number as the journal writes it, such as `acme@2026-01-31T00:00:00Z#1`.
    #[must_use]
    pub fn describe(&self) -> String {
        let start = Timestamp::from_microsecond(self.window_start_us)
            .map_or_else(|_| self.window_start_us.to_string(), |t| t.to_string());
        format!("{}@{start}#{}", self.limit, self.ordinal)
    }
}

/// Leave to start one request to the bank within a span of Redis's time.
#[derive(Debug, Clone)]
pub struct Permit {
    /// One number for each limit that granted the permit; empty for an unlimited channel.
    pub numbers: Vec<PermitNumber>,
    /// The span in Redis's time; `None` for an unlimited channel.
    pub span: Option<Span>,
}

impl Permit {
    /// A permit closes at the latest this long after it opened.
    pub const LIFETIME: Duration = Duration::from_secs(10);
    /// The longest lead time: a node whose claims take longer asks no earlier.
    pub const LONGEST_LEAD_TIME: Duration = Duration::from_millis(100);
    /// How long before it opens a paced limit's next slot may be granted to another service.
    pub const NEXT_SLOT: Duration = Duration::from_secs(1);

    /// How long to wait after the ledger refused a permit that Redis granted under another node's stricter rule; `None` if it granted
    /// under the rules of this node. The node's own rule may be used up. Each refusal makes Redis forget the limit for all nodes, so the
    /// node does not ask again at once. Without a node that asks under it, the stricter rule ends after [`timing::SEEN_FOR`].
    #[must_use]
    pub fn wait_after_refusal(&self, limits: &[Arc<Limit>]) -> Option<Duration> {
        let is_overruled = |limit: &Arc<Limit>| {
            self.numbers.iter().any(|number| number.limit == limit.name && number.stricter_rule.is_some())
        };
        limits.iter().any(is_overruled).then_some(timing::SEEN_FOR)
    }

    /// The permit as the journal writes it; `None` for a permit without numbers.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let numbers: Vec<String> = self.numbers.iter().map(PermitNumber::describe).collect();
        (!numbers.is_empty()).then(|| numbers.join(","))
    }
}

/// A limit without a usable count in Redis: the count is missing, foreign, or of another rule.
#[derive(Debug, Clone)]
pub struct Forgotten {
    pub limit: Arc<Limit>,
    /// Redis's time, in microseconds.
    pub now_us: i64,
    /// The generation that stands in Redis beside the unusable count; 0 if none does.
    pub generation: i64,
    /// The start and the end of the current window; zeros for limits without windows.
    pub window: (i64, i64),
    /// The Redis that forgot the count.
    pub server: ServerId,
}

/// Identifies the Redis that counts: the id of its process and the id of its data's history. Empty if unknown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerId(pub String);

/// Hides the id: it differs from run to run, and the simulation compares traces.
impl std::fmt::Debug for ServerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerId")
    }
}

/// The ledger's count of a limit, for restoring Redis.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerCount {
    /// The limit's current generation: only its permits are good.
    pub generation: i64,
    /// The start of a fixed window.
    pub window_start_us: i64,
    /// How many permits of that window are spent.
    pub used: i64,
    /// For fixed windows: the time from now until no request can leave any more under a permit that another server
    /// granted. It may be negative.
    pub rest_us: Option<i64>,
    /// The Redis that counts under this generation.
    pub server: ServerId,
    /// When Redis asked this node to restore the count, in us of Redis's time, if only the node that was asked last may do so.
    pub asked_to_restore_us: Option<i64>,
    pub history: Vec<SpentGroup>,
}

/// A group of spent permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpentGroup {
    /// When the last of the permits opened, by the clock of the Redis that granted them.
    pub at_us: i64,
    pub count: i64,
    /// The least time since that moment, by Postgres's clock; negative if the moment may lie in the future.
    pub over_us: Option<i64>,
}

/// When a request's first byte may leave under a permit: `[opens_us, closes_us)` in Redis's time. On this node's
/// monotonic clock the span is shorter at both ends, by up to the round trip to Redis.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub opens_us: i64,
    pub closes_us: i64,
    /// Never before `opens_us`.
    pub opens: Instant,
    /// Never after `closes_us`.
    pub closes: Instant,
}

impl Span {
    /// Translates a span of Redis's time to this node's monotonic clock.
    ///
    /// Redis read its clock as `redis_now_us` at some moment between `before` and `after`. If Redis read it as late
    /// as possible, its clock shows the least now; by that case the span opens. If Redis read it as early as
    /// possible, its clock shows the most now; by that case the span closes.
    #[must_use]
    pub fn translate(
        opens_us: i64,
        closes_us: i64,
        redis_now_us: i64,
        before: Instant,
        after: Instant,
    ) -> Self {
        Span {
            opens_us,
            closes_us,
            opens: shifted(after, opens_us.saturating_sub(redis_now_us)),
            closes: shifted(before, closes_us.saturating_sub(redis_now_us)),
        }
    }
}

fn shifted(at: Instant, by_us: i64) -> Instant {
    let by = Duration::from_micros(by_us.unsigned_abs());
    if by_us >= 0 { at + by } else { at.checked_sub(by).unwrap_or(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overruled_node_stays_away_after_a_refusal_until_the_stricter_rule_may_have_ended() {
        let rule = Rule {
            algorithm: Algorithm::Paced,
            permits: 20,
            per: Duration::from_secs(1),
            lateness: Duration::from_millis(20),
        };
        let permit = |stricter: Option<&str>| {
            let number = PermitNumber {
                limit: LimitName::new("acme").unwrap(),
                window_start_us: 0,
                ordinal: 1,
                generation: 1,
                own_rule: Arc::from(""),
                stricter_rule: stricter.map(Arc::from),
                counted: Counted { is_always: true, lead: Duration::ZERO, clock_known: None },
            };
            Permit { numbers: vec![number], span: None }
        };
        let name = LimitName::new("acme").unwrap();
        let limit = Limit { name, rule, ahead: Duration::ZERO, placement: Placement::Shared };
        let limits = [Arc::new(limit)];
        assert_eq!(permit(Some("{}")).wait_after_refusal(&limits), Some(timing::SEEN_FOR));
        assert_eq!(permit(None).wait_after_refusal(&limits), None);
        assert_eq!(permit(Some("{}")).wait_after_refusal(&[]), None);
    }

    #[test]
    fn a_span_shrinks_by_the_round_trip_at_both_ends() {
        let before = Instant::now() + Duration::from_secs(1);
        let after = before + Duration::from_millis(3);
        let span = Span::translate(1_000_000, 2_000_000, 900_000, before, after);
        assert_eq!(span.opens, after + Duration::from_millis(100));
        assert_eq!(span.closes, before + Duration::from_millis(1100));
    }
}
