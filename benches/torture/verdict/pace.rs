//! Judges permits and limits: each request needs its own permit, and no span may contain more than its limit.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use playground::bank::{Arrival, Kind, Ledger};
use playground::judge::{Judged, judge, judge_longer, judge_numbers};
use playground::rule::TestAlgorithm;

use super::rows::Rows;
use super::story::Story;
use super::{Verdict, excuses, late};
use crate::channels::{self, CHANNELS};
use crate::limits::TestedLimit;
use crate::records::{Fault, Frozen};
use crate::test_caller;

/// The spans that are judged beside those of one `per`, as multiples of it.
const LONGER: &[u32] = &[2, 5, 10];

/// The limits of a request; none for a channel without a limit. `story` reports channels that nobody made.
fn limits_of(arrival: &Arrival) -> impl Iterator<Item = &'static str> + use<> {
    let of_channel: &'static [&'static str] = match (channels::named(&arrival.channel), arrival.kind) {
        (None, _) => &[],
        (Some(channel), Kind::Send) => channel.limits,
        (Some(channel), Kind::Inquiry) => channel.inquiry_limits(),
    };
    test_caller::limit_of(&arrival.channel).into_iter().chain(of_channel.iter().copied())
}

fn is_under(arrival: &Arrival, limit: &str) -> bool {
    limits_of(arrival).any(|of| of == limit)
}

/// Checks that every request was made under its own permit.
pub fn permits(stories: &HashMap<&str, Story<'_>>, rows: &Rows, verdict: &mut Verdict) {
    for (name, story) in stories {
        let mut made: HashMap<&str, usize> = HashMap::new();
        for limit in story.sends.iter().chain(&story.inquiries).flat_map(|arrival| limits_of(arrival)) {
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

/// Checks that the test caller made no more requests than it had permits.
pub fn test_callers(ledger: &Ledger, rows: &Rows, verdict: &mut Verdict) {
    let mut made: HashMap<&str, usize> = HashMap::new();
    for limit in ledger.all().iter().filter_map(|arrival| test_caller::limit_of(&arrival.channel)) {
        *made.entry(limit).or_default() += 1;
        verdict.test_callers += 1;
    }
    for (limit, made) in made {
        let granted = rows.granted.get(limit).copied().unwrap_or(0);
        if granted < made {
            verdict.add(
                "without a permit",
                format!("a test caller: {made} requests under {limit}, {granted} permits"),
            );
        }
    }
}

/// Checks that no span of a limit contains more than allowed, sends and inquiries together.
pub fn pace(
    tested: &TestedLimit,
    ledger: &Ledger,
    rows: &Rows,
    (faults, frozen): (&[Fault], &[Frozen]),
    verdict: &mut Verdict,
) {
    let of_it = ledger.all().iter().filter(|arrival| is_under(arrival, tested.limit));
    let mut times = Vec::new();
    for arrival in of_it {
        let checked_us = late::checked_us(arrival, rows, frozen);
        verdict.late += usize::from(checked_us.is_some());
        times.push(checked_us.unwrap_or(arrival.at_us));
    }
    let mut judged: Vec<Judged> = judge(&times, &tested.periods);
    if tested.rule.algorithm == TestAlgorithm::FixedWindow {
        // By Redis's clock each window is filled once. So the numbers of the permits are judged too.
        let of_it = rows.numbers.iter().filter(|(limit, _, _)| limit == tested.limit);
        judged.extend(judge_numbers(
            of_it.map(|(_, window_us, ordinal)| (*window_us, *ordinal)),
            tested.rule.promise(),
        ));
    }
    let unsteady = excuses::unsteady(tested.limit, faults);
    let longer = judge_longer(&times, &tested.periods, LONGER, &unsteady);
    verdict.spans += judged.len();
    verdict.plain += judged.iter().filter(|judged| judged.plain).count();
    verdict.longer += longer.len();
    for judged in judged.into_iter().chain(longer) {
        verdict.worst = verdict.worst.max(judged.share());
        if judged.is_above() {
            let Judged { start_us, per, count, most, .. } = judged;
            // Each list is read from the whole ledger. A longer span has too many requests to read them in a report.
            let requests = if per > tested.rule.per {
                String::new()
            } else {
                contents(tested, ledger, rows, start_us..judged.end_us())
            };
            verdict.add(
                "over the limit",
                format!("{}: {count} of {most} within {per:?} from {start_us}\n{requests}", tested.limit),
            );
        }
    }
}

/// The requests of a span, one line each: the arrival, how long after the node's last check, and the sender.
fn contents(tested: &TestedLimit, ledger: &Ledger, rows: &Rows, span: Range<i64>) -> String {
    let of_it = ledger.all().iter().filter(|arrival| is_under(arrival, tested.limit));
    let mut of_it: Vec<&Arrival> = of_it.filter(|arrival| span.contains(&arrival.at_us)).collect();
    of_it.sort_unstable_by_key(|arrival| arrival.at_us);
    let lines = of_it.into_iter().map(|arrival| {
        let at_ms = (arrival.at_us - span.start) as f64 / 1000.0;
        let (node, late) =
            late::journal_row(arrival, rows).map_or(("another service", String::new()), |made| {
                (
                    &*made.node,
                    format!(
                        ", {:.1} ms after its check",
                        (arrival.at_us - rows.clock.nearest_us(made.started_us, arrival.at_us)) as f64
                            / 1000.0
                    ),
                )
            });
        format!("  {at_ms:>7.1} ms  {:?} {} by {node}{late}", arrival.kind, arrival.key)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// For each kind of fault: how many there were, and the longest times in microseconds from the end of such a fault to
/// the next request. The first time is until any steady channel sent, the second until every one had sent.
pub fn pauses(ledger: &Ledger, faults: &[Fault]) -> BTreeMap<String, (usize, i64, i64)> {
    let mut times: HashMap<&str, Vec<i64>> =
        CHANNELS.iter().filter(|c| c.is_steady()).map(|c| (c.name, Vec::new())).collect();
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
        // At the end of the run nothing is left to be sent.
        if fault.healed_us + 20_000_000 < last {
            of.1 = of.1.max(waits.iter().copied().min().unwrap_or(0));
            of.2 = of.2.max(waits.iter().copied().max().unwrap_or(0));
        }
    }
    longest
}
