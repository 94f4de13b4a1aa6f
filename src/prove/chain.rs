//! Proves the journal: compares its lines with the chains of seals, one chain for each channel.
//!
//! Pure: seals and lines come in, in the order of the lines' ids, and findings go out. The hashes are computed here
//! (`bytes.rs`), from the columns as Postgres sends them.
//!
//! A seal names each of its lines by id and digest. So a line that is gone is told from one that was changed, and from one
//! that was added.

mod bytes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use bytes::{Hash, LINE, SEAL, SealedColumn, digest};

/// A line of the journal as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalLine {
    pub id: i64,
    pub refund: i64,
    pub channel: String,
    /// In us since 1970; `None` if it is infinite.
    pub finished_us: Option<i64>,
    pub digest: Hash,
}

/// A seal as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    pub channel: String,
    pub number: i64,
    pub to_id: i64,
    pub sealed_us: i64,
    /// The end of the UTC month of its lines.
    pub month_ends_us: i64,
    pub previous: Option<Vec<u8>>,
    /// 48 bytes for each line: its id, its refund, its digest.
    pub lines: Vec<u8>,
    pub hash: Vec<u8>,
    /// The hash of the columns above.
    pub computed: Hash,
}

/// A note that refundd dropped a month of the journal. Times are in us since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedMonth {
    /// `None` if nothing before the end was left.
    pub begins_us: Option<i64>,
    pub ends_us: i64,
    pub dropped_us: i64,
    /// How long the journal was kept then.
    pub kept_us: i64,
    /// Nobody noted when it was dropped: `dropped_us` is later.
    pub noted_later: bool,
}

/// Which lines may be missing because their month was dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptMonths {
    pub dropped: Vec<DroppedMonth>,
    pub now_us: i64,
    /// How long the journal must be kept now.
    pub kept_us: i64,
}

impl KeptMonths {
    /// No owner may keep the journal for less: a constraint of `refundd.retention` says the same.
    const LEAST_US: i64 = 30 * 86_400_000_000;

    /// Whether a month was dropped and was old enough, by the retention of then. If nobody noted when, that of now counts, too.
    fn allows_absence(&self, month_ends_us: i64) -> bool {
        let now_allows = self.now_us.saturating_sub(self.kept_us);
        self.dropped.iter().any(|month| {
            let kept_us = month.kept_us.max(Self::LEAST_US);
            let note_allows = month.dropped_us.min(self.now_us).saturating_sub(kept_us);
            month.begins_us.is_none_or(|begins| begins < month_ends_us)
                && month_ends_us <= month.ends_us
                && (month_ends_us <= note_allows || month.noted_later && month_ends_us <= now_allows)
        })
    }
}

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
    pub to_id: i64,
    pub sealed_us: i64,
    pub hash: Hash,
}

impl ChannelChain {
    const SHOWN: usize = 10;

    fn add(&mut self, finding: ChainFinding) {
        self.faults += 1;
        let place = self.first.partition_point(|earlier| earlier.at_id <= finding.at_id);
        self.first.insert(place, finding);
        self.first.truncate(Self::SHOWN);
    }
}

/// A line as its seal names it.
#[derive(Debug)]
struct Expected {
    channel: String,
    seal: i64,
    sealed_us: i64,
    refund: i64,
    digest: Hash,
    may_be_absent: bool,
}

/// A head that a person read in a log, and the seal that has its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedHead {
    pub hash: Hash,
    pub seal: Option<(String, i64)>,
}

/// A walk along all chains.
#[derive(Debug)]
pub struct Walk {
    kept: KeptMonths,
    chains: BTreeMap<String, ChannelChain>,
    /// The sealed lines whose turn has not come.
    sealed: BTreeMap<i64, Expected>,
    heads: Vec<LoggedHead>,
    /// The first line of each channel that stands behind its last seal.
    behind: BTreeMap<String, i64>,
}

impl Walk {
    #[must_use]
    pub fn new(kept: KeptMonths, heads: impl IntoIterator<Item = Hash>) -> Self {
        let heads = heads.into_iter().map(|hash| LoggedHead { hash, seal: None }).collect();
        Walk { kept, chains: BTreeMap::new(), sealed: BTreeMap::new(), heads, behind: BTreeMap::new() }
    }

