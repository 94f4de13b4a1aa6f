//! Evaluates the part of `PromQL` that config/alarms.yml uses, and refuses everything else.
//!
//! Prometheus itself is too large for every test run: its package has 19 MB and unpacks to 96 MB. `make alarms` gets its
//! `promtool` and compares each result with it.

use std::collections::{BTreeMap, BTreeSet};

pub type Labels = BTreeMap<String, String>;
/// The name and the labels of one series.
pub type Series = (String, Labels);
/// The samples of one moment.
pub type Scrape = BTreeMap<Series, f64>;
/// A result: labels without the name, and values.
pub type Vector = BTreeMap<Labels, f64>;

/// The seconds between two scrapes of a history.
pub const EVERY: usize = 15;

/// What an expression finds at the last of these scrapes.
pub fn evaluate(expression: &str, history: &[Scrape]) -> Vector {
    let mut parser = Parser { words: words(expression), at: 0, history };
    let found = parser.any_of();
    assert!(parser.at == parser.words.len(), "`{}` stands after {expression}", parser.peek());
    found
}

/// Names, numbers, texts in quotes, comparisons and single signs.
fn words(expression: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), expression.trim_start());
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let length = match rest.find(|c| !is_word(c)).unwrap_or(rest.len()) {
            0 if first == '"' => rest[1..].find('"').expect("the quotes end") + 2,
            0 if ["==", "!=", "=~", "!~", ">="].iter().any(|sign| rest.starts_with(sign)) => 2,
            0 => 1,
            length => length,
        };
        words.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    words
}

struct Parser<'h> {
    words: Vec<String>,
    at: usize,
    history: &'h [Scrape],
}

impl Parser<'_> {
    fn peek(&self) -> &str {
        self.words.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.words.get(self.at - 1).expect("the expression goes on").clone()
    }

    fn skip(&mut self, word: &str) -> bool {
        let is = self.peek() == word;
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, word: &str) {
        assert!(self.skip(word), "`{word}` is expected before `{}`", self.peek());
    }

    fn any_of(&mut self) -> Vector {
        let mut found = self.all_of();
        while self.skip("or") {
            for (labels, value) in self.all_of() {
                found.entry(labels).or_insert(value);
            }
        }
        found
    }

    fn all_of(&mut self) -> Vector {
        let mut found = self.compared();
        while ["and", "unless"].contains(&self.peek()) {
            let keeps = self.next() == "and";
            let on = self.skip("on").then(|| self.label_names());
            let key = |labels: &Labels| on.as_ref().map_or_else(|| labels.clone(), |on| only(labels, on));
            let other: BTreeSet<Labels> = self.compared().keys().map(key).collect();
            found.retain(|labels, _| other.contains(&key(labels)) == keeps);
        }
        found
    }

    fn compared(&mut self) -> Vector {
        let mut found = self.value();
        while self.skip("+") {
            let other = self.value();
            found.retain(|labels, value| other.get(labels).map(|more| *value += more).is_some());
        }
        let sign = self.peek().to_owned();
        if ["==", ">", ">="].contains(&sign.as_str()) {
            self.at += 1;
            let holds = |value: f64, bound: f64| match sign.as_str() {
                ">" => value > bound,
                ">=" => value >= bound,
                _ => value.total_cmp(&bound).is_eq(),
            };
            if let Ok(bound) = self.peek().parse() {
                self.at += 1;
                found.retain(|_, value| holds(*value, bound));
            } else {
                let bounds = self.value();
                found.retain(|labels, value| bounds.get(labels).is_some_and(|bound| holds(*value, *bound)));
            }
        }
        found
    }

    fn value(&mut self) -> Vector {
        match self.next().as_str() {
            by @ ("max" | "sum") => {
                self.expect("by");
                let kept = self.label_names();
                self.expect("(");
                let inner = self.any_of();
                self.expect(")");
                let (mut found, least) = (Vector::new(), if by == "sum" { 0.0 } else { f64::MIN });
                for (labels, value) in inner {
                    let known = found.entry(only(&labels, &kept)).or_insert(least);
                    *known = if by == "sum" { *known + value } else { known.max(value) };
                }
                found
            }
            over @ ("increase" | "avg_over_time" | "max_over_time" | "min_over_time" | "last_over_time") => {
                self.expect("(");
                let name = self.next();
                let matchers = self.matchers();
                self.expect("[");
                let scrapes = self.scrapes();
                self.expect("]");
                let back = if self.skip("offset") { self.scrapes() } else { 0 };
                self.expect(")");
                let end = self.history.len().saturating_sub(back);
                let range = &self.history[end.saturating_sub(scrapes + 1)..end];
                over_time(range, &name, &matchers, over)
            }
            "absent" => {
                self.expect("(");
                let is_absent = self.any_of().is_empty();
                self.expect(")");
                if is_absent { Vector::from([(Labels::new(), 1.0)]) } else { Vector::new() }
            }
            name => {
                let matchers = self.matchers();
                self.history.last().map_or_else(Vector::new, |last| selected(last, name, &matchers))
            }
        }
    }

    fn label_names(&mut self) -> Vec<String> {
        self.expect("(");
        let mut names = vec![self.next()];
        while self.skip(",") {
            names.push(self.next());
        }
        self.expect(")");
        names
    }

    /// Label, sign and value of each matcher.
    fn matchers(&mut self) -> Vec<(String, String, String)> {
        let mut matchers = Vec::new();
        if self.skip("{") {
            while !self.skip("}") {
                let (label, sign, value) = (self.next(), self.next(), self.next());
                matchers.push((label, sign, value.trim_matches('"').to_owned()));
                self.skip(",");
            }
        }
        matchers
    }

    /// A duration, as a number of scrapes.
    fn scrapes(&mut self) -> usize {
        let word = self.next();
        let (number, unit) = word.split_at(word.len() - 1);
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => panic!("the duration {word} has another unit"),
        };
        number.parse::<usize>().expect("a duration begins with a number") * seconds / EVERY
    }
}

