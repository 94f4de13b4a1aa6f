//! The cause of each state in which a refund may stay: `accepted`, `unknown` and `review`.
//!
//! The bank's ledger has the causes. Three of them it cannot have: an answer that never reached the node, an outcome that
//! no node could write, and a lease that lapsed before a byte left. Each of them needs trouble with the nodes, with
//! Postgres or with a way. So a refund whose sends are all clear may stay in doubt only if there was such trouble within
//! a lease of a send. With many faults nearly every send has trouble near it, so few faults make this check sharp.
//!
//! These causes no run of this length can have, so none is accepted: a schedule of inquiries that is used up, a week
//! without a report, and a channel that no node runs. A hundred sends are as good as impossible. Of a refund that is
//! never sent again the judge does not ask whether refundd gave up too early: the row does not say when. A send that a
//! person cleared still counts as a cause.

use playground::bank::{Arrival, BankSays};

use super::Verdict;
use super::rows::Row;
use super::story::{Story, is_refusal_for_now};
use crate::channels::OnUnknown;
use crate::records::{Fault, Shown};

/// An answer that came later than this may have missed the node's time-out.
const PROMPT_US: i64 = 1_000_000;
/// A lease. A node gives up an outcome that it could not write by then.
const LEASE_US: i64 = 8_000_000;
/// A way that was silent for a while keeps its silent connections for so long, and a node may send on one of them.
const LINGERS_US: i64 = 60_000_000;

/// Judges one refund.
pub fn judge(name: &str, row: &Row, story: &Story<'_>, faults: &[Fault], verdict: &mut Verdict) {
    let known = Known { row, story, faults, until_us: i64::MAX };
    let (has_cause, why) = match row.state.as_str() {
        "accepted" => (known.says(BankSays::Pending), "no answer of the bank says so"),
        "unknown" => (known.is_in_doubt(), "nothing about it was in doubt"),
        "review" => (known.may_be_shown(), "nothing about it needs a person"),
        _ => return,
    };
    if !has_cause {
        let reason = row.reason.as_deref().unwrap_or("nothing");
        known.disagrees(name, &format!("is {}: {why}; it says: {reason}", row.state), verdict);
    }
}

/// Judges one refund that was in review when a person read a page.
pub fn judge_shown(shown: &Shown, row: &Row, story: &Story<'_>, faults: &[Fault], verdict: &mut Verdict) {
    let Shown { refund_ref, reason, seen_us, .. } = shown;
    let by_then = &story.until(*seen_us);
    let known = Known { row, story: by_then, faults, until_us: *seen_us };
    if !known.may_be_shown() {
        let what = format!("was shown in review: nothing about it needed a person; it said: {reason}");
        known.disagrees(refund_ref, &what, verdict);
    }
}

/// Whether the answer to this send was the refund's end, so that nothing excuses the repeat at `again_us`: "executed",
/// or "rejected" to the first send. Trouble up to the repeat excuses it: the answer may have missed the node, and its
/// outcome may not have been written, or may be lost with a Postgres that was replaced. A lease that lapses before a
/// byte leaves makes the first send a resend, and the rejection of a resend proves nothing.
pub fn was_the_end(row: &Row, story: &Story<'_>, send: &Arrival, again_us: i64, faults: &[Fault]) -> bool {
    let is_first = story.sends.first().is_some_and(|first| first.at_us == send.at_us);
    let from_us = match send.answer_sent() {
        BankSays::Executed => send.at_us - LEASE_US,
        BankSays::Rejected if is_first => row.created_us - LINGERS_US,
        _ => return false,
    };
    let came_before = send.ended_us.is_some_and(|ended_us| ended_us < again_us);
    came_before
        && is_clear(send)
        && !Known { row, story, faults, until_us: again_us }.has_trouble(from_us, again_us)
}

/// What is known about one refund without refundd's own word.
struct Known<'a> {
    row: &'a Row,
    story: &'a Story<'a>,
    faults: &'a [Fault],
    /// Only what happened until then is a cause.
    until_us: i64,
}

