//! What `prove --journal` prints: a page for people, and JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::{JournalVerdict, Proved, refund};
use crate::prove::chain::{ChainFault, ChainFinding, ChannelChain};
use crate::prove::time;
use crate::refund::text::{counted, shown};
use crate::store::Replayed;

pub(super) fn page_text(proved: &Proved) -> String {
    let unsealed = u64::try_from(proved.unsealed).unwrap_or(0);
    let mut page = format!(
        "Journal, sealed up to line {}; {} {} not sealed yet\n",
        proved.sealing.until_id,
        counted(unsealed, "line"),
        if unsealed == 1 { "is" } else { "are" }
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
        let line = if let Some((channel, seal)) = &head.seal {
            let unseen = if proved.has_walked(channel) { "" } else { ", which was not walked" };
            format!("{} is seal {seal} of channel {channel}{unseen}", hex::encode(head.hash))
        } else {
            let why = match proved.replayed {
                Some(_) => "is in no chain here: this standby may not have it yet; ask the primary",
                None => "is in no chain: a chain was replaced, or the database is older",
            };
            format!("{} {why}", hex::encode(head.hash))
        };
        let _ = writeln!(page, "  {:<10} {}", "logged", shown(&line));
    }
    if proved.heads.is_empty() && !proved.chains.is_empty() {
        let line = "no --head was given: the database's owner could have made a whole chain anew; keep heads from the log elsewhere";
        let _ = writeln!(page, "  {:<10} {line}", "logged");
    }
    if let Some(ChainFinding { channel, fault, at_id }) = proved.first() {
        let line = format!("channel {channel}, {}", described(*at_id, fault, &proved.refs));
        let _ = writeln!(page, "  {:<10} {}", "first", shown(&line));
    }
    let verdict = proved.verdict();
    let line = match verdict {
        JournalVerdict::Whole if proved.chains.is_empty() => "no line is sealed yet".to_owned(),
        JournalVerdict::Whole => "every sealed line is unchanged since it was sealed".to_owned(),
        JournalVerdict::Unproven => {
            let rest = match &proved.replayed {
                Some(standby) if !proved.is_sealing_late() => standby.to_string(),
                _ => format!(
                    "{} since {} {} not proven",
                    counted(unsealed, "line"),
                    proved.oldest_unsealed_us.map(time).unwrap_or_default(),
                    if unsealed == 1 { "is" } else { "are" }
                ),
            };
            format!("whole as far as it is sealed; {rest}")
        }
        JournalVerdict::Broken => "the journal or its chains have changed".to_owned(),
    };
    let _ = writeln!(page, "  {:<10} {line}", verdict.as_str());
    page
}

fn seals_sentence(missing: i64) -> String {
    if missing > 0 {
        format!("{missing} of the seals are missing")
    } else {
        format!("there are {} seals too many", missing.unsigned_abs())
    }
}

