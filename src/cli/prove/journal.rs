//! `refundd prove --journal`: compares every line of the journal with the chains of seals, and the chains with heads from
//! a log.

mod page;

use std::collections::BTreeMap;
use std::process::ExitCode;

use crate::cli::progress::ProgressDisplay;
use crate::prove::chain::{ChainFault, ChainFinding, ChannelChain, Hash, LoggedHead, Walk};
use crate::refund::text::{counted, shown_json};
use crate::store::{Replayed, Sealing, Store};
use anyhow::bail;
use page::{page_json, page_text};

/// A head as the log has it: 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GivenHead(Hash);

impl GivenHead {
    pub(super) fn read(text: &str) -> Result<GivenHead, String> {
        let mut hash = Hash::default();
        hex::decode_to_slice(text, &mut hash).map_err(|_| {
            format!("has {} characters, and a head has 64 hexadecimal digits", text.chars().count())
        })?;
        Ok(GivenHead(hash))
    }
}

/// Lines of the last seconds are never sealed. An older line says that sealing does not go on, and that nothing proves what happened since.
/// A standby is always a little behind, and refundd commits every second.
const LONG_US: i64 = 60_000_000;

/// What the chains say of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JournalVerdict {
    Whole,
    /// The sealed lines are unchanged, and lines that are older than a minute are not sealed, or a standby lacks what is newer.
    Unproven,
    Broken,
}

impl JournalVerdict {
    fn as_str(self) -> &'static str {
        match self {
            JournalVerdict::Whole => "whole",
            JournalVerdict::Unproven => "unproven",
            JournalVerdict::Broken => "broken",
        }
    }
}

/// What the walk along the chains found.
struct Proved {
    sealing: Sealing,
    /// How far the standby has come; `None` on a primary.
    replayed: Option<Replayed>,
    /// Lines that were not sealed when the walk began.
    unsealed: i64,
    /// The time of the oldest of them.
    oldest_unsealed_us: Option<i64>,
    chains: BTreeMap<String, ChannelChain>,
    heads: Vec<LoggedHead>,
    /// The refund refs of the findings.
    refs: BTreeMap<i64, String>,
}

impl Proved {
    fn verdict(&self) -> JournalVerdict {
        let is_unchanged = self.sealing.missing_seals == 0
            && self.chains.values().all(|chain| chain.faults == 0)
            && (self.replayed.is_some() || self.has_all_heads());
        if !is_unchanged {
            JournalVerdict::Broken
        } else if self.is_sealing_late() || self.behind_for_us() > Some(LONG_US) || !self.has_all_heads() {
            JournalVerdict::Unproven
        } else {
            JournalVerdict::Whole
        }
    }

    fn is_sealing_late(&self) -> bool {
        self.unsealed_for_us() > Some(LONG_US)
    }

    fn has_all_heads(&self) -> bool {
        self.heads.iter().all(|head| head.seal.is_some())
    }

    /// Whether the lines and seals of this channel were compared. With a channel, those of no other are.
    fn has_walked(&self, channel: &str) -> bool {
        self.chains.contains_key(channel)
    }

    /// The age of the last commit that the standby has.
    fn behind_for_us(&self) -> Option<i64> {
        self.replayed.map(|replayed| self.sealing.kept.now_us.saturating_sub(replayed.until_us).max(0))
    }

    /// The age of the oldest line that is not sealed.
    fn unsealed_for_us(&self) -> Option<i64> {
        self.oldest_unsealed_us.map(|oldest| self.sealing.kept.now_us.saturating_sub(oldest).max(0))
    }

    /// The finding with the lowest id, of all channels.
    fn first(&self) -> Option<&ChainFinding> {
        self.chains.values().filter_map(|chain| chain.first.first()).min_by_key(|finding| finding.at_id)
    }
}

pub(super) async fn prove(
    store: &Store,
    replayed: Option<Replayed>,
    channel: Option<&str>,
    heads: &[GivenHead],
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    if let Some(name) = channel {
        crate::cli::channel_exists(store, "--journal", name).await?;
    }
    let proved = walk(store, replayed, channel, heads).await?;
    if is_json {
        println!("{}", shown_json(serde_json::to_string_pretty(&page_json(&proved))?));
    } else {
        print!("{}", page_text(&proved));
    }
    Ok(match proved.verdict() {
        JournalVerdict::Whole => ExitCode::SUCCESS,
        JournalVerdict::Unproven | JournalVerdict::Broken => ExitCode::FAILURE,
    })
}

