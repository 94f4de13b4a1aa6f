//! The forecast beside a small simulation that grants one permit after the other.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a few days in microseconds, and counts of some thousands"
)]

use std::time::Duration;

use super::*;
use crate::limiter::{Algorithm, Rule};

/// Monday, 2026-11-23 13:20:00 UTC.
const NOW_US: i64 = 1_795_440_000_000_000;
const HOUR: u64 = 3600;

/// One limit of the simulation, with the times of the spent permits.
struct Counted {
    rule: Rule,
    spent: Vec<f64>,
}

impl Counted {
    fn at_us(at: f64) -> i64 {
        NOW_US + (at * 1e6).round() as i64
    }

    fn window_of(&self, at: f64) -> i64 {
        Self::at_us(at) / self.rule.per.as_micros() as i64
    }

    /// The first moment from `at` on with a permit.
    fn next(&self, at: f64) -> f64 {
        let spacing = self.rule.spacing_us() as f64 / 1e6;
        let permits = self.rule.permits as usize;
        match self.rule.algorithm {
            Algorithm::FixedWindow { .. } => {
                let window = self.window_of(at);
                let used = self.spent.iter().rev().take_while(|one| self.window_of(**one) == window).count();
                let next = (window + 1) * self.rule.per.as_micros() as i64 - NOW_US;
                if used < permits { at } else { next as f64 / 1e6 }
            }
            Algorithm::Paced | Algorithm::PacedStrict => {
                let grid = NOW_US as f64 / 1e6 / spacing;
                let free = self.spent.last().map_or(at, |last| at.max(last + spacing * 0.5));
                ((free / spacing + grid - 1e-6).ceil() - grid) * spacing
            }
            Algorithm::SlidingLog | Algorithm::SlidingWindow { .. } => {
                let span = self.rule.memory().as_secs_f64();
                let first = self.spent.len().checked_sub(permits);
                first.map_or(at, |first| at.max(self.spent[first] + span))
            }
            Algorithm::TokenBucket { burst } => {
                let full = self.spent.iter().fold(f64::NEG_INFINITY, |full: f64, at| full.max(*at) + spacing);
                at.max(full - (f64::from(burst) - 1.0) * spacing)
            }
        }
    }
}

/// The time of each channel's last request, one permit after the other. Of channels that can send at one moment, the one
/// that sent longer ago comes first.
fn simulated(mut limits: Vec<Counted>, channels: &[(Vec<usize>, u64, f64)]) -> Vec<f64> {
    let mut sent = vec![0; channels.len()];
    let mut last = vec![0.0_f64; channels.len()];
    let mut served = vec![0; channels.len()];
    let mut nth_send = 0;
    loop {
        let next = |(nth, (own, count, from)): (usize, &(Vec<usize>, u64, f64))| {
            let mut at = last[nth].max(*from);
            for _ in 0..100 {
                at = own.iter().map(|limit| limits[*limit].next(at)).fold(at, f64::max);
            }
            (sent[nth] < *count).then_some((at, served[nth], nth))
        };
        let all = channels.iter().enumerate().filter_map(next);
        let Some((at, _, nth)) = all.min_by(|a, b| (a.0.total_cmp(&b.0)).then(a.1.cmp(&b.1))) else {
            return last;
        };
        for limit in &channels[nth].0 {
            limits[*limit].spent.push(at);
        }
        nth_send += 1;
        (sent[nth], last[nth], served[nth]) = (sent[nth] + 1, at, nth_send);
    }
}

fn rule(algorithm: Algorithm, permits: u32, per_s: u64) -> Rule {
    let lateness = Duration::from_millis(20);
    Rule { algorithm, permits, per: Duration::from_secs(per_s), lateness }
}

/// Compares the forecast of these channels with the simulation: limits with the ages of spent permits, and for each
/// channel its limits, its backlog and when it starts.
fn compare(what: &str, limits: &[(Rule, Vec<f64>)], channels: &[(Vec<usize>, u64, f64)]) {
    let counted = limits.iter().map(|(rule, ages)| {
        let mut spent: Vec<f64> = ages.iter().map(|age| -age).collect();
        spent.sort_by(f64::total_cmp);
        Counted { rule: rule.clone(), spent }
    });
    let truth = simulated(counted.collect(), channels);
    let allowances = limits.iter().map(|(rule, ages)| {
        let spent = |age: &f64| SpentPermits { at_us: NOW_US - (age * 1e6) as i64, count: 1 };
        Allowance::of(rule, &ages.iter().map(spent).collect::<Vec<_>>(), NOW_US)
    });
    let demands = channels.iter().map(|(limits, count, from)| Demand {
        limits: limits.clone(),
        arrivals: vec![ExpectedArrival { at: 0.0, count: *count as f64 }],
        weight: 1.0,
        starts_at: Some(*from),
    });
    let forecast = Outlook { limits: allowances.collect(), demands: demands.collect() }.gone_at();
    for (nth, (truth, forecast)) in truth.iter().zip(&forecast).enumerate() {
        let forecast = forecast.unwrap_or(f64::NAN);
        // One step of a limit, or a hundredth of the wait.
        let step = limits.iter().map(|(rule, _)| rule.spacing_us() as f64 / 1e6).fold(0.0, f64::max);
        let most = step.max(truth * 0.01) + 0.05;
        assert!((truth - forecast).abs() <= most, "{what}, channel {nth}: {truth} s, forecast {forecast} s");
    }
}

