//! The last minutes of a channel: its permits against each limit, and how its requests ended.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::super::chart::{Chart, Line, Series, bars};
use super::super::limit_bars::{LimitBars, MINUTES, most_permits};
use super::super::parts::{PerUnit, cell, clock, count, foreign, head, rounded, span, whole};
use super::super::watch::{LimitMinutes, Minutes, moment};
use super::spans::spans;
use crate::desk::channel::ChannelStatus;

/// The outcomes in the order in which they are drawn, from the bottom, with the name for people.
const OUTCOMES: [(&str, &str); 6] = [
    ("succeeded", "succeeded"),
    ("accepted", "accepted"),
    ("rejected", "rejected"),
    ("not_executed", "not executed"),
    ("unknown", "unknown"),
    ("review", "to review"),
];

pub(super) fn charts(minutes: &Minutes) -> Markup {
    html! {
        @for limit in &minutes.limits { @if let Some(chart) = permits(minutes, limit) { (chart) } }
        (answers(minutes))
    }
}

fn permits(minutes: &Minutes, of: &LimitMinutes) -> Option<Markup> {
    let (rule, name) = (&of.limit.rule, of.limit.name.as_str());
    let bars_of_limit = of.bars?;
    let LimitBars { from, until, seconds_per_bar: seconds } = bars_of_limit;
    let sum = |of_second: fn(&crate::store::PermitSecond) -> u64| {
        bars(of.permits.iter().map(|one| (one.second, of_second(one))), from, until, seconds)
    };
    let (refunds, others) = (sum(|one| one.refunds), sum(|one| one.others));
    let limit = most_permits(rule, seconds.unsigned_abs());
    let burst = rule.algorithm.burst().map(u64::from);
    let allowed = limit + burst.unwrap_or(0);
    let all = span(Duration::from_secs(bars_of_limit.seconds()));
    let one = if seconds == 1 { "second".to_owned() } else { format!("{seconds} s") };
    let both: Vec<u64> = refunds.iter().zip(&others).map(|(refunds, others)| refunds + others).collect();
    let (most, total) = (both.iter().max().copied().unwrap_or(0), both.iter().sum::<u64>());
    let of_each = |sum: u64| sum as f64 / both.len().max(1) as f64;
    let mean = of_each(total);
    let mean_allowed = of_each(most_permits(rule, bars_of_limit.seconds()) + burst.unwrap_or(0));
    let label = format!(
        "Limit {name}: {} in the last {all}; at most {} of {} in one {one}, {} on average",
        count(total, "permit"),
        whole(most),
        whole(allowed),
        rounded(mean)
    );
    let mut series = vec![Series { name: "permits for refunds".to_owned(), class: "refunds", bars: refunds }];
    if others.iter().any(|number| *number > 0) {
        series.push(Series { name: "permits for other services".to_owned(), class: "others", bars: others });
    }
    let name_of_limit = format!("limit: {}", rule.describe());
    let mut lines = vec![Line { name: name_of_limit, class: "limit", at: limit as f64 }];
    if let Some(burst) = burst {
        let name_with_burst = format!("limit with its burst of {}", whole(burst));
        lines.push(Line { name: name_with_burst, class: "burst", at: allowed as f64 });
    }
    let unit = format!("permits in a {one}");
    let spans = spans(minutes, from, until);
    let chart = Chart { label, unit, from, seconds_per_bar: seconds, series, lines, spans };
    Some(html! {
        h3 { "Permits of limit " (name) }
        p {
            strong { (whole(most)) " of " (whole(allowed)) } " permits in the fullest " (one) " of the last " (all) "; "
            strong { (rounded(mean)) " of " (rounded(mean_allowed)) } " on average, which is " (percent(mean, mean_allowed)) "."
        }
        (chart.draw())
        (table(&chart, allowed))
    })
}

fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", part / whole * 100.0) } else { "0 %".to_owned() }
}

/// The same minute by minute, for people who do not see the chart.
fn table(chart: &Chart, allowed: u64) -> Markup {
    let per_minute = usize::try_from(60 / chart.seconds_per_bar.min(60)).unwrap_or(1).max(1);
    let all: Vec<u64> = (0..chart.series.first().map_or(0, |series| series.bars.len()))
        .map(|nth| chart.series.iter().map(|series| series.bars[nth]).sum())
        .collect();
    let seconds = i64::try_from(per_minute).unwrap_or(1) * chart.seconds_per_bar;
    html! {
        details {
            summary { "The numbers, minute by minute" }
            table {
                thead { tr { th scope="col" { "From" } th scope="col" { "Permits" } th scope="col" { "The fullest " (chart.unit.trim_start_matches("permits in a ")) } } }
                tbody {
                    @for (nth, bars) in all.chunks(per_minute).enumerate() {
                        tr {
                            th scope="row" { (clock(moment(chart.from + i64::try_from(nth).unwrap_or(0) * seconds))) }
                            td { (whole(bars.iter().sum())) }
                            td { (whole(bars.iter().max().copied().unwrap_or(0))) " of " (whole(allowed)) }
                        }
                    }
                }
            }
        }
    }
}

