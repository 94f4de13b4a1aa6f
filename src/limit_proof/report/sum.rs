//! Many proofs in short, for people.

use std::collections::HashSet;
use std::fmt::Write;

use super::super::{LimitVerdict, Proved};
use super::{from_to, sentence, why};
use crate::prove::Period;
use crate::refund::text::{counted, shown};

/// How many unproven parts of one limit are named.
const MOST_NAMED: usize = 3;

/// One line for each limit, and one for all: how many held, and how many permits were spent.
pub fn lines_and_sum(period: Period, all: &[Proved], unlimited: &[&str]) -> String {
    let mut page = format!("From {}\n\n", from_to(period));
    let _ = writeln!(page, "{:<10} {:<24} {:>10} {:>11}", "VERDICT", "LIMIT", "PERMITS", "FIRST BYTES");
    let shares: HashSet<&str> = all.iter().flat_map(|proved| &proved.shares).map(String::as_str).collect();
    let mut permits = 0;
    for proved in all {
        let (findings, journal) = (&proved.findings, &proved.journal_check);
        let spent = findings.refunds + findings.others;
        // The limit of a share has the share's permits, too.
        permits += if shares.contains(proved.limit.as_str()) { 0 } else { spent };
        let (verdict, limit) = (proved.verdict().as_str(), shown(&proved.limit));
        let _ = write!(page, "{verdict:<10} {limit:<24} {spent:>10} {:>11}", journal.under_permits());
        let is_kept = proved.verdict() == LimitVerdict::Kept && !proved.is_held_in_part();
        let _ = if is_kept {
            writeln!(page)
        } else {
            writeln!(page, "  {}{}", sentence(proved), unproven(proved))
        };
    }
    let in_part = all.iter().filter(|proved| proved.is_held_in_part()).count();
    let has_gaps = all.iter().any(|proved| !proved.scope.unproven.is_empty());
    let count = |wanted: LimitVerdict| all.iter().filter(|proved| proved.verdict() == wanted).count();
    let _ = writeln!(
        page,
        "\n{}: {} held{}, {} broken, {} unproven; {} spent{}",
        counted(all.len() as u64, "limit"),
        count(LimitVerdict::Kept),
        if in_part > 0 { format!(" ({in_part} only in part)") } else { String::new() },
        count(LimitVerdict::Broken),
        count(LimitVerdict::Unproven),
        counted(permits, "permit"),
        if has_gaps { " in the proven time" } else { "" },
    );
    if !unlimited.is_empty() {
        let _ = writeln!(page, "Unlimited channels have nothing to prove: {}", shown(&unlimited.join(", ")));
    }
    page
}

/// The parts of the period of which nothing is proven. Empty if there are none.
fn unproven(proved: &Proved) -> String {
    let parts = &proved.scope.unproven;
    let mut named: Vec<String> = parts
        .iter()
        .take(MOST_NAMED)
        .map(|part| format!("{}: {}", from_to(part.period), shown(&why(&part.why))))
        .collect();
    let left = parts.len() - named.len();
    if left > 0 {
        named.push(format!("and {left} more"));
    }
    if named.is_empty() { String::new() } else { format!("; unproven {}", named.join("; ")) }
}
