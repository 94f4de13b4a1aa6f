//! Proves the journal: compares its lines with the chains of seals, one chain for each channel.
//!
//! Pure: seals and lines come in, in the order of the lines' ids, and findings go out. The hashes are computed here
//! (`bytes.rs`), from the columns as Postgres sends them.
//!
//! A seal names each of its lines by id and digest. So a line that is gone is told from one that was changed, and from one
//! that was added.

mod bytes;
mod findings;
mod kept;
mod repeats;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use bytes::{Hash, LINE, SEAL, SealedColumn, digest};
pub use findings::{ChainFault, ChainFinding, ChainHead, ChannelChain};
pub use kept::{DroppedMonth, KeptMonths};
use repeats::RepeatingSeals;

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

/// The lines of one call that seals: those with ids above `after_id` and up to `to_id`. One call makes a seal for each channel and month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealSpan {
    pub after_id: i64,
    pub to_id: i64,
    /// When that was. One call has one time.
    pub sealed_us: i64,
}

impl SealSpan {
    /// Whether it has lines that an earlier seal has. Two seals of one call are of two months, and share none.
    fn repeats(self, earlier: SealSpan) -> bool {
        self.after_id < earlier.to_id && self != earlier
    }

    fn has(self, id: i64) -> bool {
        self.after_id < id && id <= self.to_id
    }
}

/// A seal as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    pub channel: String,
    pub number: i64,
    pub span: SealSpan,
    /// The span of the seal with the number before, if there is one.
    pub before: Option<SealSpan>,
    /// How many lines the chain has up to this seal, as the seal says.
    pub total: i64,
    /// The end of the UTC month of its lines.
    pub month_ends_us: i64,
    pub previous: Option<Vec<u8>>,
    /// 48 bytes for each line: its id, its refund, its digest.
    pub lines: Vec<u8>,
    pub hash: Vec<u8>,
    /// The hash of the columns above.
    pub computed: Hash,
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
    may_be_there: bool,
}

/// A head that a person read in a log, and the seal that has its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedHead {
    pub hash: Hash,
    pub seal: Option<(String, i64)>,
}

impl LoggedHead {
    /// Notes the seal if it has this hash.
    pub fn see(&mut self, seal: &Seal) {
        if self.hash == seal.computed {
            self.seal = Some((seal.channel.clone(), seal.number));
        }
    }
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
    repeats: BTreeMap<String, RepeatingSeals>,
    /// All lines up to this id were compared.
    compared_to: i64,
    /// When the last of the seals so far was made.
    sealed_us: i64,
}

impl Walk {
    #[must_use]
    pub fn new(kept: KeptMonths, heads: impl IntoIterator<Item = Hash>) -> Self {
        let heads = heads.into_iter().map(|hash| LoggedHead { hash, seal: None }).collect();
        Walk {
            kept,
            chains: BTreeMap::new(),
            sealed: BTreeMap::new(),
            heads,
            behind: BTreeMap::new(),
            repeats: BTreeMap::new(),
            compared_to: i64::MIN,
            sealed_us: i64::MIN,
        }
    }