fn kinds() -> Vec<Algorithm> {
    Algorithm::all(5, 10).into_iter().collect()
}

#[test]
fn each_kind_of_limit_is_forecast_as_it_grants() {
    for kind in kinds() {
        for (permits, per) in [(20, 1), (10, 60), (100, HOUR), (1, 2)] {
            for backlog in [1, 7, 100, 3_000] {
                let what = format!("{backlog} under {permits} per {per} s, {kind:?}");
                compare(&what, &[(rule(kind.clone(), permits, per), Vec::new())], &[(vec![0], backlog, 0.0)]);
            }
        }
    }
}

#[test]
fn a_spent_quota_makes_refunds_wait_for_the_next_window_or_for_old_permits() {
    // 1,000 an hour, of which 900 went out in the last quarter of an hour.
    let ages: Vec<f64> = (0..900).map(|n| 1.0 + f64::from(n)).collect();
    for kind in kinds().into_iter().filter(|kind| !kind.is_paced() && kind.burst().is_none()) {
        let what = format!("{kind:?}");
        compare(&what, &[(rule(kind, 1_000, HOUR), ages.clone())], &[(vec![0], 2_500, 0.0)]);
    }
}

#[test]
fn a_bucket_that_a_backlog_empties_all_the_time_is_empty_and_one_that_rested_is_full() {
    let bucket = rule(Algorithm::TokenBucket { burst: 20 }, 3, 1);
    let spacing = bucket.spacing_us() as f64 / 1e6;
    // A minute ago 20 at once, and since then each token as it came.
    let mut ages = vec![60.0; 20];
    ages.extend((1..=(60.0 / spacing) as u32).map(|n| 60.0 - f64::from(n) * spacing));
    compare("emptied", &[(bucket.clone(), ages)], &[(vec![0], 100, 0.0)]);
    compare("rested", &[(bucket, vec![60.0; 20])], &[(vec![0], 100, 0.0)]);
}

#[test]
fn a_quota_that_the_pace_cannot_use_up_is_lost_at_the_end_of_its_window() {
    // 1,200 in each hour, and the hour has 40 minutes left; 20 a minute. The first hour takes 800 of them.
    let limits = [
        (rule(Algorithm::FixedWindow { zone: None }, 1_000, HOUR), Vec::new()),
        (rule(Algorithm::Paced, 20, 60), Vec::new()),
    ];
    compare("quota and pace", &limits, &[(vec![0, 1], 2_500, 0.0)]);
    let limits = [
        (rule(Algorithm::FixedWindow { zone: None }, 100, HOUR), Vec::new()),
        (rule(Algorithm::FixedWindow { zone: None }, 20, 1), Vec::new()),
    ];
    compare("quota and burst", &limits, &[(vec![0, 1], 1_000, 0.0)]);
}

#[test]
fn channels_that_share_a_limit_get_equal_parts_until_one_is_done() {
    let shared = [(rule(Algorithm::Paced, 60, 60), Vec::new())];
    compare("shared", &shared, &[(vec![0], 100, 0.0), (vec![0], 1_000, 0.0), (vec![0], 1_000, 500.0)]);
    // Tokens wait for each other. A slot that finds no token of the shared limit is missed, which no forecast foresees.
    let own = [
        (rule(Algorithm::TokenBucket { burst: 2 }, 60, 60), Vec::new()),
        (rule(Algorithm::TokenBucket { burst: 2 }, 6, 60), Vec::new()),
    ];
    compare("one has a slower limit, too", &own, &[(vec![0, 1], 50, 0.0), (vec![0], 1_000, 0.0)]);
}

#[test]
fn a_pause_that_ends_and_cooling_put_everything_off() {
    for kind in kinds() {
        compare("cooling", &[(rule(kind, 20, 1), Vec::new())], &[(vec![0], 500, 90.0)]);
    }
}

fn of_backlog(count: f64) -> Demand {
    Demand {
        limits: vec![0],
        arrivals: vec![ExpectedArrival { at: 0.0, count }],
        weight: 1.0,
        starts_at: Some(0.0),
    }
}

fn gone(limits: Vec<Allowance>, demands: Vec<Demand>) -> Vec<Option<f64>> {
    Outlook { limits, demands }.gone_at()
}

fn second(permits: u32) -> Allowance {
    Allowance::of(&rule(Algorithm::Paced, permits, 1), &[], NOW_US)
}