/// What the function `by` makes of the samples of each series in these scrapes.
fn over_time(scrapes: &[Scrape], name: &str, matchers: &[(String, String, String)], by: &str) -> Vector {
    let mut of = BTreeMap::<Labels, Vec<f64>>::new();
    for scrape in scrapes {
        for (labels, value) in selected(scrape, name, matchers) {
            of.entry(labels).or_default().push(value);
        }
    }
    if by == "increase" {
        // One sample shows no increase.
        of.retain(|_, values| values.len() > 1);
    }
    // A counter that falls began anew at 0.
    let risen = |pair: &[f64]| if pair[1] < pair[0] { pair[1] } else { pair[1] - pair[0] };
    let value = |values: &[f64]| match by {
        "increase" => values.windows(2).map(risen).sum::<f64>(),
        "avg_over_time" => values.iter().sum::<f64>() / values.len() as f64,
        "max_over_time" => values.iter().copied().fold(f64::MIN, f64::max),
        "min_over_time" => values.iter().copied().fold(f64::MAX, f64::min),
        _ => values[values.len() - 1],
    };
    of.into_iter().map(|(labels, values)| (labels, value(&values))).collect()
}

/// The labels with these names.
fn only(labels: &Labels, names: &[String]) -> Labels {
    let kept = labels.iter().filter(|(name, _)| names.contains(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn selected(scrape: &Scrape, name: &str, matchers: &[(String, String, String)]) -> Vector {
    let is_meant = |labels: &Labels| {
        matchers.iter().all(|(label, sign, value)| {
            let is = labels.get(label).map_or("", String::as_str) == value;
            match sign.as_str() {
                "=" => is,
                "!=" => !is,
                _ => panic!("the sign {sign} is unknown"),
            }
        })
    };
    let of_name = scrape.iter().filter(|((of, labels), _)| of == name && is_meant(labels));
    of_name.map(|((_, labels), value)| (labels.clone(), *value)).collect()
}

/// The samples on a page of metrics, without the buckets of histograms, each with these labels besides its own.
pub fn samples(page: &str, more: &Labels) -> Scrape {
    let mut scrape = Scrape::new();
    for line in page.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{")) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
        let mut of = more.clone();
        for label in labels.split("\",").filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            of.insert(label.to_owned(), value.trim_end_matches('"').to_owned());
        }
        scrape.insert((name.to_owned(), of), value.parse().unwrap_or_else(|_| panic!("no number: {line}")));
    }
    scrape
}

#[test]
fn expressions_mean_what_prometheus_takes_them_for() {
    let page = |page: &str| samples(page, &Labels::new());
    let history = [
        page(
            "up{job=\"a\",n=\"1\"} 1\nx_total{c=\"k\"} 5\nx_total{c=\"l\"} 5\ny{c=\"k\",n=\"1\"} 1\ny{c=\"k\",n=\"2\"} 4",
        ),
        page(
            "up{job=\"a\",n=\"1\"} 0\nx_total{c=\"k\"} 2\nx_total{c=\"l\"} 5\nx_total{c=\"m\"} 1\ny{c=\"k\",n=\"1\"} 2\ny{c=\"l\"} 7",
        ),
    ];
    let found = |expression: &str| {
        let found = evaluate(expression, &history);
        found
            .iter()
            .map(|(labels, value)| {
                format!("{} {value}", labels.values().cloned().collect::<Vec<_>>().join(","))
            })
            .collect::<Vec<_>>()
            .join("; ")
    };
    for (expression, wanted) in [
        ("up == 0", "a,1 0"),
        ("up{job=\"a\"} == 1", ""),
        ("absent(up{job=\"a\"} == 1)", " 1"),
        ("absent(up)", ""),
        ("max by (c) (y)", "k 2; l 7"),
        ("increase(x_total[1m]) > 0", "k 2"),
        ("increase(x_total[1m]) or x_total unless max_over_time(x_total[1m] offset 1m)", "k 2; l 0; m 1"),
        ("x_total unless max_over_time(x_total[15s] offset 15s)", "m 1"),
        ("last_over_time(y[1m])", "k,1 2; k,2 4; l 7"),
        ("max_over_time(x_total[1m]) > min_over_time(x_total[1m])", "k 5"),
        ("y and on (c) x_total > 2", "l 7"),
        ("y unless on (c) x_total > 2", "k,1 2"),
        ("x_total{c!=\"k\"} unless max by (c) (y) > 2", "m 1"),
        ("x_total and max by (c) (y) > 2", "l 5"),
        ("sum by (c) (x_total) >= max by (c) (y)", "k 2"),
        ("sum by (c) (x_total) > max by (c) (y)", ""),
        ("avg_over_time(y[1m])", "k,1 1.5; k,2 4; l 7"),
        ("sum by (c) (increase(x_total[1m]))", "k 2; l 0"),
        ("sum by (c) (x_total) + max by (c) (y) >= sum by (c) (x_total)", "k 4; l 12"),
    ] {
        assert_eq!(found(expression), wanted, "{expression}");
    }
}