    /// Reads the next seal. Seals come in the order of their lines, before these lines.
    pub fn see_seal(&mut self, seal: &Seal) {
        let chain = self.chains.entry(seal.channel.clone()).or_default();
        let repeats = self.repeats.entry(seal.channel.clone()).or_default();
        let (number, span, sealed_us) = (seal.number, seal.span, seal.span.sealed_us);
        let last = repeats.last(chain.head);
        let next = last.map_or(1, |last| last.number + 1);
        let is_unchanged = seal.computed.as_slice() == seal.hash;
        let this = ChainHead { number, span, total: is_unchanged.then_some(seal.total), hash: seal.computed };
        let is_repeat = is_unchanged && repeats.take(this, seal.before, chain.head);

        let (lines, _) = seal.lines.as_chunks::<48>();
        let count = i64::try_from(lines.len()).unwrap_or(i64::MAX);
        let total_so_far = last.map_or(Some(0), |last| last.total);
        let mut has_repeated = is_repeat;
        let mut is_unfit = is_unchanged
            && !is_repeat
            && number == next
            && total_so_far.is_some_and(|total| total.saturating_add(count) != seal.total);
        let mut faults = Vec::new();
        if !is_unchanged {
            faults.push((span.to_id, ChainFault::SealChanged { seal: number, sealed_us }));
        }
        if !is_repeat {
            if number != next {
                // Before its lines, which are in no seal now.
                let at_id = chain.head.map_or(0, |head| head.span.to_id);
                faults.push((at_id, ChainFault::SealMissing { seal: next }));
            } else if seal.previous.as_deref() != last.as_ref().map(|last| last.hash.as_slice()) {
                faults.push((span.to_id, ChainFault::SealUnlinked { seal: number, sealed_us }));
            }
            chain.head = Some(this);
            self.sealed_us = self.sealed_us.max(sealed_us);
        }
        self.behind.remove(&seal.channel);
        chain.seals += 1;
        for head in &mut self.heads {
            head.see(seal);
        }
        let may_be_absent = self.kept.allows_absence(seal.month_ends_us);
        let may_be_there = !self.kept.forbids_presence(seal.month_ends_us, self.sealed_us);
        for line in lines {
            let (id, rest) = line.split_at(8);
            let (refund, digest) = rest.split_at(8);
            let id = number_of(id);
            is_unfit |= is_unchanged && !span.has(id);
            // The first seal of a line says what the line was.
            if id <= self.compared_to || self.sealed.contains_key(&id) || is_repeat && repeats.has(id) {
                has_repeated = true;
                continue;
            }
            let expected = Expected {
                channel: seal.channel.clone(),
                seal: number,
                sealed_us,
                refund: number_of(refund),
                digest: digest.try_into().unwrap_or_default(),
                may_be_absent,
                may_be_there,
            };
            self.sealed.insert(id, expected);
        }
        if has_repeated {
            faults.push((span.to_id, ChainFault::SealRepeated { seal: number, sealed_us }));
        }
        if is_unfit {
            faults.push((span.to_id, ChainFault::SealUnfit { seal: number, sealed_us }));
        }
        for (at_id, fault) in faults {
            chain.add(ChainFinding { at_id, channel: seal.channel.clone(), fault });
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
        self.compared_to = self.compared_to.max(to_id);
        for line in lines {
            let (refund, finished_us) = (line.refund, line.finished_us);
            let Some(as_sealed) = sealed.remove(&line.id) else {
                let chain = self.chains.entry(line.channel.clone()).or_default();
                if chain.head.is_none_or(|head| head.span.to_id < line.id) {
                    self.behind.entry(line.channel.clone()).or_insert(line.id);
                }
                let fault = ChainFault::LineInserted { refund, finished_us };
                chain.add(ChainFinding { at_id: line.id, channel: line.channel.clone(), fault });
                continue;
            };
            let chain = self.chains.entry(as_sealed.channel.clone()).or_default();
            if !as_sealed.may_be_there {
                let fault = ChainFault::LineNotDropped { refund, finished_us, seal: as_sealed.seal };
                chain.add(ChainFinding { at_id: line.id, channel: as_sealed.channel.clone(), fault });
            }
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
    /// the seals that were written are gone: lines behind the last seal of a channel are then those of a seal. The next call that
    /// seals begins after `until_id`.
    #[must_use]
    pub fn finish(
        mut self,
        missing_seals: i64,
        until_id: i64,
    ) -> (BTreeMap<String, ChannelChain>, Vec<LoggedHead>) {
        for (channel, chain) in &mut self.chains {
            if let Some(ChainHead { number: seal, span, .. }) =
                chain.head.filter(|head| head.span.to_id > until_id)
            {
                let fault = ChainFault::SealAhead { seal, sealed_us: span.sealed_us, until_id };
                chain.add(ChainFinding { at_id: span.to_id, channel: channel.clone(), fault });
            }
        }
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
