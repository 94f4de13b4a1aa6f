//! What a bucket is asked for, and what it answers.

use std::time::Duration;

use crate::limiter::{Forgotten, Permit};
use crate::refund::id::{LimitName, RefundId};

/// What a bucket answered when a channel worker asked for work.
#[derive(Debug)]
pub enum Take {
    /// Permits were spent, and these refunds left the bucket under them.
    /// `depth` ids are left; `feed` asks the taker to feed the line.
    Granted {
        taken: Vec<(RefundId, Permit)>,
        depth: u64,
        feed: bool,
        /// When a limit had no more of them; asking sooner is pointless.
        again: Option<Wait>,
        overruled: Vec<Overruled>,
    },
    /// A limit is used up; asking sooner than this is pointless.
    Denied { wait: Wait, depth: Option<u64>, feed: bool, overruled: Vec<Overruled> },
    /// Nobody is waiting, so no permit was spent.
    Empty,
    /// Redis does not know what is spent of a limit. The ledger does: [`Bucket::remind`] it.
    Forgot(Forgotten),
    /// Redis's clock was set. Whatever was granted is not to be used.
    ClockStepped { by_us: i64 },
}

/// What answered somebody who wanted permits without a refund.
#[derive(Debug)]
pub enum Acquired {
    /// All that were wanted; `left` more could be had at once.
    Granted {
        permits: Vec<Permit>,
        left: u64,
    },
    Denied {
        wait: Wait,
        left: u64,
    },
    Forgot(Forgotten),
    /// Another node asks the ledger what Redis forgot; ask again soon.
    Restoring,
    ClockStepped {
        by_us: i64,
    },
}

/// How long a limit makes one wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    pub span: Duration,
    pub limit: LimitName,
}

/// Another node's file is stricter, and its rule is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overruled {
    pub limit: LimitName,
    /// The rule's text.
    pub by: String,
}

/// What the ids of a line are there for; a channel has a line for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// To be sent.
    Send,
    /// To be asked about.
    Inquire,
}

/// At which end of the line ids are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Behind everybody; stops when the line is full.
    Back,
    /// Before everybody; the newest leave a full line again.
    Front,
}

/// What stands in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub depth: u64,
    /// The id that leaves next.
    pub head: Option<RefundId>,
}

/// What a channel worker asks for.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    pub want: u32,
    /// The depth below which somebody is asked to feed the line.
    pub low_water: u32,
    /// How long it takes from asking to the first byte: permits that are over by then are of no use.
    pub haste: Duration,
}

/// Which line is taken from, and whether it lets the other go first.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn {
    First,
    After { between: Duration },
}

impl Turn {
    pub fn errand(self) -> Errand {
        match self {
            Turn::First => Errand::Send,
            Turn::After { .. } => Errand::Inquire,
        }
    }
}
