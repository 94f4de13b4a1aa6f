//! The printed report of a run, and the evidence that it keeps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use playground::bank::Ledger;
use playground::stage::Stage;
use sqlx::{Connection, PgConnection};

use crate::plan::Plan;
use crate::producer::Acknowledged;
use crate::records::{Decision, Fault, Frozen};
use crate::stalls::Stall;
use crate::verdict::{Rows, Verdict};

/// The kinds of violations.
const PROMISES: [&str; 11] = [
    "lost",
    "doubled",
    "repeated",
    "two at once",
    "altered",
    "over the limit",
    "without a permit",
    "while paused",
    "disagrees",
    "unfinished",
    "others",
];

/// Prints the report of a run.
pub fn print(
    plan: &Plan,
    took: Duration,
    left: usize,
    acknowledged: &Acknowledged,
    rows: &Rows,
    verdict: &Verdict,
    pauses: &BTreeMap<String, (usize, i64, i64)>,
) {
    let s = |us: i64| us as f64 / 1e6;
    println!("\n{:<36} {:>6}   longest, s, from its end to the next request", "fault", "times");
    println!("{:<36} {:>6}   {:>10} {:>14}", "", "", "of any", "of every one");
    for (kind, (times, any, all)) in pauses {
        println!("{kind:<36} {times:>6}   {:>10.2} {:>14.2}", s(*any), s(*all));
    }
    let faults: usize = pauses.values().map(|(times, _, _)| times).sum();
    println!(
        "\nseed {}: {} s, {faults} faults; {} refunds acknowledged, {} cancelled, {} in doubt; {} rows, {} attempts, {} requests, {} of them inquiries",
        plan.seed,
        took.as_secs(),
        acknowledged.saved().count(),
        acknowledged.cancelled.len(),
        acknowledged.doubtful,
        verdict.refunds,
        rows.attempts,
        verdict.arrivals,
        verdict.inquiries
    );
    println!(
        "{} spans, {} of them without a change of their limit, and {} of several `per`; fullest against its limit {:.3}; {left} left open",
        verdict.spans, verdict.plain, verdict.longer, verdict.worst
    );
    println!(
        "another service: {} permits, {} requests; {} requests late by a stop of their node's process",
        acknowledged.permits, verdict.test_callers, verdict.late
    );
    println!(
        "repeats: {} after the bank had refused for now, {} after a final \"not found\", {} under a key it remembers, {} after one of {} decisions by people; {} in review on a page",
        verdict.after_refusal,
        verdict.after_not_found,
        verdict.under_the_key,
        verdict.after_decision,
        verdict.decisions,
        verdict.shown
    );
    let shown: Vec<String> = rows.shown().iter().map(|(channel, n)| format!("{channel} {n}")).collect();
    println!(
        "what may have been executed: {} cleared by inquiry, {} by resend; shown for review: {}",
        rows.cleared_by_inquiry,
        rows.cleared_by_resend,
        shown.join(", ")
    );
    let states: Vec<String> = rows.by_state().iter().map(|(state, n)| format!("{state} {n}")).collect();
    println!("rows by end state: {}", states.join(", "));
    let counts: Vec<String> =
        PROMISES.iter().map(|promise| format!("{promise} {}", verdict.count(promise))).collect();
    println!("violations: {}", counts.join(", "));
    for (promise, cases) in &verdict.violations {
        for what in cases.iter().take(8) {
            println!("VIOLATION {promise}: {what}");
        }
        if cases.len() > 8 {
            println!("VIOLATION {promise}: and {} more", cases.len() - 8);
        }
    }
    if !verdict.violations.is_empty() {
        println!("to repeat: {}", plan.again());
    }
}

/// Prints the answers that people got, and how many refunds moved channels left to them.
pub fn print_people(replies: &BTreeMap<String, usize>, decisions: &[Decision], rows: &Rows) {
    let replies: Vec<String> = replies.iter().map(|(result, n)| format!("{n} {result}")).collect();
    println!(
        "people were answered: {}; address_changed: {} decided, {} left to people",
        replies.join(", "),
        decisions.iter().filter(|decision| decision.has_moved).count(),
        rows.address_changed
    );
}

/// Prints how often the banks, and the ways to them, stood still with this process.
pub fn print_stalls(stalls: &[Stall]) {
    let longest = stalls.iter().map(|(from, until)| until - from).max().unwrap_or(0);
    println!(
        "the banks and the ways to them stood still {} times for more than 50 ms, for {} ms at most",
        stalls.len(),
        longest / 1000
    );
}

/// Writes the evidence into a folder: logs, faults, stops of nodes, stalls of this process, arrivals, and the tables.
pub async fn keep(
    folder: &Path,
    logs: &[(&str, PathBuf)],
    faults: &[Fault],
    (frozen, stalls): (&[Frozen], &[Stall]),
    ledger: &Ledger,
    stage: &Stage,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, log) in logs {
        std::fs::copy(log, folder.join(format!("{name}.log")))?;
    }
    let lines: Vec<String> =
        faults.iter().map(|fault| format!("{},{},{}", fault.from_us, fault.healed_us, fault.kind)).collect();
    std::fs::write(folder.join("faults.csv"), lines.join("\n"))?;
    let stops: Vec<String> =
        frozen.iter().map(|stop| format!("{},{},{}", stop.from_us, stop.until_us, stop.node)).collect();
    std::fs::write(folder.join("stops.csv"), stops.join("\n"))?;
    let stalls: Vec<String> = stalls.iter().map(|(from, until)| format!("{from},{until}")).collect();
    std::fs::write(folder.join("stalls.csv"), stalls.join("\n"))?;
    let arrivals: Vec<String> = ledger
        .all()
        .iter()
        .map(|a| {
            format!(
                "{},{},{:?},{},{},{},{},{:?},{:?},{:?},{:?}",
                a.at_us,
                a.channel,
                a.kind,
                a.key,
                a.refund_ref,
                a.attempt,
                a.paid,
                a.answered,
                a.ended_us,
                a.left_us,
                a.says
            )
        })
        .collect();
    std::fs::write(folder.join("arrivals.csv"), arrivals.join("\n"))?;
    let mut connection = PgConnection::connect(&stage.database_url()).await?;
    for (name, statement) in [
        ("refunds", "select row_to_json(t)::text from refundd.refunds t order by id"),
        ("attempts", "select row_to_json(t)::text from refundd.attempts t order by refund_id"),
        (
            "permits",
            "select row_to_json(t)::text from refundd.permits t order by limit_name, window_start, ordinal",
        ),
    ] {
        let lines: Vec<String> = sqlx::query_scalar(statement).fetch_all(&mut connection).await?;
        std::fs::write(folder.join(format!("{name}.jsonl")), lines.join("\n"))?;
    }
    Ok(connection.close().await?)
}
