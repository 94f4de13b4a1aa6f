//! Judges one part by the bank's ledger.
//!
//! A span belongs to the last fault before its end. A pause is the time from a fault to the next arrival. Permits
//! that were granted before a fault may still be used just after it. So the report also shows the silence: the
//! longest gap between two arrivals around the fault. `calm` is the time before the first fault.

mod page;
mod subject;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use playground::judge::Judged;
use refundd::refund::State;

use crate::load::{Outcome, now_us};
use crate::plan::Plan;
pub use page::json;
pub use subject::Subject;

const CALM: &str = "calm";
/// A silence that begins later than this after a fault does not count for that fault.
const AFTERMATH_US: i64 = 5_000_000;
/// How long permits that were granted before a halt may still be used.
const LAST_WORDS_US: i64 = 150_000;

/// A fault: a change to the nodes, to Redis or to its clock.
pub struct Fault {
    pub kind: &'static str,
    pub at_us: i64,
    pub done_us: i64,
    /// Whether no node may send until the next fault undoes this one.
    pub halts: bool,
    /// The channels that the fault concerns; `None` for all.
    pub touched: Option<Vec<&'static str>>,
}

impl Fault {
    /// A fault that began at `at_us` and is complete now.
    pub fn now(kind: &'static str, at_us: i64) -> Fault {
        Fault { kind, at_us, done_us: now_us(), halts: false, touched: None }
    }

    fn concerns(&self, subject: &Subject) -> bool {
        self.touched.as_ref().is_none_or(|touched| touched.iter().any(|name| subject.channels.contains(name)))
    }
}

/// The results of one subject for one kind of fault.
#[derive(Default)]
struct Row {
    faults: usize,
    spans: usize,
    /// Spans that stood under one promise alone.
    plain: usize,
    above: usize,
    worst: f64,
    /// The worst span above its promise after each fault, by the number of the fault.
    broken: BTreeMap<usize, Judged>,
    pauses_us: Vec<i64>,
    silences_us: Vec<i64>,
}

/// The results of one part.
pub struct Part {
    pub name: &'static str,
    faults: usize,
    wanted: bool,
    took: Duration,
    rows: Vec<(String, &'static str, Row)>,
    arrivals: usize,
    saved: usize,
    lost: usize,
    repeated: usize,
    unfinished: usize,
    /// Refunds in review, or on the way to it.
    shown: usize,
    /// Arrivals for which no permit of their refund was spent.
    uncovered: usize,
    /// Arrivals while no node was allowed to send.
    while_halted: usize,
    /// Whether a channel had permits and refunds, but sent nothing for far too long.
    stalled: bool,
    notes: Vec<String>,
}

impl Part {
    pub fn judge(
        name: &'static str,
        plan: &Plan,
        faults: &[Fault],
        took: Duration,
        subjects: &[Subject],
        outcome: &Outcome,
    ) -> anyhow::Result<Part> {
        let mut rows = Vec::new();
        let mut notes = Vec::new();
        for subject in subjects {
            let mut times: Vec<i64> =
                subject.channels.iter().flat_map(|c| outcome.ledger.arrivals(c)).map(|a| a.at_us).collect();
            times.sort_unstable();
            let judged = subject.judge(&times, outcome);
            let subject_rows = rows_of(subject, &judged, &times, faults);
            rows.extend(subject_rows.into_iter().map(|(kind, row)| (subject.name(), kind, row)));
            if subject.numbered.is_some() {
                notes.push(format!(
                    "{}: its windows are Redis's, so the permits of each window in refundd.permits are judged; by the bank's own clock its fullest rolling second held {}",
                    subject.name(),
                    fullest_second(&times)
                ));
            }
        }
        let ledger = &outcome.ledger;
        let state = |name: &str| outcome.states.get(name).copied();
        let is_shown =
            |state| matches!(state, Some(State::Unknown | State::Review | State::Sending | State::Accepted));
        let unpaid = ledger.lost(outcome.saved.iter().map(String::as_str));
        let open = |state| matches!(state, Some(State::Ready | State::Sending));
        let mut spent: HashMap<&str, usize> = HashMap::new();
        for permit in &outcome.spent {
            *spent.entry(&permit.refund_ref).or_default() += 1;
        }
        let mut arrived: HashMap<&str, usize> = HashMap::new();
        for arrival in ledger.all() {
            *arrived.entry(&arrival.refund_ref).or_default() += 1;
        }
        let part = Part {
            name,
            faults: faults.len(),
            wanted: faults.len() >= 200 || plan.seconds.is_some(),
            took,
            rows,
            arrivals: ledger.all().len(),
            saved: outcome.saved.len(),
            lost: unpaid
                .iter()
                .filter(|name| !is_shown(state(name)) && state(name) != Some(State::Ready))
                .count(),
            repeated: ledger.repeated().len(),
            unfinished: outcome.states.values().filter(|state| open(Some(**state))).count(),
            shown: outcome.states.values().filter(|state| is_shown(Some(**state))).count(),
            uncovered: arrived
                .iter()
                .map(|(name, times)| times.saturating_sub(spent.get(name).copied().unwrap_or(0)))
                .sum(),
            while_halted: while_halted(faults, outcome),
            stalled: false,
            notes,
        };
        if let Some(folder) = &plan.keep {
            page::keep(folder, name, faults, subjects, outcome)?;
        }
        Ok(part)
    }

