//! What a line of the journal says to people.

use std::fmt::Write;
use std::time::Duration;

use super::MOVED_OUT;
use crate::refund::ProposalId;
use crate::store::{Evidence, EvidenceKind, FirstByte};

/// The proposal that a line wrote down, as `refundd.propose` words it.
pub(super) fn proposal(line: &Evidence) -> Option<ProposalId> {
    let is_proposal = line.kind == EvidenceKind::Manual && line.outcome == "proposed";
    let message = line.message.as_deref().filter(|_| is_proposal)?;
    let (id, _) = message.strip_prefix("proposal ")?.split_once(',')?;
    id.parse().ok().map(ProposalId)
}

/// One line of the journal as a sentence. `nth` counts the refund's sends.
pub(super) fn sentence(line: &Evidence, nth: u32) -> String {
    if line.code.as_deref() == Some(MOVED_OUT) {
        let message = line.message.as_deref().unwrap_or_default();
        return format!("{} moved it from {} {message}", line.node, line.channel);
    }
    let mut text = match line.kind {
        EvidenceKind::Manual => format!("{} {}", line.node, line.outcome),
        EvidenceKind::Inquiry => {
            format!("inquiry {} from node {}: {}", line.number, node_of(line), line.outcome)
        }
        EvidenceKind::Recovery => "recovery".to_owned(),
        EvidenceKind::Send => format!("send {nth} from node {}: {}", node_of(line), line.outcome),
    };
    if let Some(status) = line.status {
        let _ = write!(text, ", HTTP {status}");
    }
    if let Some(code) = line.code.as_deref().filter(|code| *code != line.outcome) {
        let _ = write!(text, ", {code}");
    }
    match (line.kind, line.first_byte(), line.finished_at) {
        (EvidenceKind::Manual, ..) => {}
        (_, FirstByte::Left(started), Some(finished)) => {
            let took = Duration::try_from(finished.duration_since(started)).unwrap_or_default();
            let _ = write!(text, ", after {:.3} s", took.as_secs_f64());
        }
        (EvidenceKind::Send, FirstByte::NotSent, _) => text.push_str(", no byte was sent"),
        (_, FirstByte::NobodyKnows, _) => text.push_str(", nobody knows whether a byte was sent"),
        _ => {}
    }
    match &line.moved_to {
        Some(state) => {
            let _ = write!(text, ", moved to {state}");
        }
        // A proposal, or its withdrawal, moves nothing by itself.
        None if line.kind == EvidenceKind::Manual => {}
        None => text.push_str(", too late to move it"),
    }
    if let Some(message) = line.message.as_deref().filter(|message| !message.is_empty()) {
        let _ = write!(text, ": {message}");
    }
    if let Some(permit) = &line.permit {
        let _ = write!(text, " (permit {permit})");
    }
    text
}

/// The node's name without its process.
fn node_of(line: &Evidence) -> &str {
    line.node.split('#').next().unwrap_or(&line.node)
}