fn is_about(found: Option<f64>, expected: f64) {
    let found = found.unwrap_or(f64::NAN);
    assert!((found - expected).abs() <= 0.02 * expected + 0.2, "{found} s, expected {expected} s");
}

#[test]
fn one_permit_in_ten_goes_to_inquiries_while_there_are_any() {
    let inquiries = |count| Demand { weight: 1.0 / 9.0, ..of_backlog(count) };
    is_about(gone(vec![second(10)], vec![of_backlog(900.0), inquiries(1_000.0)])[0], 102.0);
    is_about(gone(vec![second(10)], vec![of_backlog(900.0), inquiries(10.0)])[0], 92.8);
}

#[test]
fn a_channel_paused_by_a_person_has_no_end_and_slows_nobody() {
    let paused = Demand { starts_at: None, ..of_backlog(100.0) };
    let found = gone(vec![second(10)], vec![paused, of_backlog(100.0)]);
    assert_eq!(found[0], None);
    is_about(found[1], 10.2);
}

#[test]
fn a_slow_bank_with_few_slots_sets_the_pace() {
    // 16 slots of 1.5 s: 10.7 a second, and the limit would allow 50.
    let both = Demand { limits: vec![0, 1], ..of_backlog(1_600.0) };
    is_about(gone(vec![second(50), Allowance::slots(16, 1.5)], vec![both])[0], 148.5);
}

#[test]
fn a_slowed_channel_begins_slowly_and_comes_back_to_its_rate() {
    let climb = Climb { percent: 50, ceiling: 50, step: 1.0, since: 0.0 };
    let both = Demand { limits: vec![0, 1], ..of_backlog(10_000.0) };
    let slowed = Allowance::slowed(10.0, &climb);
    let found = gone(vec![second(10), slowed], vec![both])[0].unwrap_or(f64::NAN);
    // The climb takes 700 steps; it loses less than half of them.
    assert!(found > 1_100.0 && found < 1_350.0, "{found}");
}

#[test]
fn refunds_that_are_not_due_yet_leave_the_limit_idle_until_they_are() {
    let later = vec![ExpectedArrival { at: 0.0, count: 10.0 }, ExpectedArrival { at: 3_600.0, count: 600.0 }];
    is_about(gone(vec![second(10)], vec![Demand { arrivals: later, ..of_backlog(0.0) }])[0], 3_660.0);
}

#[test]
fn an_empty_backlog_is_gone_now_and_an_unlimited_one_at_once() {
    assert_eq!(gone(vec![second(1)], vec![of_backlog(0.0)]), [Some(0.0)]);
    assert_eq!(gone(Vec::new(), vec![Demand { limits: Vec::new(), ..of_backlog(1e6) }]), [Some(0.0)]);
}

#[test]
fn a_day_of_a_time_zone_ends_at_its_midnight() {
    let zone = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
    let rule = rule(Algorithm::FixedWindow { zone: Some(zone) }, 100, 24 * HOUR);
    // In Berlin it is 14:20, so the day has 9 h 40 min left. 100 go at once, 100 at midnight, 50 a day later.
    let day = Allowance::of(&rule, &[], NOW_US);
    is_about(gone(vec![day], vec![of_backlog(250.0)])[0], 33.0 * 3600.0 + 40.0 * 60.0);
}

#[test]
fn ten_thousand_channels_behind_one_limit_are_forecast_within_the_bounded_work() {
    let began = std::time::Instant::now();
    let demands = (1..=10_000).map(|n| of_backlog(f64::from(n))).collect();
    let found = gone(vec![second(1_000)], demands);
    is_about(found[0], 10.0);
    assert!(found.iter().all(Option::is_some));
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

#[test]
fn what_is_left_after_the_most_steps_waits_for_the_end_of_a_pause_and_for_a_quota() {
    // One refund in each millisecond uses up the steps in 20 s.
    let busy: Vec<_> =
        (0..30_000).map(|ms| ExpectedArrival { at: f64::from(ms) / 1e3, count: 1.0 }).collect();
    let busy = Demand { arrivals: busy, ..of_backlog(0.0) };
    let paused = Demand { limits: vec![1], starts_at: Some(3_600.0), ..of_backlog(100.0) };
    // Ten a second at the bank, and 1,000 in each day. Of the first 1,000, some 800 are left after 20 s.
    let under_quota = Demand { limits: vec![2, 3], ..of_backlog(2_000.0) };
    let quota = rule(Algorithm::SlidingLog, 1_000, 24 * HOUR);
    let limits = vec![
        Allowance::slots(1_000, 1e-3),
        second(10),
        Allowance::slots(1, 0.1),
        Allowance::of(&quota, &[], NOW_US),
    ];
    let found = gone(limits, vec![busy, paused, under_quota]);
    is_about(found[0], 30.0);
    is_about(found[1], 3_610.0);
    is_about(found[2], 24.0 * 3_600.0);
}
