//! What became of each refund of a bulk change.

use std::collections::HashMap;

use crate::refund::{Refund, RefundId};
use crate::store::{Stays, Waiting};

/// What became of a refund.
#[derive(Debug)]
pub enum BulkOutcome {
    /// It is cancelled or moved now.
    Done(Box<Refund>),
    /// It would be: this is a dry run.
    WouldBeDone,
    /// It was cancelled before, or is in the channel already.
    DoneBefore,
    NoSuchRefund,
    Stays(Stays),
    /// It has another version than the person saw.
    Changed,
    /// The channel that it would move to has no room.
    NoRoom,
    /// A node claimed it meanwhile, and gave it back.
    WasInUse,
}

/// A refund that somebody names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRef {
    pub refund_ref: String,
    /// The version that the person saw; a refund with another one stays. `None` where the person names none.
    pub seen: Option<i32>,
}

impl NamedRef {
    /// The first refund that is named with two versions, or with one and without.
    pub fn with_two_versions(refs: &[NamedRef]) -> Option<&NamedRef> {
        let mut first = HashMap::new();
        refs.iter().find(|one| *first.entry(&one.refund_ref).or_insert(one.seen) != one.seen)
    }
}

/// One refund that somebody named, or that waits in a channel.
#[derive(Debug)]
pub struct BulkResult {
    pub refund_ref: String,
    /// The refund before the change, or as it stays; `None` if there is none.
    pub refund: Option<Waiting>,
    pub outcome: BulkOutcome,
}

impl BulkResult {
    /// The refund as it is since the change.
    #[must_use]
    pub fn done(&self) -> Option<&Refund> {
        if let BulkOutcome::Done(refund) = &self.outcome { Some(refund) } else { None }
    }

    /// Says that no refund has the ref, for people. They may have copied an id.
    pub(super) fn unknown(&self) -> String {
        match RefundId::read(&self.refund_ref) {
            Some(id) => format!(
                "no refund has this ref, and ids are not taken here: look up the refund {id} to see its ref"
            ),
            None => "there is no such refund".to_owned(),
        }
    }

    /// Whether the refund is not cancelled, or not in the other channel.
    #[must_use]
    pub fn stays(&self) -> bool {
        match self.outcome {
            BulkOutcome::Done(_) | BulkOutcome::WouldBeDone | BulkOutcome::DoneBefore => false,
            BulkOutcome::NoSuchRefund
            | BulkOutcome::Stays(_)
            | BulkOutcome::Changed
            | BulkOutcome::NoRoom
            | BulkOutcome::WasInUse => true,
        }
    }
}
