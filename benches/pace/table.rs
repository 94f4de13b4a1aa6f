//! The results for people: a line for each case, and a table in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::judge::Measured;

/// One case in one line.
pub fn line(one: &Measured) -> String {
    let permits = one.case.permits;
    let mut line = format!(
        "{}: {} sends, worst rolling second {} of {permits}, worst aligned second {} of {permits}, share {:.2} %, gaps p1 {} p50 {} p99 {} ms",
        one.case,
        one.sends,
        one.worst_rolling_span,
        one.worst_aligned_window,
        one.share * 100.0,
        ms(one.gap_ms.p1),
        ms(one.gap_ms.p50),
        ms(one.gap_ms.p99),
    );
    if let Some(off) = one.off_spacing_p99_ms {
        let _ = write!(line, ", |gap - spacing| p99 {} ms", ms(off));
    }
    if let Some(inside) = &one.inside {
        let _ = write!(
            line,
            ", {:.2} Redis calls a refund (takes: {}), permits unused: {}, lost {}",
            inside.redis_calls_a_refund,
            counts(&inside.takes),
            counts(&inside.permits_unused),
            inside.lost + inside.would_repeat,
        );
    }
    let late = one.bank_late_ms;
    let _ = write!(
        line,
        ", repeated {}; the bank's dates are late by p50 {} p99 {} worst {} ms",
        one.repeated,
        ms(late.p50),
        ms(late.p99),
        ms(late.worst)
    );
    for evidence in &one.evidence {
        let _ = write!(line, "\n  {evidence}");
    }
    line
}

pub fn markdown(all: &[Measured]) -> String {
    let mut table = String::from(
        "| algorithm | a second | nodes | sends | worst rolling span ÷ N | worst aligned window ÷ N | promise | share used | gap p1 / p50 / p99 ms | \\|gap − spacing\\| p99 ms | Redis calls a refund | permits unused | repeated | lost |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |\n",
    );
    for one in all {
        let ratio = |count: usize| format!("{:.3}", count as f64 / f64::from(one.case.permits));
        let promise =
            one.promise.map_or("none".to_owned(), |p| format!("{} {} ≤ {}", p.of, p.seen, p.at_most));
        let inside = one.inside.as_ref();
        let inside_or_dash =
            |tell: &dyn Fn(&super::judge::Inside) -> String| inside.map_or("–".to_owned(), tell);
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {promise} | {:.2} % | {} / {} / {} | {} | {} | {} | {} | {} |",
            one.case.kind.name(),
            one.case.permits,
            one.case.nodes,
            one.sends,
            ratio(one.worst_rolling_span),
            ratio(one.worst_aligned_window),
            one.share * 100.0,
            ms(one.gap_ms.p1),
            ms(one.gap_ms.p50),
            ms(one.gap_ms.p99),
            one.off_spacing_p99_ms.map_or("–".to_owned(), ms),
            inside_or_dash(&|i| format!("{:.2}", i.redis_calls_a_refund)),
            inside_or_dash(&|i| counts(&i.permits_unused)),
            one.repeated,
            inside_or_dash(&|i| (i.lost + i.would_repeat).to_string()),
        );
    }
    table
}

fn ms(value: f64) -> String {
    let digits = if value.abs() < 10.0 { 2 } else { 1 };
    format!("{value:.digits$}")
}

fn counts(by_name: &BTreeMap<String, u64>) -> String {
    if by_name.is_empty() {
        return "0".to_owned();
    }
    by_name.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}
