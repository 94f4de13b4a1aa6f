//! Scrapes nodes as Prometheus does, and evaluates the rules of config/alarms.yml on the samples.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::SocketAddr;
use std::process::Command;

use super::expression::{EVERY, Labels, Scrape, Series, Vector, evaluate, samples};
use super::rules::{Rule, rules};
use crate::harness::http::get;
use crate::harness::{TestNode, until};

/// The nodes that are scraped, and all samples so far.
pub struct Watch {
    nodes: Vec<(String, SocketAddr)>,
    history: Vec<Scrape>,
    rules: Vec<Rule>,
}

impl Watch {
    /// A rule that fires must hold in so many scrapes, one after the other: a state that comes and goes would begin
    /// `for` anew each time.
    const STEADY: usize = 10;

    pub fn on<'n>(nodes: impl IntoIterator<Item = &'n TestNode>) -> Watch {
        Watch::at(nodes.into_iter().map(|node| node.daemon.address()))
    }

    pub fn at(addresses: impl IntoIterator<Item = SocketAddr>) -> Watch {
        let nodes = ["a", "b", "c"].map(str::to_owned).into_iter().zip(addresses).collect();
        Watch { nodes, history: Vec::new(), rules: rules() }
    }

    /// These scrapes, and no node.
    pub fn of(history: Vec<Scrape>) -> Watch {
        Watch { nodes: Vec::new(), history, rules: rules() }
    }

    /// Scrapes each node once. A node that does not answer has only `up`.
    async fn scrape(&mut self) {
        let mut scrape = Scrape::new();
        for (name, address) in &self.nodes {
            let own = [("job", "refundd"), ("instance", name)];
            let own: Labels = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let page = get(*address, "/metrics").await.filter(|(status, _)| *status == 200);
            let up = if page.is_some() { 1.0 } else { 0.0 };
            scrape.extend(page.map(|(_, page)| samples(&page, &own)).unwrap_or_default());
            scrape.insert(("up".to_owned(), own), up);
        }
        self.history.push(scrape);
    }

    fn finds(&self, rule: &Rule) -> Vector {
        evaluate(&rule.expression, &self.history)
    }

    /// What the rule finds now. Fails if there is no such rule.
    pub fn holds(&self, alert: &str) -> bool {
        let rule = self.rules.iter().find(|rule| rule.alert == alert);
        !self.finds(rule.unwrap_or_else(|| panic!("no rule is called {alert}"))).is_empty()
    }

    /// Every rule that holds now.
    fn firing(&self) -> BTreeSet<&str> {
        self.rules
            .iter()
            .filter(|rule| !self.finds(rule).is_empty())
            .map(|rule| rule.alert.as_str())
            .collect()
    }

    /// Waits until no rule holds, as it must be before a fault begins and after its end.
    pub async fn is_quiet(&mut self) {
        let mut firing = String::new();
        until("no alarm fires", async || {
            self.scrape().await;
            firing = format!("{:?}", self.firing());
            if !self.firing().is_empty() {
                println!("firing: {firing}");
            }
            self.firing().is_empty()
        })
        .await;
        self.compare_with_promtool();
    }

    /// Waits until the rule holds, and goes on holding.
    pub async fn fires(&mut self, alert: &str) {
        until(&format!("{alert} fires"), async || {
            self.scrape().await;
            self.holds(alert)
        })
        .await;
        for _ in 0..Self::STEADY {
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
            self.scrape().await;
            let last = self.history.last();
            assert!(self.holds(alert), "{alert} comes and goes: {:?} of {last:#?}", self.firing());
        }
        println!("firing: {:?}", self.firing());
        self.compare_with_promtool();
    }

    /// Whether the rule holds in one more scrape.
    pub async fn holds_at_once(&mut self, alert: &str) -> bool {
        self.scrape().await;
        self.holds(alert)
    }

    /// Waits until the rule no longer holds.
    pub async fn ends(&mut self, alert: &str) {
        until(&format!("{alert} ends"), async || {
            self.scrape().await;
            !self.holds(alert)
        })
        .await;
    }

    /// Compares what each rule finds with what Prometheus finds in the same samples, where `PROMTOOL` names its program.
    pub fn compare_with_promtool(&self) {
        let Some(program) = std::env::var_os("PROMTOOL") else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("test.yml");
        std::fs::write(&file, self.as_test_of_promtool()).unwrap();
        let output = Command::new(program).args(["test", "rules"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn as_test_of_promtool(&self) -> String {
        let mut text =
            format!("evaluation_interval: {EVERY}s\ntests:\n  - interval: {EVERY}s\n    input_series:\n");
        let all: BTreeSet<&Series> = self.history.iter().flat_map(|scrape| scrape.keys()).collect();
        for series in all {
            // A series that a scrape lacks is over at once, and not after the five minutes of a lost sample.
            let mut was = false;
            let mut value = |scrape: &Scrape| {
                let value = scrape.get(series);
                let over = if std::mem::replace(&mut was, value.is_some()) { "stale" } else { "_" };
                value.map_or_else(|| over.to_owned(), f64::to_string)
            };
            let values: Vec<String> = self.history.iter().map(&mut value).collect();
            writeln!(text, "      - series: '{}'\n        values: '{}'", shown(series), values.join(" "))
                .unwrap();
        }
        let at = (self.history.len() - 1) * EVERY;
        text.push_str("    promql_expr_test:\n");
        for rule in &self.rules {
            // Only where a rule holds is compared: Prometheus extrapolates an increase, and so finds other values.
            let by = "job, instance, channel, by, purpose, status, result, reason";
            writeln!(text, "      - expr: group by ({by}) ({})\n        eval_time: {at}s", rule.expression)
                .unwrap();
            text.push_str("        exp_samples:\n");
            for labels in self.finds(rule).into_keys() {
                let series = shown(&(String::new(), labels));
                writeln!(text, "          - labels: '{series}'\n            value: 1").unwrap();
            }
        }
        text
    }
}

fn shown((name, labels): &(String, BTreeMap<String, String>)) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{name}{{{}}}", labels.join(","))
}
