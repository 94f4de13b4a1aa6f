//! Permits and limits: whether every request had a permit of its own, and no span more than its limit.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use playground::bank::{Arrival, Kind, Ledger};
use playground::judge::{Judged, judge, judge_numbers};
use playground::rule::Algorithm;

use super::rows::Rows;
use super::story::Story;
use super::{Verdict, late};
use crate::channels::{self, CHANNELS};
use crate::guest;
use crate::lanes::Lane;
use crate::world::{Frozen, Told};

/// Under which limit a request had to be made.
fn limit_of(arrival: &Arrival) -> Option<&'static str> {
    if let Some(limit) = guest::limit_of(&arrival.channel) {
        return Some(limit);
    }
    let channel = channels::named(&arrival.channel)?;
    match arrival.kind {
        Kind::Send => channel.limit,
        Kind::Inquiry => channel.asked_under(),
    }
}

/// Whether every request was made under a permit of its own.
pub fn permits(stories: &HashMap<&str, Story<'_>>, rows: &Rows, verdict: &mut Verdict) {
    for (name, story) in stories {
        let mut made: HashMap<&str, usize> = HashMap::new();
        for limit in story.sends.iter().chain(&story.asked).filter_map(|arrival| limit_of(arrival)) {
            *made.entry(limit).or_default() += 1;
        }
        for (limit, made) in made {
            let spent = rows.spent.get(&(limit.to_owned(), (*name).to_owned())).copied().unwrap_or(0);
            if spent < made {
                verdict.add(
                    "without a permit",
                    format!("{name}: {made} requests under {limit}, {spent} permits"),
                );
            }
        }
    }
}

/// Whether another service made no more requests than it had permits for.
pub fn guests(ledger: &Ledger, rows: &Rows, verdict: &mut Verdict) {
    let mut made: HashMap<&str, usize> = HashMap::new();
    for limit in ledger.all().iter().filter_map(|arrival| guest::limit_of(&arrival.channel)) {
        *made.entry(limit).or_default() += 1;
        verdict.guests += 1;
    }
    for (limit, made) in made {
        let granted = rows.granted_outside.get(limit).copied().unwrap_or(0);
        if granted < made {
            verdict.add(
                "without a permit",
                format!("a guest: {made} requests under {limit}, {granted} permits"),
            );
        }
    }
}

/// Whether any span held more than its limit, sends and inquiries together.
pub fn pace(lane: &Lane, ledger: &Ledger, rows: &Rows, frozen: &[Frozen], verdict: &mut Verdict) {
    let of_it = ledger.all().iter().filter(|arrival| limit_of(arrival) == Some(lane.limit));
    let mut times = Vec::new();
    for arrival in of_it {
        let checked_us = late::checked_us(arrival, rows, frozen);
        verdict.late += usize::from(checked_us.is_some());
        times.push(checked_us.unwrap_or(arrival.at_us));
    }
    let mut judged: Vec<Judged> = judge(&times, &lane.periods);
    if lane.rule.algorithm == Algorithm::FixedWindow {
        // By its own clock each of its windows is filled once: its numbers are judged, too.
        let of_it = rows.numbers.iter().filter(|(limit, _, _)| limit == lane.limit);
        judged.extend(judge_numbers(
            of_it.map(|(_, window_us, ordinal)| (*window_us, *ordinal)),
            lane.rule.law(),
        ));
    }
    for judged in judged {
        verdict.spans += 1;
        verdict.plain += usize::from(judged.plain);
        verdict.worst = verdict.worst.max(judged.share());
        if judged.is_above() {
            let Judged { start_us, per, count, most, .. } = judged;
            let held = contents(lane, ledger, rows, start_us..judged.end_us());
            verdict.add(
                "over the limit",
                format!("{}: {count} of {most} within {per:?} from {start_us}\n{held}", lane.limit),
            );
        }
    }
}

/// What a span held, a line each: when it came, how much later than its node's last check, and whose it is.
fn contents(lane: &Lane, ledger: &Ledger, rows: &Rows, span: Range<i64>) -> String {
    let of_it = ledger.all().iter().filter(|arrival| limit_of(arrival) == Some(lane.limit));
    let mut of_it: Vec<&Arrival> = of_it.filter(|arrival| span.contains(&arrival.at_us)).collect();
    of_it.sort_unstable_by_key(|arrival| arrival.at_us);
    let lines = of_it.into_iter().map(|arrival| {
        let at_ms = (arrival.at_us - span.start) as f64 / 1000.0;
        let (node, late) = late::line(arrival, rows).map_or(("another service", String::new()), |made| {
            (
                &*made.node,
                format!(", {:.1} ms after its check", (arrival.at_us - made.started_us) as f64 / 1000.0),
            )
        });
        format!("  {at_ms:>7.1} ms  {:?} {} by {node}{late}", arrival.kind, arrival.key)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The longest time from the end of a fault of each kind to the next request of any limited channel, and to
/// the first moment by which every one of them had sent.
pub fn pauses(ledger: &Ledger, faults: &[Told]) -> BTreeMap<String, (usize, i64, i64)> {
    let mut times: HashMap<&str, Vec<i64>> =
        CHANNELS.iter().filter(|c| c.limit.is_some()).map(|c| (c.name, Vec::new())).collect();
    for arrival in ledger.all() {
        let name = channels::named(&arrival.channel).map_or(&*arrival.channel, |channel| channel.name);
        if let Some(times) = times.get_mut(name) {
            times.push(arrival.at_us);
        }
    }
    for times in times.values_mut() {
        times.sort_unstable();
    }
    let last = ledger.all().iter().map(|arrival| arrival.at_us).max().unwrap_or(0);
    let mut longest: BTreeMap<String, (usize, i64, i64)> = BTreeMap::new();
    for fault in faults {
        let next = |times: &Vec<i64>| {
            times.get(times.partition_point(|at| *at <= fault.healed_us)).map(|at| at - fault.healed_us)
        };
        let waits: Vec<i64> = times.values().filter_map(next).collect();
        let of = longest.entry(fault.kind.clone()).or_default();
        of.0 += 1;
        // At the very end nothing is left to be sent.
        if fault.healed_us + 20_000_000 < last {
            of.1 = of.1.max(waits.iter().copied().min().unwrap_or(0));
            of.2 = of.2.max(waits.iter().copied().max().unwrap_or(0));
        }
    }
    longest
}