    /// Reads the next seal. Seals come in the order of their lines, before these lines.
    pub fn see_seal(&mut self, seal: &Seal) {
        let chain = self.chains.entry(seal.channel.clone()).or_default();
        let (number, sealed_us) = (seal.number, seal.sealed_us);
        let next = chain.head.map_or(1, |head| head.number + 1);
        let mut faults = Vec::new();
        if seal.computed.as_slice() != seal.hash {
            faults.push((seal.to_id, ChainFault::SealChanged { seal: number, sealed_us }));
        }
        if number != next {
            // Before its lines, which are in no seal now.
            faults.push((chain.head.map_or(0, |head| head.to_id), ChainFault::SealMissing { seal: next }));
        } else if seal.previous.as_deref() != chain.head.as_ref().map(|head| head.hash.as_slice()) {
            faults.push((seal.to_id, ChainFault::SealUnlinked { seal: number, sealed_us }));
        }
        for (at_id, fault) in faults {
            chain.add(ChainFinding { at_id, channel: seal.channel.clone(), fault });
        }
        self.behind.remove(&seal.channel);
        chain.seals += 1;
        chain.head = Some(ChainHead { number, to_id: seal.to_id, sealed_us, hash: seal.computed });
        for head in self.heads.iter_mut().filter(|head| head.hash == seal.computed) {
            head.seal = Some((seal.channel.clone(), number));
        }
        let may_be_absent = self.kept.allows_absence(seal.month_ends_us);
        let (lines, _) = seal.lines.as_chunks::<48>();
        for line in lines {
            let (id, rest) = line.split_at(8);
            let (refund, digest) = rest.split_at(8);
            let expected = Expected {
                channel: seal.channel.clone(),
                seal: number,
                sealed_us,
                refund: number_of(refund),
                digest: digest.try_into().unwrap_or_default(),
                may_be_absent,
            };
            self.sealed.insert(number_of(id), expected);
        }
    }

    /// The sealed lines up to an id whose turn has not come.
    #[must_use]
    pub fn sealed_ids(&self, to_id: i64) -> Vec<i64> {
        self.sealed.range(..=to_id).map(|(id, _)| *id).collect()
    }

    /// Compares all lines up to `to_id` that were not compared before with the seals.
    pub fn see_lines(&mut self, to_id: i64, lines: &[JournalLine]) {
        let later = to_id.checked_add(1).map(|next| self.sealed.split_off(&next)).unwrap_or_default();
        let mut sealed = std::mem::replace(&mut self.sealed, later);
        for line in lines {
            let (refund, finished_us) = (line.refund, line.finished_us);
            let Some(as_sealed) = sealed.remove(&line.id) else {
                let chain = self.chains.entry(line.channel.clone()).or_default();
                if chain.head.is_none_or(|head| head.to_id < line.id) {
                    self.behind.entry(line.channel.clone()).or_insert(line.id);
                }
                let fault = ChainFault::LineInserted { refund, finished_us };
                chain.add(ChainFinding { at_id: line.id, channel: line.channel.clone(), fault });
                continue;
            };
            let chain = self.chains.entry(as_sealed.channel.clone()).or_default();
            if as_sealed.digest == line.digest {
                chain.lines += 1;
            } else {
                let fault =
                    ChainFault::LineChanged { refund: as_sealed.refund, finished_us, seal: as_sealed.seal };
                chain.add(ChainFinding { at_id: line.id, channel: as_sealed.channel, fault });
            }
        }
        for (id, Expected { channel, seal, sealed_us, refund, may_be_absent, .. }) in sealed {
            let chain = self.chains.entry(channel.clone()).or_default();
            if may_be_absent {
                chain.forgotten += 1;
            } else {
                let fault = ChainFault::LineMissing { refund, seal, sealed_us };
                chain.add(ChainFinding { at_id: id, channel, fault });
            }
        }
    }

    /// Ends the walk. Call it when all lines up to the last sealed one were compared. `missing_seals` says how many of
    /// the seals that were written are gone: lines behind the last seal of a channel are then those of a seal.
    #[must_use]
    pub fn finish(mut self, missing_seals: i64) -> (BTreeMap<String, ChannelChain>, Vec<LoggedHead>) {
        for (channel, at_id) in self.behind {
            if missing_seals > 0 {
                let chain = self.chains.entry(channel.clone()).or_default();
                let seal = chain.head.map_or(1, |head| head.number + 1);
                chain.add(ChainFinding {
                    at_id: at_id - 1,
                    channel,
                    fault: ChainFault::SealMissing { seal },
                });
            }
        }
        (self.chains, self.heads)
    }
}

fn number_of(bytes: &[u8]) -> i64 {
    bytes.try_into().map_or(0, i64::from_be_bytes)
}
