//! `refundd prove --journal`: compares every line of the journal with the chains of seals, and the chains with heads from
//! a log.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::{Value, json};

use super::page::time;
use crate::prove::chain::{ChannelChain, Fault, Finding, Hash, LoggedHead, Walk};
use crate::refund::text::{shown, shown_json};
use crate::store::{Sealing, Store};

const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// A head as the log has it: 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GivenHead(Hash);

impl GivenHead {
    pub(super) fn read(text: &str) -> Result<GivenHead, String> {
        let wrong =
            || format!("has {} characters, and a head has 64 hexadecimal digits", text.chars().count());
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut hash = Hash::default();
        for (nth, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * nth..2 * nth + 2], 16).map_err(|_| wrong())?;
        }
        Ok(GivenHead(hash))
    }
}

fn hex(hash: &Hash) -> String {
    hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What the walk along the chains found.
struct Proved {
    sealing: Sealing,
    /// Lines that are not sealed yet.
    unsealed: i64,
    chains: BTreeMap<String, ChannelChain>,
    heads: Vec<LoggedHead>,
    /// The refund refs of the findings.
    refs: BTreeMap<i64, String>,
}

impl Proved {
    fn is_whole(&self) -> bool {
        self.sealing.missing_seals == 0
            && self.chains.values().all(|chain| chain.faults == 0)
            && self.heads.iter().all(|head| head.seal.is_some())
    }

    /// The finding with the lowest id, of all channels.
    fn first(&self) -> Option<&Finding> {
        self.chains.values().filter_map(|chain| chain.first.first()).min_by_key(|finding| finding.at_id)
    }
}

pub(super) async fn prove(
    store: &Store,
    channel: Option<&str>,
    heads: &[GivenHead],
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    if let Some(name) = channel {
        let known = store.provable().await?.channels;
        if !known.iter().any(|(channel, _)| channel == name) {
            let there: Vec<&str> = known.iter().map(|(channel, _)| channel.as_str()).collect();
            let there = if there.is_empty() { "none yet".to_owned() } else { there.join(", ") };
            bail!("--journal {name}: no such channel was ever run on this database; there are: {there}");
        }
    }
    let proved = walk(store, channel, heads).await?;
    if is_json {
        println!("{}", shown_json(serde_json::to_string_pretty(&page_json(&proved))?));
    } else {
        print!("{}", page_text(&proved));
    }
    Ok(if proved.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn walk(store: &Store, channel: Option<&str>, heads: &[GivenHead]) -> anyhow::Result<Proved> {
    let sealing = store.sealing().await?;
    let until = sealing.until_id;
    let mut walk = Walk::new(sealing.kept, heads.iter().map(|head| head.0));
    // Seals and lines up to these ids were seen.
    let (mut sealed_to, mut line_to) = (i64::MIN, i64::MIN);
    let (mut lines_seen, mut last_progress) = (0, Instant::now());
    while line_to < until {
        let seals = store.seals(sealed_to, until, channel).await?;
        for seal in &seals {
            walk.see_seal(seal);
        }
        sealed_to = seals.last().map_or(until, |seal| seal.to_id);
        while line_to < sealed_to {
            let sealed = channel.map(|_| walk.sealed_ids(sealed_to)).unwrap_or_default();
            let (to, lines) = store.lines(line_to, sealed_to, channel, &sealed).await?;
            walk.see_lines(to, &lines);
            line_to = to;
            lines_seen += lines.len();
            if stderr().is_terminal() && last_progress.elapsed() > PROGRESS_EVERY {
                last_progress = Instant::now();
                eprintln!("{lines_seen} lines compared, up to line {line_to} of {until}");
            }
        }
    }
    if store.sealing().await?.kept.since_us != sealing.kept.since_us {
        bail!("a month of the journal was dropped while it was read; run the command again");
    }
    let unsealed = store.unsealed_lines(until, channel).await?;
    let (chains, heads) = walk.finish(sealing.missing_seals);
    let findings = chains.values().flat_map(|chain| &chain.first);
    let ids: Vec<i64> = findings.filter_map(|finding| refund(&finding.fault)).collect();
    let refs = store.refund_refs(&ids).await?;
    Ok(Proved { sealing, unsealed, chains, heads, refs })
}

fn refund(fault: &Fault) -> Option<i64> {
    match fault {
        Fault::SealChanged { .. } | Fault::SealMissing { .. } | Fault::SealUnlinked { .. } => None,
        Fault::LineChanged { refund, .. }
        | Fault::LineMissing { refund, .. }
        | Fault::LineInserted { refund, .. } => Some(*refund),
    }
}

fn page_text(proved: &Proved) -> String {
    let mut page = format!(
        "Journal, sealed up to line {}; {} lines are not sealed yet\n",
        proved.sealing.until_id, proved.unsealed
    );
    for (channel, chain) in &proved.chains {
        let _ = writeln!(page, "\nChannel {}\n", shown(channel));
        for (label, line) in lines(chain, &proved.refs) {
            let _ = writeln!(page, "  {label:<10} {}", shown(&line));
        }
    }
    page.push('\n');
    if proved.sealing.missing_seals != 0 {
        let _ = writeln!(page, "  {:<10} {}", "seals", seals_sentence(proved.sealing.missing_seals));
    }
    for head in &proved.heads {
        let line = match &head.seal {
            Some((channel, seal)) => format!("{} is seal {seal} of channel {channel}", hex(&head.hash)),
            None => {
                format!("{} is in no chain: a chain was replaced, or the database is older", hex(&head.hash))
            }
        };
        let _ = writeln!(page, "  {:<10} {}", "logged", shown(&line));
    }
    if let Some(Finding { channel, fault, at_id }) = proved.first() {
        let line = format!("channel {channel}, {}", described(*at_id, fault, &proved.refs));
        let _ = writeln!(page, "  {:<10} {}", "first", shown(&line));
    }
    let verdict = match (proved.is_whole(), proved.chains.is_empty()) {
        (true, true) => "  whole      no line is sealed yet",
        (true, false) => "  whole      every sealed line is as it was sealed",
        (false, _) => "  broken     the journal or its chains are not as they were",
    };
    let _ = writeln!(page, "{verdict}");
    page
}

fn seals_sentence(missing: i64) -> String {
    if missing > 0 {
        format!("{missing} of the seals that were written are missing")
    } else {
        format!("there are {} more than were written", missing.unsigned_abs())
    }
}

fn lines(chain: &ChannelChain, refs: &BTreeMap<i64, String>) -> Vec<(&'static str, String)> {
    let mut lines = vec![("sealed", format!("{} lines as they were, in {} seals", chain.lines, chain.seals))];
    if chain.forgotten > 0 {
        let forgotten = "lines of months that were dropped ([recovery] keep_attempts)";
        lines.push(("forgotten", format!("{} {forgotten}", chain.forgotten)));
    }
    lines.extend(chain.head.map(|head| {
        ("head", format!("{}, seal {} of {}", hex(&head.hash), head.number, time(head.sealed_us)))
    }));
    for finding in &chain.first {
        lines.push((name(&finding.fault), described(finding.at_id, &finding.fault, refs)));
    }
    let left = chain.faults - chain.first.len() as u64;
    if left > 0 {
        lines.push(("", format!("and {left} more")));
    }
    lines
}

fn name(fault: &Fault) -> &'static str {
    match fault {
        Fault::SealChanged { .. } | Fault::SealUnlinked { .. } | Fault::SealMissing { .. } => "seal",
        Fault::LineChanged { .. } => "changed",
        Fault::LineMissing { .. } => "missing",
        Fault::LineInserted { .. } => "inserted",
    }
}

fn described(at_id: i64, fault: &Fault, refs: &BTreeMap<i64, String>) -> String {
    let of = |refund: i64| match refs.get(&refund) {
        Some(refund_ref) => format!("line {at_id} of refund {refund} ({refund_ref})"),
        None => format!("line {at_id} of refund {refund}, which does not exist"),
    };
    let at = |us: Option<i64>| us.map_or_else(|| "infinity".to_owned(), time);
    match *fault {
        Fault::SealChanged { seal, sealed_us } => {
            format!("seal {seal} of {} was changed: its columns do not give its hash", time(sealed_us))
        }
        Fault::SealUnlinked { seal, sealed_us } => {
            let before = if seal > 1 { format!("seal {}", seal - 1) } else { "nothing".to_owned() };
            format!("seal {seal} of {} does not follow {before}: one was replaced", time(sealed_us))
        }
        Fault::SealMissing { seal } => format!("seal {seal} is missing"),
        Fault::LineChanged { refund, finished_us, seal } => {
            format!("{} of {} is not as seal {seal} says", of(refund), at(finished_us))
        }
        Fault::LineMissing { refund, seal, sealed_us } => {
            format!("{} is gone; seal {seal} of {} has it", of(refund), time(sealed_us))
        }
        Fault::LineInserted { refund, finished_us } => {
            format!("{} of {} is in no seal, though later lines are sealed", of(refund), at(finished_us))
        }
    }
}

fn page_json(proved: &Proved) -> Value {
    let finding = |finding: &Finding| finding_json(finding, &proved.refs);
    let chains = proved.chains.iter().map(|(channel, chain)| {
        json!({
            "channel": channel,
            "verdict": if chain.faults == 0 { "whole" } else { "broken" },
            "seals": chain.seals,
            "lines": chain.lines,
            "forgotten_lines": chain.forgotten,
            "head": chain.head.map(|head| json!({
                "seal": head.number, "hash": hex(&head.hash), "sealed_at": time(head.sealed_us),
            })),
            "faults": { "count": chain.faults, "first": chain.first.iter().map(finding).collect::<Vec<_>>() },
        })
    });
    let heads = proved.heads.iter().map(|head| {
        json!({
            "hash": hex(&head.hash),
            "stands": head.seal.is_some(),
            "channel": head.seal.as_ref().map(|(channel, _)| channel),
            "seal": head.seal.as_ref().map(|(_, seal)| seal),
        })
    });
    json!({
        "verdict": if proved.is_whole() { "whole" } else { "broken" },
        "sealed_to_line": proved.sealing.until_id,
        "unsealed_lines": proved.unsealed,
        "missing_seals": proved.sealing.missing_seals,
        "first_fault": proved.first().map(finding),
        "channels": chains.collect::<Vec<_>>(),
        "heads": heads.collect::<Vec<_>>(),
    })
}

fn finding_json(finding: &Finding, refs: &BTreeMap<i64, String>) -> Value {
    let Finding { at_id, channel, fault } = finding;
    let (what, seal, at) = match *fault {
        Fault::SealChanged { seal, sealed_us } => ("seal_changed", Some(seal), Some(sealed_us)),
        Fault::SealMissing { seal } => ("seal_missing", Some(seal), None),
        Fault::SealUnlinked { seal, sealed_us } => ("seal_unlinked", Some(seal), Some(sealed_us)),
        Fault::LineChanged { finished_us, seal, .. } => ("line_changed", Some(seal), finished_us),
        Fault::LineMissing { seal, sealed_us, .. } => ("line_missing", Some(seal), Some(sealed_us)),
        Fault::LineInserted { finished_us, .. } => ("line_inserted", None, finished_us),
    };
    let refund = refund(fault);
    json!({
        "fault": what,
        "channel": channel,
        "line": refund.map(|_| at_id),
        "refund": refund,
        "refund_ref": refund.and_then(|refund| refs.get(&refund)),
        "seal": seal,
        "at": at.map(time),
        "text": described(*at_id, fault, refs),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_64_hexadecimal_digits() {
        let text = "00ff".repeat(16);
        assert_eq!(GivenHead::read(&text).map(|head| hex(&head.0)), Ok(text));
        for bad in ["", "00ff", &"0g".repeat(32), &"é".repeat(32), &"0".repeat(65)] {
            assert!(GivenHead::read(bad).unwrap_err().contains("64 hexadecimal digits"), "{bad}");
        }
    }
}
