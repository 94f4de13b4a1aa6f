//! Formats a proof, for people and for programs.
//!
//! The module proves nothing itself.

mod sum;

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::{LimitVerdict, Proved};
use crate::limiter::Rule;
use crate::prove::{CountedSpans, Measure, Period, RulePeriod, SpanCount, Why, time};
use crate::refund::text::{counted, shown};
use crate::store::Offence;
pub use sum::lines_and_sum;

fn span(us: u64) -> String {
    format!("{:?}", Duration::from_micros(us))
}

fn length(period: Period) -> String {
    span(u64::try_from(period.to_us - period.from_us).unwrap_or(0))
}

fn from_to(period: Period) -> String {
    format!("{} to {}", time(period.from_us), time(period.to_us))
}

/// The share of the permits that the rule allows in the counted time; `None` if it allows none.
fn share(proved: &Proved) -> Option<f64> {
    let findings = &proved.findings;
    (findings.most > 0).then(|| (findings.refunds + findings.others) as f64 / findings.most as f64)
}

/// The share in words, and why it is above 100 %.
fn share_words(proved: &Proved) -> Option<String> {
    let share = share(proved)?;
    let (findings, changed) = (&proved.findings, proved.history.within(proved.scope.counted).count() > 1);
    let why = match proved.verdict() {
        _ if share <= 1.0 => "",
        LimitVerdict::Broken => "; more than it allows",
        _ if changed => "; near a change of rule the looser rule counts",
        LimitVerdict::Kept | LimitVerdict::Unproven => "; yet no span had more than the rule allows",
    };
    let spent = findings.refunds + findings.others;
    let most = counted(findings.most, "permit");
    Some(format!(
        "{:.1} %: {spent} of the {most} that the rule allows in the counted time{why}",
        share * 100.0
    ))
}

/// The time whose permits are counted, where that is not the period itself.
fn counted_words(proved: &Proved) -> Option<String> {
    let Period { from_us, to_us } = proved.scope.counted;
    let seconds = (to_us - from_us) as f64 / 1e6;
    (proved.scope.counted != proved.scope.provable).then(|| {
        format!("whole windows that touch the period, {seconds} s from {} to {}", time(from_us), time(to_us))
    })
}

pub fn text(period: Period, all: &[Proved]) -> String {
    let mut page = format!("From {}\n", from_to(period));
    for proved in all {
        let _ = writeln!(page, "\nLimit {}\n", shown(&proved.limit));
        for (label, line) in lines(proved) {
            let _ = writeln!(page, "  {label:<15} {}", shown(&line));
        }
        let _ = writeln!(page, "\n  {:<15} {}", proved.verdict().as_str(), sentence(proved));
    }
    page
}

/// The findings about one limit: each with its label.
pub fn lines(proved: &Proved) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let rule_periods: Vec<&RulePeriod> =
        proved.history.within(proved.period).filter(|rule_period| rule_period.since_us != i64::MIN).collect();
    for (nth, rule_period) in rule_periods.iter().enumerate() {
        let label = if nth == 0 { "rule" } else { "then" };
        lines.push((
            label,
            format!("{}, since {} ({})", words(rule_period), time(rule_period.since_us), rule_period.node),
        ));
    }
    if !proved.shares.is_empty() {
        let shares = counted(proved.shares.len() as u64, "share");
        lines.push(("shares", format!("{shares}, whose permits count together")));
    }
    let findings = &proved.findings;
    if !proved.scope.provable.is_empty() {
        let (refunds, others) = (findings.refunds, findings.others);
        lines.extend(counted_words(proved).map(|words| ("counted", words)));
        lines.push(("permits spent", format!("{refunds} for refunds, {others} for other services")));
        lines.push(("spans checked", findings.spans.to_string()));
        lines.extend(findings.worst.as_ref().map(|worst| ("worst span", described(worst))));
        lines.extend(findings.closest.as_ref().map(|closest| ("closest slots", described(closest))));
        lines.extend(share_words(proved).map(|words| ("share used", words)));
        let unused = proved.unused();
        lines.push((
            "journal",
            format!(
                "{} under these permits; {} without a first byte",
                counted(proved.journal_check.under_permits(), "first byte"),
                counted(unused, "permit")
            ),
        ));
        lines.extend(proved.journal_since.map(|since| {
            let forgotten = "what happened before is forgotten ([recovery] keep_attempts)";
            ("journal", format!("{forgotten}, and was not compared: whole since {since}"))
        }));
    }
    more(&mut lines, "above", &findings.broken);
    let journal_check = &proved.journal_check;
    offence(&mut lines, journal_check.without, "had no permit of this limit");
    offence(&mut lines, journal_check.unknown, "had a permit that the ledger does not have for them");
    offence(&mut lines, journal_check.again, "had a permit that was used before");
    more(&mut lines, "in doubt", &findings.doubtful);
    for part in &proved.scope.unproven {
        lines.push(("unproven", format!("{}: {}", from_to(part.period), why(&part.why))));
    }
    lines
}

fn words(rule_period: &RulePeriod) -> String {
    rule_period.rule.as_ref().map_or_else(|| format!("`{}`", rule_period.text), Rule::describe)
}

