//! The report of a part as text and as JSON, and its evidence as files.

use playground::judge::JudgedPeriod;
use serde_json::{Value, json};

use super::{Fault, Part, Row, Subject, at};
use crate::load::Outcome;
use crate::plan::Plan;

impl Part {
    pub fn print(&self) {
        println!(
            "\n{}: {} faults in {:.0} s, 3 nodes, 50 a second and channel\n",
            self.name,
            self.faults,
            self.took.as_secs_f64()
        );
        println!(
            "{:<29} {:<18} {:>6} {:>7} {:>7} {:>6} {:>8}   {:^22}   {:^22}",
            "", "", "", "", "one", "", "worst", "pause, ms", "silence, ms"
        );
        println!(
            "{:<29} {:<18} {:>6} {:>7} {:>7} {:>6} {:>8}   {:>6} {:>7} {:>7}   {:>6} {:>7} {:>7}",
            "channel",
            "fault",
            "faults",
            "spans",
            "promise",
            "above",
            "/ most",
            "p50",
            "p99",
            "worst",
            "p50",
            "p99",
            "worst"
        );
        for (subject, kind, row) in &self.rows {
            let ms = |of: &[i64], percent| {
                at(of, percent).map_or("-".to_owned(), |us| format!("{:.0}", us as f64 / 1000.0))
            };
            println!(
                "{subject:<29} {kind:<18} {:>6} {:>7} {:>7} {:>6} {:>8.3}   {:>6} {:>7} {:>7}   {:>6} {:>7} {:>7}",
                row.faults,
                row.spans,
                row.plain,
                row.above,
                row.worst,
                ms(&row.pauses_us, 50),
                ms(&row.pauses_us, 99),
                ms(&row.pauses_us, 100),
                ms(&row.silences_us, 50),
                ms(&row.silences_us, 99),
                ms(&row.silences_us, 100),
            );
        }
        println!();
        for note in &self.notes {
            println!("{note}");
        }
        println!(
            "{}: {} arrivals; spans above the limit {}; saved {}, lost {}, repeated {}, unfinished {}, shown to a person {}; arrivals without a spent permit {}; sent while it may not {}",
            self.name,
            self.arrivals,
            self.above(),
            self.saved,
            self.lost,
            self.repeated,
            self.unfinished,
            self.shown,
            self.uncovered,
            self.while_halted,
        );
        for (subject, kind, row) in &self.rows {
            for (fault, worst) in &row.broken {
                println!(
                    "BROKEN {subject}, {kind} ({fault}.): {} of {} within {:?} from {}",
                    worst.count, worst.most, worst.per, worst.start_us
                );
            }
        }
    }
}

/// Writes the evidence of a part into a folder.
pub(super) fn keep(
    folder: &std::path::Path,
    name: &str,
    faults: &[Fault],
    subjects: &[Subject],
    outcome: &Outcome,
) -> anyhow::Result<()> {
    let lines = |lines: Vec<String>| lines.join("\n") + "\n";
    let file = |what: &str| folder.join(format!("{name}.{what}"));
    let fault_lines =
        faults.iter().map(|f| format!("{},{},{},{:?}", f.at_us, f.done_us, f.kind, f.touched)).collect();
    std::fs::write(file("faults.csv"), lines(fault_lines))?;
    let arrivals = outcome.ledger.all().iter();
    let arrivals =
        arrivals.map(|a| format!("{},{},{},{}", a.at_us, a.channel, a.refund_ref, a.attempt)).collect();
    std::fs::write(file("arrivals.csv"), lines(arrivals))?;
    let spent = outcome.spent.iter();
    let spent =
        spent.map(|s| format!("{},{},{},{}", s.limit, s.window_us, s.ordinal, s.refund_ref)).collect();
    std::fs::write(file("permits.csv"), lines(spent))?;
    let promises = subjects.iter().flat_map(|subject| {
        let of =
            |p: &JudgedPeriod| format!("{} {} {} {:?}", subject.name(), p.from_us, p.settled_us, p.promises);
        subject.periods.iter().map(of).collect::<Vec<_>>()
    });
    std::fs::write(file("promises.txt"), lines(promises.collect()))?;
    Ok(())
}

pub fn json(plan: &Plan, parts: &[Part]) -> Value {
    let ms = |of: &[i64]| {
        let at = |percent| at(of, percent).map(|us| us as f64 / 1000.0);
        json!({ "p50": at(50), "p99": at(99), "worst": at(100) })
    };
    let row = |(subject, kind, row): &(String, &str, Row)| {
        json!({
            "channel": subject, "fault": kind, "faults": row.faults, "spans": row.spans,
            "spans_under_one_law": row.plain, "above": row.above,
            "worst_against_law": (row.worst * 1000.0).round() / 1000.0,
            "pause_ms": ms(&row.pauses_us), "silence_ms": ms(&row.silences_us),
        })
    };
    let parts: Vec<Value> = parts
        .iter()
        .map(|part| {
            json!({
                "part": part.name, "faults": part.faults, "seconds": part.took.as_secs(),
                "arrivals": part.arrivals, "above": part.above(), "saved": part.saved, "lost": part.lost,
                "repeated": part.repeated, "stalled": part.stalled, "unfinished": part.unfinished, "shown_to_a_person": part.shown,
                "arrivals_without_permit": part.uncovered, "sent_while_redis_was_60_s_off": part.while_halted,
                "notes": part.notes, "rows": part.rows.iter().map(row).collect::<Vec<_>>(),
            })
        })
        .collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    json!({ "command": "cargo bench --bench faults", "nodes": 3, "cores": cores, "seed": plan.seed, "parts": parts })
}
