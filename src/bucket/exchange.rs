//! The values that go into calls of a bucket, and the values that come back.

use std::time::{Duration, Instant};

use super::Bucket;
use crate::channel::Channel;
use crate::limiter::{Forgotten, Permit};
use crate::refund::id::{LimitName, RefundId};

/// The result of a take.
#[derive(Debug)]
pub enum Take {
    /// Permits were spent, and these refunds left the bucket under them. `depth` ids are left in the bucket. `is_low`
    /// says that the bucket is below its low water, and that this taker nudges the feeder.
    Granted {
        taken: Vec<(RefundId, Permit)>,
        depth: u64,
        is_low: bool,
        /// The wait for more permits, when a limit had fewer than wanted. A request before then is in vain.
        again: Option<LimitWait>,
        stricter_rules: Vec<StricterRule>,
        /// How many refunds went back into the bucket, because a share of this node had no permit left for them, or
        /// none that is open together with the permits of the other limits. Those permits are spent.
        unused: usize,
    },
    /// A limit has no permit now. A request before the end of `wait` is in vain. `depth` is `None` when the call did
    /// not read the bucket.
    Denied { wait: LimitWait, depth: Option<u64>, is_low: bool, stricter_rules: Vec<StricterRule> },
    /// The bucket has no ids, so no permit was spent.
    Empty,
    /// Redis has no usable count of a limit. The caller restores the count from the ledger with
    /// [`Bucket::restore`](super::Bucket::restore).
    Forgot(Forgotten),
    /// Redis's clock was set by `by_us` us; 0 when the call began before an earlier step was reported. The caller
    /// must not use permits of this call.
    ClockStepped { by_us: i64 },
}

/// The result of a call that wants permits for another service, without refunds.
#[derive(Debug)]
pub enum Acquired {
    /// All permits that the caller wanted. `left` permits are left.
    Granted { permits: Vec<Permit>, left: u64 },
    /// Not all permits that the caller wanted are good now, so none was spent. `left` permits are left.
    Denied { wait: LimitWait, left: u64 },
    /// As in [`Take::Forgot`].
    Forgot(Forgotten),
    /// Another node restores the count from the ledger. The caller asks again soon.
    Restoring,
    /// As in [`Take::ClockStepped`].
    ClockStepped { by_us: i64 },
}

/// A limit, and how long a caller must wait for its next permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitWait {
    pub span: Duration,
    pub limit: LimitName,
}

/// Another node's file has a stricter rule for this limit, and that rule is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StricterRule {
    pub limit: LimitName,
    /// The stricter rule, for people.
    pub by: String,
}

/// The purpose of a bucket. A channel has one bucket for sends, and one for inquiries where it has an inquiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The refunds are due to be sent.
    Send,
    /// The refunds are due for an inquiry.
    Inquire,
}

/// Whether inquiries let the channel's sends go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// The channel may not send at all. So the refunds in the bucket for sends need no permits.
    Never,
    /// While the bucket for sends has ids, one permit goes to an inquiry after nine permits of sends.
    ToSends,
    /// As `ToSends`. If no node got a permit for a send in the time of ten permits, one goes to an inquiry, too.
    ToActiveSends,
}

/// The end of the bucket at which ids are put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// After all other ids. The fill stops when the bucket is full.
    Back,
    /// Before all other ids. If the bucket becomes too full, the newest ids leave it again.
    Front,
}

/// How full one bucket is, and its next id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketDepth {
    /// The number of ids in the bucket.
    pub depth: u64,
    /// The id that leaves the bucket next.
    pub head: Option<RefundId>,
}

/// What a channel worker wants from a take.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// The most ids to take.
    pub want: u32,
    /// Below this depth a taker is asked to fill the bucket.
    pub low_water: u32,
    /// The time from the take to the first byte. A permit that closes before its end is of no use.
    pub lead_time: Duration,
    /// Up to when a take may look at this node's shares; later another node may count them. `None` without shares.
    pub until: Option<Instant>,
}

impl Order {
    /// The most ids that one call may take.
    pub(super) fn most(&self) -> u32 {
        self.want.clamp(1, Bucket::MOST_AT_ONCE)
    }

    /// Whether the take came too late for a look at this node's shares.
    pub(super) fn is_too_late(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// When the permits that Redis grants may open. Permits of a node's own share must open at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpeningTimes {
    /// The time from the call to the first opening, if it is longer than the lead time.
    pub after: Duration,
    /// The longest time from there to the last opening.
    pub within: Duration,
}

impl OpeningTimes {
    /// As the order and the limits say.
    pub const ANY: OpeningTimes = OpeningTimes { after: Duration::ZERO, within: Duration::MAX };
}

/// How inquiries share the permits of a channel's limits with sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sharing {
    /// The time in which the slowest limit grants one permit.
    pub spacing: Duration,
    /// The most permits of sends that count for later inquiries.
    pub most: u32,
}

impl Sharing {
    /// Inquiries get one permit after this many permits of sends, while refunds wait in the bucket for sends.
    pub const SENDS: u32 = 9;

    /// How the channel's two workers share its permits; `None` without an inquiry, if inquiries have their own limits,
    /// and without limits.
    pub fn of(channel: &Channel) -> Option<Self> {
        if channel.inquiry.as_ref()?.limits.is_some() {
            return None;
        }
        let rules = || channel.limits.iter().map(|limit| &limit.rule);
        Some(Sharing {
            spacing: rules().map(|rule| rule.per / rule.permits.max(1)).max()?,
            most: rules().map(|rule| rule.permits).max()?.max(Self::SENDS),
        })
    }
}
