//! Limits and permits: the rule, the numbers it hands to its script, and what the script grants.
//!
//! Counting is done by the scripts in `limiter/lua`, on Redis's clock; nothing here counts.

pub mod rule;
pub mod timing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::refund::id::LimitName;
pub use rule::{Algorithm, Rule};

/// A limit: a rule and where it counts. Channels that name the same limit share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub name: LimitName,
    pub rule: Rule,
    /// How long before it opens a permit may be granted, so that the claim is written and the
    /// connection stands ready when it does.
    pub ahead: Duration,
    pub placement: Placement,
}

/// Who counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// All nodes together, in Redis.
    Shared,
    /// Each of at most this many nodes its own share, in memory.
    LocalShare { nodes: u32 },
}

impl Limit {
    /// The share of a limit that one node counts alone; the limit itself if all count it together.
    #[must_use]
    pub fn share(self: &Arc<Self>, share: u32) -> Arc<Limit> {
        let Placement::LocalShare { nodes } = self.placement else { return Arc::clone(self) };
        let mut own = self.as_ref().clone();
        own.name = LimitName::derived(self.name.as_str(), &format!("share{share}"));
        own.rule.permits /= nodes.max(1);
        if let Algorithm::TokenBucket { burst } = &mut own.rule.algorithm {
            *burst /= nodes.max(1);
        }
        Arc::new(own)
    }
}

/// The number of a permit: spent once, because Postgres keeps it as a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PermitNumber {
    pub limit: LimitName,
    /// The window or slot, named by its first microsecond on Redis's clock; of kinds that have
    /// neither, the moment the permit opens.
    pub window_start_us: i64,
    /// Which permit of that window, from 1.
    pub ordinal: i32,
    /// The limit's generation under which it was granted; the ledger refuses those of older ones.
    pub generation: i64,
}

impl PermitNumber {
    /// As the journal writes it.
    #[must_use]
    pub fn describe(&self) -> String {
        let start = Timestamp::from_microsecond(self.window_start_us)
            .map_or_else(|_| self.window_start_us.to_string(), |t| t.to_string());
        format!("{}@{start}#{}", self.limit, self.ordinal)
    }
}

/// Leave to make one call to the bank inside a span of Redis's time.
#[derive(Debug, Clone)]
pub struct Permit {
    /// One number for each limit that granted; none for an unlimited channel.
    pub numbers: Vec<PermitNumber>,
    /// The span in Redis's time; `None` for an unlimited channel.
    pub span: Option<Span>,
}

impl Permit {
    /// No permit is good for longer after it opened.
    pub const LIFETIME: Duration = Duration::from_secs(10);
    /// A node whose claims are slow asks at most this much ahead for it.
    pub const MOST_HASTE: Duration = Duration::from_millis(100);
    /// How far ahead a paced limit grants its next slot to another service.
    pub const NEXT_SLOT: Duration = Duration::from_secs(1);

    /// As the journal writes it; `None` for one without numbers.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let numbers: Vec<String> = self.numbers.iter().map(PermitNumber::describe).collect();
        (!numbers.is_empty()).then(|| numbers.join(","))
    }
}

/// A limit of which Redis has nothing, something foreign, or something of another rule.
#[derive(Debug, Clone)]
pub struct Forgotten {
    pub limit: Arc<Limit>,
    /// Redis's time.
    pub now_us: i64,
    /// The window that runs, from and to; zeros for limits without windows.
    pub window: (i64, i64),
    /// Whose memory forgot.
    pub server: ServerId,
}

/// Whose memory counts: Redis's ids of the process and its history. Empty if nobody knows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerId(pub String);

/// It differs from run to run, and traces are compared.
impl std::fmt::Debug for ServerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerId")
    }
}

/// What the ledger knows of a limit, to be told to Redis.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Permits are good under this one only.
    pub generation: i64,
    /// A fixed window, and how many of its permits are spent.
    pub window_start_us: i64,
    pub used: i64,
    /// When the last of what another server granted of a fixed window has left, from now on; it may have already.
    pub rest_us: Option<i64>,
    /// Whose memory counts under the generation.
    pub server: ServerId,
    pub history: Vec<Past>,
}

/// Some permits that were spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// When the last of them opened, by the clock they were granted by.
    pub at_us: i64,
    pub count: i64,
    /// For how long that has been over at the least, by Postgres's clock; negative if it may be to come.
    pub over_us: Option<i64>,
}

/// When a permit's first byte may leave: `[opens_us, closes_us)` in Redis's time, and the same on
/// this node's monotonic clock, made smaller at both ends by the round trip to Redis.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub opens_us: i64,
    pub closes_us: i64,
    /// Surely not before `opens_us`.
    pub opens: Instant,
    /// Surely before `closes_us`.
    pub closes: Instant,
}

impl Span {
    /// Translates a span of Redis's time to this node's monotonic clock.
    ///
    /// Redis read `redis_now_us` somewhere between `asked` and `answered`. If it read it as late as
    /// possible, its clock shows the least now: that decides when the span surely is open. If it
    /// read it as early as possible, its clock shows the most: that decides when it may be over.
    #[must_use]
    pub fn translate(
        opens_us: i64,
        closes_us: i64,
        redis_now_us: i64,
        asked: Instant,
        answered: Instant,
    ) -> Self {
        Span {
            opens_us,
            closes_us,
            opens: shifted(answered, opens_us - redis_now_us),
            closes: shifted(asked, closes_us - redis_now_us),
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
    fn a_span_shrinks_by_the_round_trip_at_both_ends() {
        let asked = Instant::now() + Duration::from_secs(1);
        let answered = asked + Duration::from_millis(3);
        let span = Span::translate(1_000_000, 2_000_000, 900_000, asked, answered);
        assert_eq!(span.opens, answered + Duration::from_millis(100));
        assert_eq!(span.closes, asked + Duration::from_millis(1100));
    }
}
