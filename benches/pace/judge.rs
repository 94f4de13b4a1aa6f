//! Judges one case by the bank's ledger.
//!
//! The promise is judged over all arrivals of the run. Share and gaps are measured only over a stretch in which all
//! nodes are up and a backlog waits.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use playground::bank::{Fullest, Ledger, Stretch};
use playground::judge::JudgedSpan;
use playground::rule::{TestAlgorithm, TestRule};
use serde::Serialize;

use super::case::{Case, Kind};
use super::witness::Lateness;

/// The default of a limit's `lateness`.
const LATENESS: Duration = Duration::from_millis(20);

/// One case, measured.
#[derive(Debug, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub case: Case,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    pub sends: usize,
    pub worst_rolling_span: usize,
    pub worst_aligned_window: usize,
    /// Seconds over which share and gaps were measured.
    pub seconds: f64,
    /// The share of the permits that was used.
    pub share: f64,
    pub gap_ms: Quantiles,
    /// `paced` only: 99 % of the gaps differ by at most this from the spacing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_spacing_p99_ms: Option<f64>,
    pub promise: Option<Promise>,
    pub repeated: usize,
    /// refundd's own counts; `None` for the peer.
    #[serde(flatten)]
    pub inside: Option<Inside>,
    /// The journal's entries for the first and the last arrival of a span that broke a promise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// How late the bank's dates are.
    pub bank_late_ms: Lateness,
    /// When the fullest rolling span began; the first one if several are as full.
    #[serde(skip)]
    pub worst_from_us: i64,
    /// When the last span that is as full began.
    #[serde(skip)]
    pub last_worst_from_us: i64,
    /// All arrivals, in order.
    #[serde(skip)]
    pub arrivals_us: Vec<i64>,
}

/// Counts from the nodes and the database.
#[derive(Debug, Default, Serialize)]
pub struct Inside {
    /// Commands to Redis for each arrival during the measured stretch.
    pub redis_calls_a_refund: f64,
    /// Takes in the whole run, by answer.
    pub takes: BTreeMap<String, u64>,
    /// Granted permits of the whole run under which nothing was sent, by reason.
    pub permits_unused: BTreeMap<String, u64>,
    /// Rows that ended or are in progress, but were never paid by the bank.
    pub lost: usize,
    /// Rows that still wait although the bank has paid them.
    pub would_repeat: usize,
    /// Rows that still waited when the nodes were stopped.
    pub waiting: usize,
}

/// The most arrivals that were promised in a window or span, and the most that were seen.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Promise {
    pub of: &'static str,
    pub at_most: usize,
    pub seen: usize,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Quantiles {
    pub p1: f64,
    pub p50: f64,
    pub p99: f64,
}

impl Measured {
    /// Judges the arrivals of `channel`. Share and gaps are measured between `from_us` and `to_us`. Fails without
    /// arrivals.
    pub fn of(
        case: Case,
        ledger: &Ledger,
        channel: &str,
        from_us: i64,
        to_us: i64,
    ) -> anyhow::Result<Measured> {
        let rolling = ledger.worst_rolling_span(channel, Case::PER).context("nothing arrived")?;
        let aligned = ledger.worst_aligned_window(channel, Case::PER).context("nothing arrived")?;
        let stretch = ledger.stretch(channel, from_us, to_us, 2 * Case::PER);
        let mut arrivals_us: Vec<i64> = ledger.arrivals(channel).map(|arrival| arrival.at_us).collect();
        arrivals_us.sort_unstable();
        // With so few arrivals that there is no stretch, the whole time between the two readings counts.
        let stretch = stretch.unwrap_or_else(|| {
            let inside: Vec<i64> =
                arrivals_us.iter().copied().filter(|at| (from_us..to_us).contains(at)).collect();
            let gaps_us = inside.windows(2).map(|pair| pair[1] - pair[0]).collect();
            Stretch { from_us, to_us, gaps_us }
        });
        Ok(Measured {
            case,
            burst: case.burst(),
            sends: arrivals_us.len(),
            worst_rolling_span: rolling.count,
            worst_aligned_window: aligned.count,
            seconds: (stretch.to_us - stretch.from_us) as f64 / 1e6,
            share: stretch.share(case.permits, Case::PER),
            gap_ms: Quantiles::of(stretch.gaps_us.clone()),
            off_spacing_p99_ms: (case.kind == Kind::Refundd(TestAlgorithm::Paced))
                .then(|| off_spacing(case, &stretch)),
            promise: promise(case, rolling.count, aligned.count),
            repeated: ledger.repeated().len(),
            inside: None,
            evidence: Vec::new(),
            bank_late_ms: Lateness::of(ledger),
            worst_from_us: rolling.start_us,
            last_worst_from_us: last_as_full(&arrivals_us, rolling),
            arrivals_us,
        })
    }

    /// Whether the promise was kept, and nothing was lost or sent twice. Always true for the peer, which promises
    /// nothing.
    pub fn is_sound(&self) -> bool {
        let inside = self.inside.as_ref().is_none_or(|inside| inside.lost + inside.would_repeat == 0);
        self.promise.is_none_or(|p| p.seen <= p.at_most && self.repeated == 0 && inside)
    }
}

/// The start of the last span that is as full as the fullest and lies well inside the run, for the picture.
fn last_as_full(arrivals_us: &[i64], fullest: Fullest) -> i64 {
    let per = i64::try_from(Case::PER.as_micros()).unwrap_or(i64::MAX);
    let end = arrivals_us.last().map_or(0, |last| last - 5 * per / 2);
    let count = |from: i64| {
        arrivals_us.partition_point(|at| *at < from + per) - arrivals_us.partition_point(|at| *at < from)
    };
    let inside = arrivals_us.iter().rev().copied().filter(|from| *from <= end);
    inside.into_iter().find(|from| count(*from) == fullest.count).unwrap_or(fullest.start_us)
}

fn promise(case: Case, rolling: usize, aligned: usize) -> Option<Promise> {
    let algorithm = case.kind.algorithm()?;
    let permits = case.permits as usize;
    Some(match (TestRule { algorithm, permits: case.permits, per: Case::PER }).promise().span {
        JudgedSpan::Aligned => Promise { of: "aligned window", at_most: permits, seen: aligned },
        JudgedSpan::Any | JudgedSpan::AnyAndBurst(_) => {
            let burst = case.burst().unwrap_or(0) as usize;
            Promise { of: "rolling span", at_most: permits + burst, seen: rolling }
        }
    })
}

/// The p99 of the difference between a gap and the spacing of `paced`, in milliseconds.
fn off_spacing(case: Case, stretch: &Stretch) -> f64 {
    let spacing = (Case::PER + LATENESS).as_micros().div_ceil(u128::from(case.permits));
    let spacing = i64::try_from(spacing).unwrap_or(i64::MAX);
    let off = stretch.gaps_us.iter().map(|gap| (gap - spacing).abs()).collect();
    Quantiles::of(off).p99
}

impl Quantiles {
    /// The quantiles of values in microseconds, in milliseconds.
    pub fn of(mut values_us: Vec<i64>) -> Quantiles {
        values_us.sort_unstable();
        let at = |percent: usize| {
            let place = (values_us.len().saturating_sub(1) * percent).div_ceil(100);
            values_us.get(place).map_or(0.0, |value| *value as f64 / 1000.0)
        };
        Quantiles { p1: at(1), p50: at(50), p99: at(99) }
    }
}
