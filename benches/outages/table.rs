//! The results: JSON for programs, and a table in Markdown for people.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cell::Cell;
use crate::neighbours::Loss;
use crate::run::{PERMITS, Results, Round};

/// A shorter cut consists of its first moment: the permits that the node had taken when it was cut off.
const SHARED: Duration = Duration::from_secs(8);

/// Sorted seconds of all rounds; a round that never came back is left out here, and ends the run with status 1.
fn seconds(rounds: &[Round], of: impl Fn(&Round) -> Option<Duration>) -> Vec<f64> {
    let mut seconds: Vec<f64> = rounds.iter().filter_map(of).map(|time| time.as_secs_f64()).collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}

fn median(sorted: &[f64]) -> f64 {
    match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(lower), Some(upper)) => f64::midpoint(*lower, *upper),
        _ => 0.0,
    }
}

fn worst(sorted: &[f64]) -> f64 {
    sorted.last().copied().unwrap_or_default()
}

/// The sorted shares of the other node while one node was cut off for long enough.
fn shares(rounds: &[Round]) -> Vec<f64> {
    let long = rounds.iter().filter(|round| round.length.is_some_and(|length| length >= SHARED));
    let mut shares: Vec<f64> = long.filter_map(|round| round.share).collect();
    shares.sort_by(f64::total_cmp);
    shares
}

fn length(length: Duration) -> String {
    match length.as_secs() {
        0 => format!("{} s", length.as_secs_f64()),
        whole if whole >= 60 && whole.is_multiple_of(60) => format!("{} min", whole / 60),
        whole => format!("{whole} s"),
    }
}

/// A row for each fault.
pub fn markdown(rows: &[(Cell, Vec<Round>)]) -> String {
    let mut table = String::from(
        "| server | fault | rounds | longest | next refund, p50 / worst | full rate, p50 / worst | other node's share, p50 / least |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (cell, rounds) in rows {
        let shares = shares(rounds);
        let (next, full) = (seconds(rounds, |round| round.next), seconds(rounds, |round| round.full));
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {:.2} / {:.2} | {:.2} / {:.2} | {} |",
            cell.server(),
            cell.fault(),
            rounds.len(),
            rounds.iter().filter_map(|round| round.length).max().map_or("–".to_owned(), length),
            median(&next),
            worst(&next),
            median(&full),
            worst(&full),
            shares.first().map_or("–".to_owned(), |least| format!(
                "{:.1} % / {:.1} %",
                median(&shares) * 100.0,
                least * 100.0
            ))
        );
    }
    table
}

/// Everything that was measured, with each round.
pub fn page(results: &Results, loss: Option<&Loss>) -> Value {
    let rounded = |seconds: f64| (seconds * 1000.0).round() / 1000.0;
    let time = |time: Option<Duration>| time.map(|time| rounded(time.as_secs_f64()));
    let rows: Vec<_> = results
        .rows
        .iter()
        .map(|(cell, rounds)| {
            let summary = |sorted: &[f64]| json!({ "p50": rounded(median(sorted)), "worst": rounded(worst(sorted)) });
            let each = rounds.iter().map(|round| {
                json!({
                    "length_s": time(round.length), "next_refund_s": time(round.next), "full_pace_s": time(round.full),
                    "share_of_the_other_node": round.share.map(rounded), "stall_s": time(Some(round.stall)),
                })
            });
            json!({
                "server": cell.server(), "fault": cell.fault(),
                "next_refund_s": summary(&seconds(rounds, |round| round.next)),
                "full_pace_s": summary(&seconds(rounds, |round| round.full)),
                "share_of_the_other_node": (!shares(rounds).is_empty()).then(|| {
                    let shares = shares(rounds);
                    json!({ "p50": rounded(median(&shares)), "least": rounded(shares[0]) })
                }),
                "rounds": each.collect::<Vec<_>>(),
            })
        })
        .collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let verdict = &results.verdict;
    json!({
        "command": "make outages", "cores": cores, "nodes": 2,
        "permits_a_second": PERMITS[0], "permits_a_second_in_long_outages": PERMITS[1], "rows": rows,
        "arrivals": verdict.arrivals, "lost": verdict.lost, "repeated": verdict.repeated,
        "spans": verdict.spans, "above": verdict.above, "shown_to_a_person": verdict.shown,
        "neighbours": loss.map(|l| json!({ "well_per_s": l.well, "beside_one_that_hangs_per_s": l.beside, "lost_percent": l.percent() })),
    })
}
