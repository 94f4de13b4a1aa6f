//! What the bank's ledger says of one case, and whether what was promised was kept.
//!
//! The promise is judged over every arrival of the run, from the first one to the last; share and gaps only
//! over the stretch that was measured: all nodes up, backlog waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use playground::bank::{Fullest, Ledger, Stretch};
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
    /// Of `permits` in each second.
    pub share: f64,
    pub gap_ms: Quantiles,
    /// `paced` only: 99 % of the gaps differ by at most this from the spacing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_spacing_p99_ms: Option<f64>,
    pub promise: Option<Promise>,
    pub repeated: usize,
    /// What refundd itself knows of the run; the peer was not asked.
    #[serde(flatten)]
    pub inside: Option<Inside>,
    /// What the nodes wrote down of the arrivals that broke a promise, the first and the last of the span.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// How late the bank's dates are.
    pub bank_late_ms: Lateness,
    /// When the fullest rolling span began, the first and the last of them, and all arrivals.
    #[serde(skip)]
    pub worst_from_us: i64,
    #[serde(skip)]
    pub last_worst_from_us: i64,
    #[serde(skip)]
    pub arrivals_us: Vec<i64>,
}

/// What the nodes and the database say.
#[derive(Debug, Default, Serialize)]
pub struct Inside {
    /// Commands of the nodes to Redis for each arrival, during the measured stretch.
    pub redis_calls_a_refund: f64,
    /// Questions to the bucket in the whole run, by answer.
    pub takes: BTreeMap<String, u64>,
    /// Permits granted in the whole run under which nothing was sent, by reason.
    pub permits_unused: BTreeMap<String, u64>,
    /// Rows that ended, or are on their way, of which the bank never heard.
    pub lost: usize,
    /// Rows still waiting although the bank has paid them.
    pub would_repeat: usize,
    /// Rows still in line when the nodes were stopped.
    pub waiting: usize,
}

/// The most that was promised, and the most that was seen.
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
    /// Judges the arrivals on `channel`; those between `from_us` and `to_us` also for share and gaps.
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
        // Where nothing arrived for so long that no end is found, from one reading to the other.
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
            off_spacing_p99_ms: (case.kind == Kind::Paced).then(|| off_spacing(case, &stretch)),
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

    /// Whether the promise was kept, and nothing was lost or sent twice. The peer promised nothing.
    pub fn is_sound(&self) -> bool {
        let inside = self.inside.as_ref().is_none_or(|inside| inside.lost + inside.would_repeat == 0);
        self.promise.is_none_or(|p| p.seen <= p.at_most && self.repeated == 0 && inside)
    }
}

/// The last span as full as the fullest that is well inside the run, to be drawn with what was around it.
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
    let permits = case.permits as usize;
    match case.kind {
        Kind::FixedWindow => Some(Promise { of: "aligned window", at_most: permits, seen: aligned }),
        Kind::Paced | Kind::SlidingLog | Kind::SlidingWindow => {
            Some(Promise { of: "rolling span", at_most: permits, seen: rolling })
        }
        Kind::TokenBucket => {
            let burst = case.burst().unwrap_or(0) as usize;
            Some(Promise { of: "rolling span", at_most: permits + burst, seen: rolling })
        }
        Kind::Bullmq => None,
    }
}

/// The p99 of the difference between a gap and the spacing of `paced`, in milliseconds.
fn off_spacing(case: Case, stretch: &Stretch) -> f64 {
    let spacing = (Case::PER + LATENESS).as_micros().div_ceil(u128::from(case.permits));
    let spacing = i64::try_from(spacing).unwrap_or(i64::MAX);
    let off = stretch.gaps_us.iter().map(|gap| (gap - spacing).abs()).collect();
    Quantiles::of(off).p99
}

impl Quantiles {
    /// Of microseconds, in milliseconds.
    pub fn of(mut values_us: Vec<i64>) -> Quantiles {
        values_us.sort_unstable();
        let at = |percent: usize| {
            let place = (values_us.len().saturating_sub(1) * percent).div_ceil(100);
            values_us.get(place).map_or(0.0, |value| *value as f64 / 1000.0)
        };
        Quantiles { p1: at(1), p50: at(50), p99: at(99) }
    }
}
