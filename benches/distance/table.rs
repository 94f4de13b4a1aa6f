//! The results for people: a line for each cell, and a table in Markdown.

use std::fmt::Write;

use playground::rule::TestAlgorithm;

use crate::cell::{PACES, WAYS};
use crate::run::Measured;

pub fn line(one: &Measured) -> String {
    format!(
        "{:<15} {:<7} nodes {:>2} {:<7} {:>5} sends, share {:>6.2} %, to near {:>6.2} %, worst {:.3}, \
         permits unused {}",
        one.algorithm,
        one.rate,
        one.nodes,
        one.way,
        one.sends,
        one.share * 100.0,
        one.to_near * 100.0,
        one.worst,
        one.lapsed
    )
}

/// A row for each algorithm, rate and number of nodes, a column for each way.
pub fn markdown(all: &[Measured]) -> String {
    let mut table = String::from("| algorithm | rate | nodes |");
    let mut rule = String::from("| --- | --- | ---: |");
    for way in WAYS {
        let _ = write!(table, " {} |", way.name);
        rule += " ---: |";
    }
    let _ = write!(table, "\n{rule}\n");
    for algorithm in TestAlgorithm::ALL {
        for pace in PACES {
            let of = |way: &str| {
                all.iter().find(|one| {
                    (one.algorithm, one.rate, one.nodes, one.way)
                        == (algorithm.name(), pace.name, pace.nodes, way)
                })
            };
            if of(WAYS[0].name).is_none() {
                continue;
            }
            let _ = write!(table, "| `{}` | {} | {} |", algorithm.name(), pace.name, pace.nodes);
            for way in WAYS {
                let _ = match of(way.name) {
                    None => write!(table, " – |"),
                    // The near bank's share of its limit; the other banks' share of the near bank's.
                    Some(one) => {
                        let share = if way == WAYS[0] { one.share } else { one.to_near };
                        write!(table, " {:.1} %, {:.3}, {} |", share * 100.0, one.worst, one.lapsed)
                    }
                };
            }
            table.push('\n');
        }
    }
    table
}
