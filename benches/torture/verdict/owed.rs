//! Compares each refund with what its producer wanted: the content of its sends, and the cause of its end.

use jiff::Timestamp;
use playground::bank::{BankSays, hash_of};

use super::Verdict;
use super::rows::{Row, Rows};
use super::story::Story;
use crate::channels;
use crate::producer::{Acknowledged, CURRENCY, Offered, payment_ref};

/// Judges one refund.
pub fn judge(
    name: &str,
    row: &Row,
    story: &Story<'_>,
    rows: &Rows,
    acknowledged: &Acknowledged,
    verdict: &mut Verdict,
) {
    let channel = row.channel.name;
    let Some(offered) = acknowledged.offered.get(name) else {
        verdict.add("altered", format!("{name} of {channel} is there, and no producer saved it"));
        return;
    };
    let may_have_moved = row.channel.swaps() && offered.channel.swaps();
    if channel != offered.channel.name && !may_have_moved {
        verdict.add("altered", format!("{name} was saved for {}, and is in {channel}", offered.channel.name));
    }
    judge_requests(name, row, offered, story, rows, verdict);
    let has_cause = match row.state.as_str() {
        // No person calls a refund failed in this run.
        "failed" => is_rejected(story) || is_too_late(row, offered),
        "cancelled" => acknowledged.to_cancel.contains(name),
        _ => true,
    };
    if !has_cause {
        let why = match row.state.as_str() {
            "failed" => "the bank rejected nothing, and no deadline had passed",
            _ => "nobody asked for that",
        };
        verdict.add("disagrees", format!("{name} of {channel} is {}: {why}", row.state));
    }
}

/// Judges the key, the bank and the body of each request. A refund moves to another channel, and gets a new key, only
/// before its first byte leaves. So all its requests have the channel and the key that the row has at the end.
fn judge_requests(
    name: &str,
    row: &Row,
    offered: &Offered,
    story: &Story<'_>,
    rows: &Rows,
    verdict: &mut Verdict,
) {
    if story.sends.is_empty() && story.inquiries.is_empty() {
        return;
    }
    let owed = body(name, row, offered);
    let owed_hash = hash_of(owed.as_bytes());
    for arrival in story.sends.iter().chain(&story.inquiries) {
        if rows.refs.get(&*arrival.key).is_none_or(|of_key| of_key != name) {
            verdict.add("altered", format!("{name} under {}, a key that is not its own", arrival.key));
        }
        if channels::named(&arrival.channel).is_some_and(|channel| channel.name != row.channel.name) {
            let (at, channel) = (&arrival.channel, row.channel.name);
            verdict.add("altered", format!("{name} of {channel}: a request about it came to {at}"));
        }
    }
    for send in &story.sends {
        // A body that never arrived whole was not executed.
        if send.refund_ref.is_empty() {
            if send.paid {
                verdict.add("altered", format!("{name}: executed, and the body names no refund"));
            }
        } else if send.body_hash != owed_hash {
            let amount = send.amount_minor;
            verdict.add("altered", format!("{name}: sent with the amount {amount}, and not as {owed}"));
        }
    }
}

/// The body of each send, byte for byte, as the contract with banks has it.
fn body(name: &str, row: &Row, offered: &Offered) -> String {
    let requested_at = Timestamp::from_microsecond(row.created_us).unwrap_or(Timestamp::UNIX_EPOCH);
    format!(
        "{{\"refund_id\":{},\"refund_ref\":\"{name}\",\"channel\":\"{}\",\"payment_ref\":\"{}\",\"amount_minor\":{},\
         \"currency\":\"{CURRENCY}\",\"payload\":null,\"requested_at\":\"{requested_at}\"}}",
        row.id,
        row.channel.name,
        payment_ref(name),
        offered.amount_minor
    )
}

/// Whether the bank rejected the refund for good, in an answer to a send or to an inquiry.
fn is_rejected(story: &Story<'_>) -> bool {
    story.sends.iter().chain(&story.inquiries).any(|request| request.answer_sent() == BankSays::Rejected)
}

/// Whether the refund's deadline had passed when it came to its end: by Postgres's clock, whichever way a hand had set it.
fn is_too_late(row: &Row, offered: &Offered) -> bool {
    offered.deadline_us.zip(row.settled_us).is_some_and(|(deadline_us, settled_us)| deadline_us <= settled_us)
}
