//! Writes `docs/bench.md`, and prints the same tables with the changes to the committed figures.

use std::fmt::Write;

use anyhow::Context;

use crate::Group;
use crate::figure::{Figure, Reach, short};
use crate::record::{Measured, Record, root};

const OPENING: &str = "\
# Bench

Written by `make bench`, `make bench-scale` and `make bench-peers`: real nodes, private servers with `fsync` on and the pretend bank, all on
one machine. Ratios count; absolute figures belong to the machine they were taken on. Each figure is the median over the
rounds, with the least and the most beside it. The same for machines: [bench.json](bench.json). What was promised is
judged elsewhere: [figures.md](figures.md), [limits.md](limits.md), [promises.md](promises.md).
";

pub fn write(record: &Record) -> anyhow::Result<()> {
    let mut page = OPENING.to_owned();
    for group in Group::ALL {
        if let Some(measured) = record.of(group) {
            let table = table(measured, |_| String::new(), "");
            let _ = write!(page, "\n## {}\n\n{}\n{table}", group.title(), summary(measured));
        }
    }
    std::fs::write(root().join("docs/bench.md"), page).context("failed to write docs/bench.md")
}

/// The table of one group, compared with the figures before.
pub fn part(group: Group, record: &Record, before: Option<&Record>) -> String {
    let Some(measured) = record.of(group) else { return String::new() };
    let before = before.and_then(|before| before.of(group));
    let was = |figure: &Figure| before.and_then(|before| before.figure(&figure.what));
    let compared = |figure: &Figure| format!(" {} |", change(figure, was(figure)));
    let mut part = table(measured, compared, " to the last committed |");
    for figure in &measured.figures {
        if was(figure).is_some_and(|was| figure.is_worse_than(was)) {
            let _ = writeln!(part, "WORSE: {}", figure.what);
        }
        if figure.reaches() == Some(false) {
            let _ = writeln!(part, "NOT REACHED: {}", figure.what);
        }
    }
    part
}

fn summary(measured: &Measured) -> String {
    let rounds =
        if measured.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", measured.rounds) };
    let mut summary = format!("{rounds}. {}.\n", measured.machine);
    if let Some(remark) = &measured.remark {
        summary += remark;
        summary.push('\n');
    }
    summary
}

/// The table of a group. `more` gives the cells of an extra column, `head` its title.
fn table(measured: &Measured, more: impl Fn(&Figure) -> String, head: &str) -> String {
    let rule = if head.is_empty() { "" } else { " ---: |" };
    let mut table = format!(
        "| what | median | least – most | unit | reach |{head}\n| --- | ---: | ---: | --- | --- |{rule}\n"
    );
    for figure in &measured.figures {
        let _ = writeln!(
            table,
            "| {} | {} | {} – {} | {} | {} |{}",
            figure.what,
            short(figure.median()),
            short(figure.least()),
            short(figure.most()),
            figure.unit,
            reach(figure),
            more(figure),
        );
    }
    table
}

fn reach(figure: &Figure) -> String {
    let bound = match figure.reach {
        None => return String::new(),
        Some(Reach::AtLeast(bound)) => format!("≥ {}", short(bound)),
        Some(Reach::AtMost(bound)) => format!("≤ {}", short(bound)),
    };
    if figure.reaches() == Some(true) { bound } else { format!("{bound}: **not reached**") }
}

fn change(figure: &Figure, before: Option<&Figure>) -> String {
    let Some(before) = before else { return "–".to_owned() };
    let mark = if figure.is_worse_than(before) { " **worse**" } else { "" };
    format!("× {:.2}{mark}", figure.median() / before.median())
}