fn answers(minutes: &Minutes) -> Markup {
    let (from, until) = (minutes.until - MINUTES * 60, minutes.until);
    let total: u64 = minutes.answers.iter().map(|one| one.count).sum();
    let mut series = Vec::new();
    for (outcome, name) in OUTCOMES {
        let of = minutes.answers.iter().filter(|one| one.outcome == outcome);
        let bars = bars(of.map(|one| (one.second, one.count)), from, until, 1);
        let sum: u64 = bars.iter().sum();
        if sum > 0 {
            series.push(Series {
                name: format!("{name}: {}", whole(sum)),
                class: outcome_class(outcome),
                bars,
            });
        }
    }
    let ways = ways(minutes);
    let label = format!(
        "Outcomes of {} in the last {MINUTES} minutes; the table below has them",
        count(total, "request")
    );
    let chart = Chart {
        label,
        unit: "requests that ended in a second".to_owned(),
        from,
        seconds_per_bar: 1,
        series,
        lines: Vec::new(),
        spans: spans(minutes, from, until),
    };
    html! {
        h3 { "Outcomes of requests" }
        @if total == 0 { p.empty { "No request ended in the last " (MINUTES) " minutes." } }
        @else {
            (chart.draw())
            table.stack role="table" {
                (head("How requests ended, the most frequent way first", &["Outcome", "Request", "Answer", "Number", "Share"]))
                tbody role="rowgroup" {
                    @for ((outcome, kind, answer), number) in &ways {
                        tr role="row" {
                            th scope="row" role="rowheader" { span class={ "key " (outcome_class(outcome)) } {} (outcome_name(outcome)) }
                            (cell("Request", &html! { (kind) }))
                            (cell("Answer", &html! { (foreign(answer)) }))
                            (cell("Number", &html! { (count(*number, "request")) }))
                            (cell("Share", &html! { (percent(*number as f64, total as f64)) }))
                        }
                    }
                }
            }
        }
    }
}

type Way = (String, String, String);

/// How many requests ended in each way: outcome, kind of request, answer. The most frequent way comes first.
fn ways(minutes: &Minutes) -> Vec<(Way, u64)> {
    let mut ways: BTreeMap<Way, u64> = BTreeMap::new();
    for one in &minutes.answers {
        let answer = match (one.status, one.code.as_deref()) {
            (Some(status), Some(code)) => format!("{status}, {code}"),
            (Some(status), None) => status.to_string(),
            (None, Some(code)) => code.to_owned(),
            (None, None) => "none".to_owned(),
        };
        *ways.entry((one.outcome.clone(), one.kind.clone(), answer)).or_default() += one.count;
    }
    let mut ways: Vec<(Way, u64)> = ways.into_iter().collect();
    ways.sort_by_key(|way| std::cmp::Reverse(way.1));
    ways
}

fn outcome_name(outcome: &str) -> &str {
    OUTCOMES.iter().find(|(known, _)| *known == outcome).map_or(outcome, |(_, name)| name)
}

fn outcome_class(outcome: &str) -> &'static str {
    OUTCOMES.iter().find(|(known, _)| *known == outcome).map_or("other", |(known, _)| known)
}

/// The limits, each with what is used of its newest window.
pub(super) fn rules(status: &ChannelStatus, minutes: &Minutes) -> Markup {
    html! {
        @match &status.limits {
            None => p { "This node does not run the channel; a node that runs it knows its limits." },
            Some(limits) if limits.is_empty() => p { "The channel is unlimited." },
            Some(limits) => ul.rules {
                @for limit in limits {
                    @let unit = PerUnit::of(limit.permits_per_second);
                    li {
                        strong { (limit.limit) } ": " (limit.rule) " (" code { (limit.algorithm) } "), which is "
                        (unit.rate(limit.permits_per_second)) " a " (unit.name) "."
                        @if let Some(used) = used(&limit.limit, minutes) { " " (used) }
                        @if let Some(stricter) = &limit.stricter_rule {
                            " Another node's file is stricter (" (foreign(stricter)) "), and that rule counts."
                        }
                    }
                }
            },
        }
        p { a href={ "/proof?channel=" (status.channel) "&from=15m" } { "Check every permit of the last 15 minutes against these limits" } }
    }
}

/// What is used of the window that is open now.
fn used(limit: &str, minutes: &Minutes) -> Option<String> {
    let of = minutes.limits.iter().find(|one| one.limit.name.as_str() == limit)?;
    let (opens_us, permits) = of.window?;
    let per = i64::try_from(of.limit.rule.per.as_secs()).unwrap_or(i64::MAX);
    let is_long = per > 60;
    let is_open = opens_us / 1_000_000 + per > minutes.until;
    is_long.then(|| {
        let used = if is_open { permits } else { 0 };
        format!(
            "Used of the window that is open now: {} of {}.",
            whole(used.unsigned_abs().into()),
            whole(of.limit.rule.permits.into())
        )
    })
}
