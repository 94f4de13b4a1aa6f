//! What the walk along the chains finds.

use super::{Hash, SealSpan};

/// A fault in the journal or in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFinding {
    /// The id of the line, or the last id of the seal; of a missing seal an id before its lines.
    pub at_id: i64,
    pub channel: String,
    pub fault: ChainFault,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainFault {
    /// The seal's columns do not give its hash.
    SealChanged {
        seal: i64,
        sealed_us: i64,
    },
    /// The seal is not there, and later seals are, or the lines of the seal.
    SealMissing {
        seal: i64,
    },
    /// The seal does not name the hash of the seal before it: one of both was replaced.
    SealUnlinked {
        seal: i64,
        sealed_us: i64,
    },
    /// The seal has lines that were sealed before: the journal was sealed again.
    SealRepeated {
        seal: i64,
        sealed_us: i64,
    },
    /// The seal has a line outside its ids, or another total than the lines so far.
    SealUnfit {
        seal: i64,
        sealed_us: i64,
    },
    /// The last seal is beyond the line up to which the journal is sealed, so the next seals would repeat its lines.
    SealAhead {
        seal: i64,
        sealed_us: i64,
        until_id: i64,
    },
    LineChanged {
        refund: i64,
        finished_us: Option<i64>,
        seal: i64,
    },
    LineMissing {
        refund: i64,
        seal: i64,
        sealed_us: i64,
    },
    /// No seal has the line, and later lines are sealed. Either the line was added later, or its seal is missing.
    LineInserted {
        refund: i64,
        finished_us: Option<i64>,
    },
    /// The month of the line was noted as dropped, and refundd drops a month whole.
    LineNotDropped {
        refund: i64,
        finished_us: Option<i64>,
        seal: i64,
    },
}

/// What was found about the chain of one channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelChain {
    pub seals: u64,
    /// Lines that are as they were sealed.
    pub lines: u64,
    /// Sealed lines of months that were dropped.
    pub forgotten: u64,
    pub head: Option<ChainHead>,
    /// How many faults there are.
    pub faults: u64,
    /// The first of the faults.
    pub first: Vec<ChainFinding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    pub number: i64,
    pub span: SealSpan,
    /// How many lines the chain has up to this seal; `None` if the seal was changed.
    pub total: Option<i64>,
    pub hash: Hash,
}

impl ChannelChain {
    const SHOWN: usize = 10;

    pub(super) fn add(&mut self, finding: ChainFinding) {
        self.faults += 1;
        let place = self.first.partition_point(|earlier| earlier.at_id <= finding.at_id);
        self.first.insert(place, finding);
        self.first.truncate(Self::SHOWN);
    }
}
