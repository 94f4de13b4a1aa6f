//! The judge: compares the acknowledgements of the producers, the bank's ledger, and the rows.
//!
//! It never believes refundd's own records. Only the bank's ledger says whether a refund was executed, how often it
//! was sent, and what the bank answered.

mod cause;
mod excuses;
mod late;
mod owed;
mod pace;
pub mod paused;
pub mod rows;
mod story;

use std::collections::{BTreeMap, HashMap};

use playground::bank::{Arrival, Kind, Ledger};

use crate::limits::Limits;
use crate::producer::Acknowledged;
use crate::records::{Decision, Fault, Frozen, Shown};
pub use pace::pauses;
pub use rows::{Rows, drain};
use story::Story;

/// The counts and the violations of a run.
#[derive(Debug, Default)]
pub struct Verdict {
    pub refunds: usize,
    pub arrivals: usize,
    pub inquiries: usize,
    /// Requests of the test caller.
    pub test_callers: usize,
    /// Requests that a frozen process delayed between its last check and the write.
    pub late: usize,
    pub spans: usize,
    /// Spans that stood under one promise alone.
    pub plain: usize,
    /// Spans of several `per`, of limits with a burst or with windows.
    pub longer: usize,
    /// The fullest span divided by the most that its limit allowed.
    pub worst: f64,
    /// Sent again after the bank had refused the refund for now.
    pub after_refusal: usize,
    /// Sent again after a final "not found".
    pub after_not_found: usize,
    /// Sent again while it might have been executed, under the same key.
    pub under_the_key: usize,
    /// Sent again after a person had said that it was not executed.
    pub after_decision: usize,
    /// Refunds that a page showed in review, once for each version.
    pub shown: usize,
    /// Decisions of people to send again that may have counted, each refund and version once.
    pub decisions: usize,
    /// The violations of each promise, each with a description.
    pub violations: BTreeMap<&'static str, Vec<String>>,
}

impl Verdict {
    pub fn count(&self, promise: &str) -> usize {
        self.violations.get(promise).map_or(0, Vec::len)
    }

    pub fn add(&mut self, promise: &'static str, what: String) {
        self.violations.entry(promise).or_default().push(what);
    }
}

/// Compares everything after the run has ended.
pub fn compare(
    limits: &Limits,
    acknowledged: &Acknowledged,
    ledger: &Ledger,
    rows: &Rows,
    faults: &[Fault],
    frozen: &[Frozen],
    decisions: &[Decision],
) -> Verdict {
    let said = said(decisions);
    let mut verdict = Verdict {
        refunds: rows.by_ref.len(),
        arrivals: ledger.all().len(),
        inquiries: ledger.all().iter().filter(|arrival| arrival.kind == Kind::Inquiry).count(),
        decisions: said.values().map(Vec::len).sum(),
        ..Verdict::default()
    };
    let stories = story::all(ledger, rows, &mut verdict);
    for name in acknowledged.saved().filter(|name| !rows.by_ref.contains_key(*name)) {
        verdict.add("lost", format!("{name} was acknowledged and is not there"));
    }
    for name in stories.keys().filter(|name| !rows.by_ref.contains_key(**name)) {
        verdict.add("lost", format!("{name} was sent and is not there"));
    }
    for name in &acknowledged.cancelled {
        if let Some(row) = rows.by_ref.get(name).filter(|row| row.state != "cancelled") {
            verdict.add("disagrees", format!("{name} was cancelled, so they said, and is {}", row.state));
        }
    }
    let (never, silent) = (Story::default(), excuses::silent(faults, frozen));
    for (name, row) in &rows.by_ref {
        let story = stories.get(name.as_str()).unwrap_or(&never);
        let said = said.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        story.judge_row(name, row, said, &mut verdict);
        let was_the_end = |send: &Arrival, again_us| cause::was_the_end(row, story, send, again_us, faults);
        story.judge_repeats(name, row.channel, said, &silent, &was_the_end, &mut verdict);
        owed::judge(name, row, story, rows, acknowledged, &mut verdict);
        cause::judge(name, row, story, faults, &mut verdict);
    }
    for name in ledger.altered() {
        verdict.add("altered", name.to_owned());
    }
    pace::permits(&stories, rows, &mut verdict);
    pace::test_callers(ledger, rows, &mut verdict);
    for tested in &limits.all {
        pace::pace(tested, ledger, rows, (faults, frozen), &mut verdict);
    }
    let cut = excuses::cut(faults);
    for at_us in
        ledger.unreadable().iter().copied().filter(|at_us| !cut.touch(&(*at_us..at_us.saturating_add(1))))
    {
        verdict.add("others", format!("no hand cut what came at {at_us}, and the bank could not read it"));
    }
    for fault in faults.iter().filter(|fault| fault.kind.starts_with("VIOLATION")) {
        verdict.add("others", fault.kind.clone());
    }
    verdict
}

/// Judges each refund that a page showed in review, by what the bank knew when the page was read. People decide about most of
/// them, so their last state does not say that they were in review.
pub fn shown(shown: &[Shown], ledger: &Ledger, rows: &Rows, faults: &[Fault], verdict: &mut Verdict) {
    verdict.shown = shown.len();
    // What else is wrong with the requests was counted before.
    let stories = story::all(ledger, rows, &mut Verdict::default());
    let never = Story::default();
    for shown in shown {
        let Some(row) = rows.by_ref.get(&shown.refund_ref) else { continue };
        let story = stories.get(shown.refund_ref.as_str()).unwrap_or(&never);
        cause::judge_shown(shown, row, story, faults, verdict);
    }
}

/// For each refund, when people first decided to send it again, once for each version that a page showed. Repeated
/// decisions about one version allow one send in total. A decision that refundd refused, such as one about an older
/// version, allows nothing.
fn said(decisions: &[Decision]) -> HashMap<&str, Vec<i64>> {
    let mut first: BTreeMap<(&str, i64), i64> = BTreeMap::new();
    for decision in decisions.iter().filter(|decision| decision.again && decision.may_count()) {
        let said = first.entry((&decision.refund_ref, decision.version)).or_insert(decision.said_us);
        *said = decision.said_us.min(*said);
    }
    let mut said: HashMap<&str, Vec<i64>> = HashMap::new();
    for ((refund_ref, _), said_us) in first {
        said.entry(refund_ref).or_default().push(said_us);
    }
    said
}