fn described(count: &SpanCount) -> String {
    let SpanCount { measure, span: period, actual, allowed } = *count;
    match measure {
        Measure::Permits => {
            format!("{actual} of {allowed}, in the {} from {}", length(period), time(period.from_us))
        }
        Measure::Number => format!(
            "a permit with the number {actual} of {allowed}, in the {} from {}",
            length(period),
            time(period.from_us)
        ),
        Measure::Gap => format!(
            "{} apart, at least {} required, from {}",
            span(actual),
            span(allowed),
            time(period.from_us)
        ),
    }
}

fn more(lines: &mut Vec<(&'static str, String)>, label: &'static str, counted: &CountedSpans) {
    for count in &counted.first {
        lines.push((label, described(count)));
    }
    let left = counted.count - counted.first.len() as u64;
    if left > 0 {
        lines.push((label, format!("and {left} more")));
    }
}

fn offence(lines: &mut Vec<(&'static str, String)>, offence: Offence, what: &str) {
    if let Offence { count, refund: Some(refund) } = offence
        && count > 0
    {
        lines.push((
            "journal",
            format!("{} {what}; see `refundd review show {refund}`", counted(count, "first byte")),
        ));
    }
}

fn why(why: &Why) -> String {
    match why {
        Why::NoRule => "no node had written down a rule yet".to_owned(),
        Why::ForeignRule(text) => format!("its rule, `{text}`, is of another version of refundd"),
        Why::Pruned => {
            "no permit is kept from then; they may have been pruned ([recovery] keep_permits)".to_owned()
        }
        Why::NotReplayed => {
            "this Postgres is a standby that may lack commits of then; prove it on the primary".to_owned()
        }
    }
}

/// The verdict as a sentence.
pub fn sentence(proved: &Proved) -> String {
    let findings = &proved.findings;
    match proved.verdict() {
        LimitVerdict::Kept if proved.scope.unproven.is_empty() => {
            "no span had more than its rule allows".to_owned()
        }
        LimitVerdict::Kept => "no span had more than its rule allows, wherever it could be proven".to_owned(),
        LimitVerdict::Broken if findings.broken.count > 0 => {
            format!("above what the rule allows, in {}", counted(findings.broken.count, "span"))
        }
        LimitVerdict::Broken => "the journal has first bytes without a valid permit of this limit".to_owned(),
        LimitVerdict::Unproven if proved.scope.provable.is_empty() => {
            "nothing can be said of this period".to_owned()
        }
        LimitVerdict::Unproven => format!(
            "{} had more than the known rule allows, next to a time whose rule is not known",
            counted(findings.doubtful.count, "span")
        ),
    }
}

pub fn json(period: Period, all: &[Proved]) -> Value {
    let verdict = [LimitVerdict::Broken, LimitVerdict::Unproven]
        .into_iter()
        .find(|verdict| all.iter().any(|proved| proved.verdict() == *verdict))
        .unwrap_or(LimitVerdict::Kept);
    json!({
        "from": time(period.from_us),
        "to": time(period.to_us),
        "verdict": verdict.as_str(),
        "held_in_part": all.iter().filter(|proved| proved.is_held_in_part()).count(),
        "limits": all.iter().map(one).collect::<Vec<_>>(),
    })
}

fn one(proved: &Proved) -> Value {
    let Proved { limit, shares, period, history, scope, findings, journal_check, journal_since } = proved;
    let rules = history.within(*period).filter(|rule_period| rule_period.since_us != i64::MIN);
    let rules = rules.map(|rule_period| {
        json!({ "rule": words(rule_period), "text": rule_period.text, "since": time(rule_period.since_us), "node": rule_period.node })
    });
    let unproven = scope.unproven.iter().map(|part| {
        json!({ "from": time(part.period.from_us), "to": time(part.period.to_us), "why": why(&part.why) })
    });
    let provable = scope.provable;
    json!({
        "limit": limit,
        "shares": shares,
        "verdict": proved.verdict().as_str(),
        "rules": rules.collect::<Vec<_>>(),
        "proven": (!provable.is_empty()).then(|| json!({ "from": time(provable.from_us), "to": time(provable.to_us) })),
        "unproven": unproven.collect::<Vec<_>>(),
        "counted": (!provable.is_empty()).then(|| json!({ "from": time(scope.counted.from_us), "to": time(scope.counted.to_us) })),
        "permits": { "refunds": findings.refunds, "other_services": findings.others },
        "spans_checked": findings.spans,
        "worst_span": findings.worst.as_ref().map(span_json),
        "closest_slots": findings.closest.as_ref().map(span_json),
        "permits_allowed": findings.most,
        "share_used": share(proved),
        "above": spans_json(&findings.broken),
        "in_doubt": spans_json(&findings.doubtful),
        "journal": {
            "whole_since": journal_since,
            "first_bytes": journal_check.first_bytes,
            "unused_permits": proved.unused(),
            "without_permit": offended(journal_check.without),
            "unknown_permit": offended(journal_check.unknown),
            "permit_used_again": offended(journal_check.again),
        },
    })
}

fn spans_json(counted: &CountedSpans) -> Value {
    json!({ "count": counted.count, "first": counted.first.iter().map(span_json).collect::<Vec<_>>() })
}

fn offended(offence: Offence) -> Value {
    json!({ "count": offence.count, "refund": offence.refund })
}

fn span_json(count: &SpanCount) -> Value {
    let SpanCount { measure, span, actual, allowed } = *count;
    let measure = match measure {
        Measure::Permits => "permits",
        Measure::Number => "number",
        Measure::Gap => "gap_us",
    };
    json!({ "from": time(span.from_us), "to": time(span.to_us), "measure": measure, "found": actual, "allowed": allowed })
}