async fn walk(
    store: &Store,
    replayed: Option<Replayed>,
    channel: Option<&str>,
    heads: &[GivenHead],
) -> anyhow::Result<Proved> {
    // The walk over all channels sees each seal up to here, and counts them.
    let mut sealing = store.sealing(channel.is_some()).await?;
    let until = sealing.until_id.max(sealing.seals_end_at);
    // Before the walk, which may last for minutes: meanwhile nodes seal these lines.
    let (unsealed, oldest_unsealed_us) = store.unsealed_lines(until, channel).await?;
    let mut walk = Walk::new(sealing.kept.clone(), heads.iter().map(|head| head.0));
    // Seals and lines up to these ids were seen.
    let (mut sealed_to, mut line_to) = (i64::MIN, i64::MIN);
    let (mut lines_seen, mut progress) = (0, ProgressDisplay::new());
    while line_to < until {
        let seals = store.seals(sealed_to, until, channel).await?;
        for seal in &seals {
            walk.see_seal(seal);
        }
        if channel.is_none() {
            sealing.missing_seals -= i64::try_from(seals.len()).unwrap_or(i64::MAX);
        }
        sealed_to = seals.last().map_or(until, |seal| seal.span.to_id);
        while line_to < sealed_to {
            let sealed = channel.map(|_| walk.sealed_ids(sealed_to)).unwrap_or_default();
            let (to, lines) = store.lines(line_to, sealed_to, channel, &sealed).await?;
            walk.see_lines(to, &lines);
            line_to = to;
            lines_seen += lines.len();
            progress.show(|| {
                format!("{} compared, up to line {line_to} of {until}", counted(lines_seen as u64, "line"))
            });
        }
    }
    progress.clear();
    if store.dropped_months().await? != sealing.kept.dropped {
        bail!("a month of the journal was dropped while it was read; run the command again");
    }
    let (chains, mut heads) = walk.finish(sealing.missing_seals, sealing.until_id);
    if channel.is_some() {
        look_in_all_chains(store, until, &mut heads).await?;
    }
    let findings = chains.values().flat_map(|chain| &chain.first);
    let ids: Vec<i64> = findings.filter_map(|finding| refund(&finding.fault)).collect();
    let refs = store.refund_refs(&ids).await?;
    Ok(Proved { sealing, replayed, unsealed, oldest_unsealed_us, chains, heads, refs })
}

/// Looks in the seals of every channel for the heads that are not in the chain that was walked.
async fn look_in_all_chains(store: &Store, until: i64, heads: &mut [LoggedHead]) -> anyhow::Result<()> {
    let mut sealed_to = i64::MIN;
    while sealed_to < until && heads.iter().any(|head| head.seal.is_none()) {
        let seals = store.seals(sealed_to, until, None).await?;
        for seal in &seals {
            for head in heads.iter_mut().filter(|head| head.seal.is_none()) {
                head.see(seal);
            }
        }
        sealed_to = seals.last().map_or(until, |seal| seal.span.to_id);
    }
    Ok(())
}

fn refund(fault: &ChainFault) -> Option<i64> {
    match fault {
        ChainFault::SealChanged { .. }
        | ChainFault::SealMissing { .. }
        | ChainFault::SealUnlinked { .. }
        | ChainFault::SealRepeated { .. }
        | ChainFault::SealUnfit { .. }
        | ChainFault::SealAhead { .. } => None,
        ChainFault::LineChanged { refund, .. }
        | ChainFault::LineMissing { refund, .. }
        | ChainFault::LineInserted { refund, .. }
        | ChainFault::LineNotDropped { refund, .. } => Some(*refund),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_64_hexadecimal_digits() {
        let text = "00ff".repeat(16);
        assert_eq!(GivenHead::read(&text).map(|head| hex::encode(head.0)), Ok(text));
        for bad in ["", "00ff", &"0g".repeat(32), &"é".repeat(32), &"0".repeat(65)] {
            assert!(GivenHead::read(bad).unwrap_err().contains("64 hexadecimal digits"), "{bad}");
        }
    }
}