impl Known<'_> {
    fn disagrees(&self, name: &str, what: &str, verdict: &mut Verdict) {
        let (channel, lines) = (self.row.channel.name, self.story.lines(self.row.created_us));
        verdict.add("disagrees", format!("{name} of {channel} {what}\n{lines}"));
    }

    fn requests(&self) -> impl Iterator<Item = &Arrival> {
        self.story.sends.iter().chain(&self.story.inquiries).copied()
    }

    /// Whether an answer to a send or to an inquiry says this.
    fn says(&self, says: BankSays) -> bool {
        self.requests().any(|request| self.has_told(request, says))
    }

    fn has_told(&self, request: &Arrival, says: BankSays) -> bool {
        request.answer_sent() == says && request.ended_us.is_none_or(|ended_us| ended_us <= self.until_us)
    }

    /// Whether an answer may have been lost, or its outcome may not have been written.
    fn has_trouble_near(&self, request: &Arrival) -> bool {
        let until_us = request.ended_us.unwrap_or(request.at_us).saturating_add(LEASE_US);
        self.has_trouble(request.at_us - LEASE_US, until_us)
    }

    /// Whether anything that a node needs to get an answer and to write it was in trouble between these times.
    fn has_trouble(&self, from_us: i64, until_us: i64) -> bool {
        let concerns = ["node", "VIOLATION node", "Postgres", "way to Postgres", "way to the bank"];
        self.faults.iter().any(|fault| {
            (fault.from_us <= until_us && fault.healed_us >= from_us)
                && concerns.iter().any(|of| fault.kind.starts_with(*of))
        })
    }

    /// Whether a send of the refund may have been executed, as far as a node could know.
    fn is_in_doubt(&self) -> bool {
        let sends = &self.story.sends;
        sends.iter().any(|send| !is_clear(send) || self.has_trouble_near(send)) || self.may_have_lapsed()
    }

    /// Whether the refund could be claimed after its last send, so that a lease could lapse before a byte left. A lapse
    /// before the only send makes it a resend, and the rejection of a resend proves nothing.
    fn may_have_lapsed(&self) -> bool {
        let is_claimable = self.story.sends.last().is_none_or(|last| {
            let is_resent = matches!(self.row.channel.on_unknown, OnUnknown::Resend { .. });
            (is_resent && last.answer_sent() == BankSays::Rejected)
                || self.story.is_disproved(last, self.row.channel, self.until_us)
        });
        is_claimable && self.has_trouble(self.row.created_us - LINGERS_US, self.until_us)
    }

    /// Whether a person has something to decide. Where refundd asks the bank, doubt alone goes to nobody.
    fn may_be_shown(&self) -> bool {
        // The bank has it, in an answer that may have come too late to move the refund.
        let has = |request: &Arrival| {
            [BankSays::Executed, BankSays::Pending].iter().any(|says| self.has_told(request, *says))
        };
        let asks = self.row.channel.inquiry.is_some();
        self.says(BankSays::AnotherAmount)
            || self.was_left_behind()
            || (!asks && self.is_in_doubt())
            || (asks && self.requests().any(|request| has(request) && self.has_trouble_near(request)))
    }

    /// Whether the channel moved after the first send of a refund that the bank accepted or may have executed.
    fn was_left_behind(&self) -> bool {
        let first_us = self.story.sends.first().map_or(self.row.created_us, |send| send.at_us);
        let moved = |fault: &Fault| {
            fault.kind == "channel moved to another bank"
                && fault.healed_us >= first_us - LINGERS_US
                && fault.from_us <= self.until_us
        };
        self.row.channel.moves
            && self.faults.iter().any(moved)
            && (self.says(BankSays::Pending) || self.is_in_doubt())
    }
}

/// Whether the answer to a send left no doubt, if the node read it: it came soon, and refused the refund for now, or
/// said what became of it.
fn is_clear(send: &Arrival) -> bool {
    let is_prompt = send.ended_us.is_some_and(|ended_us| ended_us - send.at_us <= PROMPT_US);
    let is_final = matches!(send.answer_sent(), BankSays::Executed | BankSays::Pending | BankSays::Rejected);
    is_prompt && (is_final || is_refusal_for_now(send.answered))
}
