//! What happened in a run, for the judge: faults, stops of nodes, refunds that people saw, and their decisions.
//!
//! The world writes these records while it runs. They hold facts alone and judge nothing.

/// A refund in review, as a page showed it to a person.
#[derive(Debug, Clone)]
pub struct Shown {
    pub refund_ref: String,
    pub version: i64,
    /// What refundd says about it. It is printed, and proves nothing.
    pub reason: String,
    pub seen_us: i64,
}

/// A node's process that was stopped for a while, as an overloaded host stops it.
#[derive(Debug, Clone)]
pub struct Frozen {
    pub node: &'static str,
    pub from_us: i64,
    pub until_us: i64,
}

/// A fault, and when it was healed.
#[derive(Debug, Clone)]
pub struct Fault {
    pub kind: String,
    /// The key in Redis of the limit about which somebody forged something.
    pub forged: Option<String>,
    pub from_us: i64,
    pub healed_us: i64,
}

/// A person's decision about a refund in review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub refund_ref: String,
    /// The version that the page showed.
    pub version: i64,
    /// Whether it is to be sent again.
    pub again: bool,
    /// Whether the page said that its channel goes to another bank now.
    pub has_moved: bool,
    /// When it was first sent.
    pub said_us: i64,
    /// What refundd answered, in order: to the decision, and to its approval by a second person.
    pub replies: Vec<String>,
}
