//! A figure: the name of one number, which direction is better, its bound, and the value of each round.

use serde::{Deserialize, Serialize};

/// Which direction of a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    More,
    Less,
    /// Neither: the figure only explains others.
    Neither,
}

/// The bound that the specification sets for the median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    AtLeast(f64),
    AtMost(f64),
}

/// One measured number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The name of the figure. It must not change between versions, because figures are compared by name.
    pub what: String,
    pub unit: String,
    pub better: Better,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    pub rounds: Vec<f64>,
}

impl Figure {
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    pub fn least(&self) -> f64 {
        self.sorted().first().copied().unwrap_or(f64::NAN)
    }

    pub fn most(&self) -> f64 {
        self.sorted().last().copied().unwrap_or(f64::NAN)
    }

    /// Whether the median reaches its bound; `None` without a bound.
    pub fn reaches(&self) -> Option<bool> {
        self.reach.map(|reach| match reach {
            Reach::AtLeast(bound) => self.median() >= bound,
            Reach::AtMost(bound) => self.median() <= bound,
        })
    }

    /// Whether the figure is worse than before by more than the spread of the rounds, now and before.
    pub fn is_worse_than(&self, before: &Figure) -> bool {
        let lost = match self.better {
            Better::More => before.median() - self.median(),
            Better::Less => self.median() - before.median(),
            Better::Neither => return false,
        };
        lost > (self.most() - self.least()).max(before.most() - before.least())
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.rounds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }
}

/// The figures of one group, in the order in which they were first noted.
#[derive(Debug, Default)]
pub struct Notes(pub Vec<Figure>);

impl Notes {
    /// Adds the value of one round to the figure with this name.
    pub fn add(&mut self, what: impl Into<String>, unit: &str, better: Better, value: f64) -> &mut Figure {
        let what = what.into();
        let at = self.0.iter().position(|figure| figure.what == what).unwrap_or_else(|| {
            self.0.push(Figure { what, unit: unit.to_owned(), better, reach: None, rounds: Vec::new() });
            self.0.len() - 1
        });
        println!("    {}: {} {unit}", self.0[at].what, short(value));
        self.0[at].rounds.push(value);
        &mut self.0[at]
    }
}

impl Figure {
    pub fn at_least(&mut self, bound: f64) {
        self.reach = Some(Reach::AtLeast(bound));
    }

    pub fn at_most(&mut self, bound: f64) {
        self.reach = Some(Reach::AtMost(bound));
    }
}

/// A number with a sensible number of digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 10_000.0 && size.is_finite() => thousands(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn thousands(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no figure is that large")]
    let whole = value.abs().round_ties_even() as u64;
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", refundd::refund::thousands(whole))
}
