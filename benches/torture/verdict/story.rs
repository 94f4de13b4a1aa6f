//! The requests about one refund at the bank, and whether each was allowed.
//!
//! This module repeats the rules by the bank's ledger alone. A send may be repeated when the bank's answer proves
//! that it executed nothing. "Not found" proves that only where it is final, only after the grace, and only in the
//! bank's own words. Where the bank remembers keys, the same request may come again while it does.
//!
//! An answer counts from the moment when the bank gave it, if the caller was still there. The ledger does not know
//! whether the caller read it. So a node that died just then, and another that sends again without knowing the answer,
//! are not told from a node that knew it. The answer is true all the same, so no money moves twice.

use std::collections::HashMap;

use playground::bank::{Arrival, BankSays, Kind, Ledger};
use playground::judge::Intervals;

use super::Verdict;
use super::excuses::LEEWAY_US;
use super::rows::{Row, Rows};
use crate::channels::{self, Channel, OnUnknown, TIMEOUT_US};
use crate::test_caller;

/// The requests about one refund, in the order in which they came.
#[derive(Debug, Default)]
pub struct Story<'a> {
    pub sends: Vec<&'a Arrival>,
    pub inquiries: Vec<&'a Arrival>,
}

/// The stories of all refunds, by refund ref. A request with an unknown key is a violation. So is one to a channel that
/// nobody made: no limit would count it.
pub fn all<'a>(ledger: &'a Ledger, rows: &'a Rows, verdict: &mut Verdict) -> HashMap<&'a str, Story<'a>> {
    let mut stories: HashMap<&str, Story<'_>> = HashMap::new();
    for arrival in ledger.all().iter().filter(|arrival| test_caller::limit_of(&arrival.channel).is_none()) {
        if channels::named(&arrival.channel).is_none() {
            let Arrival { kind, key, channel, .. } = arrival;
            verdict
                .add("without a permit", format!("{kind:?} of {key} came to {channel}, which has no limit"));
        }
        let by_key = rows.refs.get(&*arrival.key).map(String::as_str);
        // The body may never have arrived, so the key is used too.
        let name = Some(&*arrival.refund_ref).filter(|name| !name.is_empty()).or(by_key);
        match (name, arrival.kind) {
            (Some(name), Kind::Send) => stories.entry(name).or_default().sends.push(arrival),
            (Some(name), Kind::Inquiry) => stories.entry(name).or_default().inquiries.push(arrival),
            (None, kind) => {
                verdict.add("lost", format!("{kind:?} of {}, a key that stands in no row", arrival.key));
            }
        }
    }
    for story in stories.values_mut() {
        story.sends.sort_by_key(|arrival| arrival.at_us);
        story.inquiries.sort_by_key(|arrival| arrival.at_us);
    }
    stories
}

/// Whether this status proves that the bank executed nothing.
pub(super) fn is_refusal_for_now(answered: Option<u16>) -> bool {
    matches!(answered, Some(401 | 403 | 407 | 425 | 429 | 503))
}

/// Whether a send was over when the next one came: it was answered, or its node had left.
///
/// The bank sees late that a node leaves: its thread and that of the way may have to wait, while the kernel dates the
/// next send. So after the node's time-out it is enough that the bank saw the end soon. In a silent time the bank may
/// see the end much later, or never. Only then the time-out alone counts.
fn is_over(send: &Arrival, next: &Arrival, silent: &Intervals) -> bool {
    let gives_up_us = send.at_us + TIMEOUT_US;
    let latest_us = (gives_up_us + LEEWAY_US).max(next.handled_us);
    let over_us = [send.ended_us, send.left_us].into_iter().flatten().min();
    over_us.is_some_and(|over_us| over_us <= next.at_us)
        || gives_up_us <= next.at_us
            && (over_us.is_some_and(|over_us| over_us <= latest_us)
                || silent.touch(&(send.at_us..gives_up_us)))
}