fn lines(chain: &ChannelChain, refs: &BTreeMap<i64, String>) -> Vec<(&'static str, String)> {
    let mut lines = vec![(
        "sealed",
        format!(
            "{} as {}, in {}",
            counted(chain.lines, "line"),
            if chain.lines == 1 { "it was" } else { "they were" },
            counted(chain.seals, "seal")
        ),
    )];
    if chain.forgotten > 0 {
        let forgotten = "lines of months that were dropped ([recovery] keep_attempts)";
        lines.push(("forgotten", format!("{} {forgotten}", chain.forgotten)));
    }
    lines.extend(chain.head.map(|head| {
        ("head", format!("{}, seal {} of {}", hex::encode(head.hash), head.number, time(head.span.sealed_us)))
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

fn name(fault: &ChainFault) -> &'static str {
    match fault {
        ChainFault::SealChanged { .. }
        | ChainFault::SealUnlinked { .. }
        | ChainFault::SealMissing { .. }
        | ChainFault::SealRepeated { .. }
        | ChainFault::SealUnfit { .. }
        | ChainFault::SealAhead { .. } => "seal",
        ChainFault::LineChanged { .. } => "changed",
        ChainFault::LineMissing { .. } => "missing",
        ChainFault::LineInserted { .. } => "inserted",
        ChainFault::LineNotDropped { .. } => "left",
    }
}

fn described(at_id: i64, fault: &ChainFault, refs: &BTreeMap<i64, String>) -> String {
    let of = |refund: i64| match refs.get(&refund) {
        Some(refund_ref) => format!("line {at_id} of refund {refund} ({refund_ref})"),
        None => format!("line {at_id} of refund {refund}, which does not exist"),
    };
    let at = |us: Option<i64>| us.map_or_else(|| "infinity".to_owned(), time);
    match *fault {
        ChainFault::SealChanged { seal, sealed_us } => {
            format!("seal {seal} of {} was changed: its columns do not give its hash", time(sealed_us))
        }
        ChainFault::SealUnlinked { seal, sealed_us } => {
            let before = if seal > 1 { format!("seal {}", seal - 1) } else { "nothing".to_owned() };
            format!("seal {seal} of {} does not follow {before}: one was replaced", time(sealed_us))
        }
        ChainFault::SealMissing { seal } => format!("seal {seal} is missing"),
        ChainFault::SealRepeated { seal, sealed_us } => {
            format!("seal {seal} of {} has lines that were sealed before", time(sealed_us))
        }
        ChainFault::SealUnfit { seal, sealed_us } => {
            format!("seal {seal} of {} has a line outside its ids, or a wrong total", time(sealed_us))
        }
        ChainFault::SealAhead { seal, sealed_us, until_id } => {
            format!(
                "seal {seal} of {} ends at line {at_id}, and refundd.sealing says that line {until_id} was sealed last",
                time(sealed_us)
            )
        }
        ChainFault::LineChanged { refund, finished_us, seal } => {
            format!("{} of {} is not as seal {seal} says", of(refund), at(finished_us))
        }
        ChainFault::LineMissing { refund, seal, sealed_us } => {
            format!("{} is gone; seal {seal} of {} has it", of(refund), time(sealed_us))
        }
        ChainFault::LineInserted { refund, finished_us } => {
            format!("{} of {} is in no seal, though later lines are sealed", of(refund), at(finished_us))
        }
        ChainFault::LineNotDropped { refund, finished_us, seal } => {
            format!(
                "{} of {} is there and in seal {seal}, though its month is noted as dropped",
                of(refund),
                at(finished_us)
            )
        }
    }
}

pub(super) fn page_json(proved: &Proved) -> Value {
    let finding = |finding: &ChainFinding| finding_json(finding, &proved.refs);
    let chains = proved.chains.iter().map(|(channel, chain)| {
        json!({
            "channel": channel,
            "verdict": if chain.faults == 0 { "whole" } else { "broken" },
            "seals": chain.seals,
            "lines": chain.lines,
            "forgotten_lines": chain.forgotten,
            "head": chain.head.map(|head| json!({
                "seal": head.number, "hash": hex::encode(head.hash), "sealed_at": time(head.span.sealed_us),
            })),
            "faults": { "count": chain.faults, "first": chain.first.iter().map(finding).collect::<Vec<_>>() },
        })
    });
    let heads = proved.heads.iter().map(|head| {
        json!({
            "hash": hex::encode(head.hash),
            "stands": head.seal.is_some(),
            "channel": head.seal.as_ref().map(|(channel, _)| channel),
            "seal": head.seal.as_ref().map(|(_, seal)| seal),
            "walked": head.seal.as_ref().is_some_and(|(channel, _)| proved.has_walked(channel)),
        })
    });
    json!({
        "verdict": proved.verdict().as_str(),
        "sealed_to_line": proved.sealing.until_id,
        "unsealed_lines": proved.unsealed,
        "unsealed_since": proved.oldest_unsealed_us.map(time),
        "oldest_unsealed_seconds": proved.unsealed_for_us().map(|us| us / 1_000_000),
        "missing_seals": proved.sealing.missing_seals,
        "replayed_until": proved.replayed.and_then(Replayed::until).map(time),
        "first_fault": proved.first().map(finding),
        "channels": chains.collect::<Vec<_>>(),
        "heads": heads.collect::<Vec<_>>(),
    })
}

fn finding_json(finding: &ChainFinding, refs: &BTreeMap<i64, String>) -> Value {
    let ChainFinding { at_id, channel, fault } = finding;
    let (what, seal, at) = match *fault {
        ChainFault::SealChanged { seal, sealed_us } => ("seal_changed", Some(seal), Some(sealed_us)),
        ChainFault::SealMissing { seal } => ("seal_missing", Some(seal), None),
        ChainFault::SealUnlinked { seal, sealed_us } => ("seal_unlinked", Some(seal), Some(sealed_us)),
        ChainFault::LineChanged { finished_us, seal, .. } => ("line_changed", Some(seal), finished_us),
        ChainFault::LineMissing { seal, sealed_us, .. } => ("line_missing", Some(seal), Some(sealed_us)),
        ChainFault::LineInserted { finished_us, .. } => ("line_inserted", None, finished_us),
        ChainFault::LineNotDropped { finished_us, seal, .. } => ("line_not_dropped", Some(seal), finished_us),
        ChainFault::SealRepeated { seal, sealed_us } => ("seal_repeated", Some(seal), Some(sealed_us)),
        ChainFault::SealUnfit { seal, sealed_us } => ("seal_unfit", Some(seal), Some(sealed_us)),
        ChainFault::SealAhead { seal, sealed_us, .. } => ("seal_ahead", Some(seal), Some(sealed_us)),
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
    use crate::prove::chain::{KeptMonths, LoggedHead};
    use crate::store::Sealing;

    fn proved(replayed: Option<Replayed>) -> Proved {
        Proved {
            sealing: Sealing { until_id: 0, seals_end_at: 0, missing_seals: 0, kept: KeptMonths::default() },
            replayed,
            unsealed: 0,
            oldest_unsealed_us: None,
            chains: BTreeMap::new(),
            heads: vec![LoggedHead { hash: [0; 32], seal: None }],
            refs: BTreeMap::new(),
        }
    }

    #[test]
    fn a_standby_has_no_time_of_replay_before_it_has_replayed_a_commit() {
        let until = |replayed| page_json(&proved(replayed))["replayed_until"].clone();
        assert_eq!(until(None), Value::Null);
        assert_eq!(until(Some(Replayed { until_us: 0 })), Value::Null);
        assert_eq!(until(Some(Replayed { until_us: 1_000_000 })), json!(time(1_000_000)));
    }

    #[test]
    fn only_a_primary_says_that_a_head_is_lost() {
        let page = |replayed| page_text(&proved(replayed));
        assert!(page(None).contains("is in no chain: a chain was replaced"), "{}", page(None));
        let standby = page(Some(Replayed { until_us: 0 }));
        assert!(standby.contains("this standby may not have it yet; ask the primary"), "{standby}");
    }
}