    pub fn and_stalled(self, stalled: bool) -> Part {
        Part { stalled, ..self }
    }

    pub fn broke_a_promise(&self) -> bool {
        let counted = self.above() + self.lost + self.repeated + self.unfinished + self.uncovered;
        counted > 0 || self.stalled || !self.wanted
    }

    fn above(&self) -> usize {
        self.rows.iter().map(|(_, _, row)| row.above).sum()
    }
}

fn rows_of(
    subject: &Subject,
    judged: &[Judged],
    times: &[i64],
    faults: &[Fault],
) -> BTreeMap<&'static str, Row> {
    let mut rows: BTreeMap<&'static str, Row> = BTreeMap::new();
    for judged in judged {
        let before = faults.partition_point(|fault| fault.at_us < judged.end_us());
        let kind = before.checked_sub(1).map_or(CALM, |nth| faults[nth].kind);
        let row = rows.entry(kind).or_default();
        row.spans += 1;
        row.plain += usize::from(judged.plain);
        row.above += usize::from(judged.is_above());
        row.worst = row.worst.max(judged.share());
        if judged.is_above() {
            let worst = row.broken.entry(before).or_insert(*judged);
            if judged.share() > worst.share() {
                *worst = *judged;
            }
        }
    }
    for (nth, fault) in faults.iter().enumerate().filter(|(_, fault)| fault.concerns(subject)) {
        let row = rows.entry(fault.kind).or_default();
        row.faults += 1;
        if fault.halts {
            continue;
        }
        let until = faults.get(nth + 1).map_or(i64::MAX, |next| next.at_us).min(fault.at_us + AFTERMATH_US);
        row.pauses_us.extend(pause(times, fault.at_us));
        row.silences_us.extend(silence(times, fault.at_us, until));
    }
    if let (Some(first), Some(began)) = (faults.first(), times.first()) {
        let calm = rows.entry(CALM).or_default();
        // The beginning is left out, because nodes start one after the other.
        calm.silences_us.extend(silence(times, began + 2_000_000, first.at_us - 1_500_000));
    }
    for row in rows.values_mut() {
        row.pauses_us.sort_unstable();
        row.silences_us.sort_unstable();
    }
    rows
}

fn pause(times: &[i64], at_us: i64) -> Option<i64> {
    times.get(times.partition_point(|time| *time <= at_us)).map(|next| next - at_us)
}

/// The longest gap between two arrivals that overlaps a stretch, in microseconds.
fn silence(times: &[i64], from_us: i64, until_us: i64) -> Option<i64> {
    let first = times.partition_point(|time| *time <= from_us).saturating_sub(1);
    let gaps = times[first..].windows(2).take_while(|pair| pair[0] < until_us);
    gaps.map(|pair| pair[1] - pair[0]).max()
}

fn fullest_second(times: &[i64]) -> usize {
    (0..times.len())
        .map(|nth| times[nth..].partition_point(|time| *time < times[nth] + 1_000_000))
        .max()
        .unwrap_or(0)
}

/// Arrivals during a halt, in which no node was allowed to send.
fn while_halted(faults: &[Fault], outcome: &Outcome) -> usize {
    let halts = faults.windows(2).filter(|pair| pair[0].halts);
    halts
        .map(|pair| {
            let (from, until) = (pair[0].done_us + LAST_WORDS_US, pair[1].at_us);
            outcome.ledger.all().iter().filter(|a| (from..until).contains(&a.at_us)).count()
        })
        .sum()
}

fn at(sorted: &[i64], percent: usize) -> Option<i64> {
    sorted.get((sorted.len().checked_sub(1)? * percent).div_ceil(100)).copied()
}
