//! The dashboard of config/grafana.json asks for metrics and labels that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cli::text;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The expressions of all panels, each with the title of its panel.
fn expressions() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(Path::new(ROOT).join("config/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut all = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            all.push((title.to_owned(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    assert!(all.len() > 30, "{}", all.len());
    all
}

/// The words of an expression.
fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The labels of each metric, as the table of docs/metrics.md has them. A histogram has `le`, too.
fn labels() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/metrics.md")).unwrap();
    let mut labels = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `refundd_")) {
        let cells: Vec<&str> = row.split('|').collect();
        let quoted = |cell: &str| -> BTreeSet<String> {
            cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        let is_histogram = cells[3].trim_start().starts_with("histogram");
        for metric in quoted(cells[1]) {
            let mut of = quoted(cells[2]);
            of.extend(["job", "instance"].map(str::to_owned));
            if is_histogram {
                of.insert("le".to_owned());
                labels.insert(format!("{metric}_bucket"), of);
            } else {
                labels.insert(metric, of);
            }
        }
    }
    labels
}

#[test]
fn every_metric_of_the_docs_is_registered() {
    let code = ["node.rs", "node/bank.rs", "node/traffic.rs", "service.rs"]
        .map(|file| std::fs::read_to_string(Path::new(ROOT).join("src/metrics").join(file)).unwrap())
        .concat();
    for metric in labels().keys() {
        let name = metric.trim_start_matches("refundd_").trim_end_matches("_bucket");
        let name = name.trim_end_matches("_total").trim_end_matches("_seconds");
        assert!(code.contains(&format!("\"{name}\"")), "no metric is registered as `{name}`: {metric}");
    }
}

#[test]
fn every_panel_of_the_dashboard_asks_for_metrics_and_labels_of_the_docs() {
    let labels = labels();
    for (title, expression) in expressions() {
        let mut there = BTreeSet::from(["job", "instance"].map(str::to_owned));
        for metric in words(&expression).filter(|word| word.starts_with("refundd_")) {
            let of = labels.get(metric).unwrap_or_else(|| panic!("{title}: there is no metric {metric}"));
            there.extend(of.iter().cloned());
        }
        let grouped =
            expression.split(" by (").skip(1).flat_map(|rest| words(rest.split_once(')').unwrap().0));
        let matched = expression
            .split('{')
            .skip(1)
            .flat_map(|rest| rest.split_once('}').unwrap().0.split(','))
            .map(|matcher| words(matcher).next().unwrap());
        for label in grouped.chain(matched) {
            assert!(there.contains(label), "{title}: no metric of {expression} has the label {label}");
        }
    }
}

/// `refundd_channel_paused` is three causes of `refundd_channel_suspended` in one.
#[test]
fn the_dashboard_shows_everything_that_suspends_a_channel() {
    for metric in ["refundd_channel_suspended", "refundd_channel_cooling"] {
        let shows_all = |(_, expression): &(String, String)| {
            expression.contains(&format!("{metric}{{channel=~\"$channel\"}}"))
        };
        assert!(expressions().iter().any(shows_all), "no panel shows {metric} for every cause");
    }
}

/// A handed-back attempt sent nothing.
#[test]
fn the_dashboard_counts_no_attempt_that_was_handed_back_as_a_send() {
    for (title, expression) in expressions() {
        let counts = expression.contains("refundd_attempts_total");
        assert!(!counts || expression.contains("outcome!=\"handed_back\""), "{title}: {expression}");
    }
}

/// Prometheus understands each expression. Its program is too large for every run: `make alarms` gets it.
#[test]
fn prometheus_understands_the_dashboard() {
    let Some(program) = std::env::var_os("PROMTOOL") else { return };
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    let all = expressions();
    for (nth, (_, expression)) in all.iter().enumerate() {
        let expression = expression.replace("$channel", ".*").replace("$job", "refundd");
        writeln!(rules, "      - record: panel:{nth}\n        expr: '{expression}'").unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rules).unwrap();
    let output = Command::new(program).args(["check", "rules"]).arg(file.path()).output().unwrap();
    let said = text(&output);
    assert!(output.status.success() && said.contains(&format!("{} rules found", all.len())), "{said}");
}