fn micros(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl<'a> Story<'a> {
    /// The requests that had come by then.
    pub fn until(&self, by_us: i64) -> Story<'a> {
        let by_then =
            |all: &[&'a Arrival]| all.iter().filter(|request| request.at_us <= by_us).copied().collect();
        Story { sends: by_then(&self.sends), inquiries: by_then(&self.inquiries) }
    }

    /// Whether the bank had proved by then that it did not and will not execute this send.
    pub(super) fn is_disproved(&self, send: &Arrival, channel: &Channel, by_us: i64) -> bool {
        let by_itself =
            is_refusal_for_now(send.answered) && send.ended_us.is_some_and(|ended| ended <= by_us);
        let by_inquiry = channel.final_after().is_some_and(|grace| {
            self.inquiries.iter().any(|inquiry| {
                // The inquiry must go to the bank of this send.
                inquiry.channel == send.channel
                    && inquiry.answer_sent() == BankSays::NotFound
                    && inquiry.at_us >= send.at_us + micros(grace)
                    && inquiry.ended_us.is_some_and(|ended| ended <= by_us)
            })
        });
        by_itself || by_inquiry
    }

    /// Judges each send after the first against the sends before it. `said` is when people said "not executed", in
    /// decisions that refundd accepted or left without an answer. In the `silent` times the bank may not have seen that
    /// a node left. `was_the_end` says whether a send's answer leaves no excuse for a repeat at that time.
    pub fn judge_repeats(
        &self,
        name: &str,
        channel: &Channel,
        said: &[i64],
        silent: &Intervals,
        was_the_end: &dyn Fn(&Arrival, i64) -> bool,
        verdict: &mut Verdict,
    ) {
        let mut said = said.to_vec();
        // A person has cleared all sends before this index.
        let mut cleared = 0;
        for (nth, send) in self.sends.iter().enumerate().skip(1) {
            let earlier = &self.sends[..nth];
            let open: Vec<_> = earlier[cleared..]
                .iter()
                .filter(|sent| !self.is_disproved(sent, channel, send.at_us))
                .collect();
            let age_us = send.at_us - earlier[cleared.min(nth - 1)].at_us;
            let decided =
                open.last().and_then(|last| said.iter().position(|at| (last.at_us..send.at_us).contains(at)));
            match (open.last(), channel.on_unknown) {
                (None, _) if is_refusal_for_now(earlier[nth - 1].answered) => verdict.after_refusal += 1,
                (None, _) => verdict.after_not_found += 1,
                (Some(_), OnUnknown::Resend { key_retention })
                    if age_us <= micros(key_retention)
                        && open
                            .iter()
                            .all(|sent| sent.channel == send.channel && !was_the_end(sent, send.at_us)) =>
                {
                    verdict.under_the_key += 1;
                }
                (Some(_), _) if decided.is_some() => {
                    said.remove(decided.unwrap_or_default());
                    cleared = nth;
                    verdict.after_decision += 1;
                }
                (Some(last), _) => {
                    let (answered, age) = (last.answered, age_us / 1_000);
                    verdict.add(
                        "repeated",
                        format!(
                            "{name} of {}: sent again after {answered:?}, {age} ms after the first\n{}",
                            channel.name,
                            self.lines(send.at_us)
                        ),
                    );
                }
            }
            if !earlier.iter().all(|sent| is_over(sent, send, silent)) {
                let lines = self.lines(send.at_us);
                verdict.add("two at once", format!("{name} of {}\n{lines}", channel.name));
            }
        }
    }

    /// All requests about the refund, one line each, in milliseconds relative to `of_us`.
    pub(super) fn lines(&self, of_us: i64) -> String {
        let mut all: Vec<&Arrival> = self.sends.iter().chain(&self.inquiries).copied().collect();
        all.sort_by_key(|arrival| arrival.at_us);
        let lines = all.into_iter().map(|arrival| {
            let at_ms = (arrival.at_us - of_us) as f64 / 1000.0;
            let Arrival { channel, kind, attempt, paid, answered, says, .. } = arrival;
            format!(
                "  {at_ms:>9.1} ms  {channel} {kind:?} {attempt}, answered {answered:?} ({says:?}), paid {paid}"
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Judges the row's state against what the bank did. `said` is when people said "not executed".
    pub fn judge_row(&self, name: &str, row: &Row, said: &[i64], verdict: &mut Verdict) {
        let (channel, state) = (row.channel, row.state.as_str());
        let executed = self.sends.iter().filter(|send| send.paid).count();
        let is_decided = executed > 0 || self.sends.iter().any(|send| send.refused);
        if super::rows::is_unfinished(channel, state, is_decided) {
            verdict.add("unfinished", format!("{name} of {} is {state}", channel.name));
        }
        let agrees = match state {
            "succeeded" => executed > 0,
            "failed" | "cancelled" => executed == 0,
            _ => true,
        };
        if !agrees {
            let channel = channel.name;
            verdict.add("disagrees", format!("{name} of {channel} is {state}, executed {executed} times"));
        }
        if executed > 1 {
            verdict.add("doubled", format!("{name} of {} was executed {executed} times", channel.name));
        }
        let open = |send: &&&Arrival| {
            !self.is_disproved(send, channel, i64::MAX) && !said.iter().any(|at| *at > send.at_us)
        };
        if state == "cancelled" && self.sends.iter().any(|send| open(&send)) {
            verdict.add("disagrees", format!("{name} is cancelled, and may have been executed"));
        }
        // A refusal of a later send says nothing about the earlier ones, which may have been executed. Only the bank's
        // "rejected" to an inquiry does.
        let was_told = self.inquiries.iter().any(|inquiry| inquiry.answer_sent() == BankSays::Rejected);
        if state == "failed" && !was_told && self.sends.iter().rev().skip(1).any(|send| open(&send)) {
            verdict.add("disagrees", format!("{name} of {} failed by what a repeat came to", channel.name));
        }
    }
}
