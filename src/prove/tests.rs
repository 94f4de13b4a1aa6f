//! Tests single bounds by example, and all algorithms against a model that counts every span by hand.

mod days;

use proptest::prelude::*;

use super::*;
use crate::limiter::{Algorithm, Rule, Supply};

const S: i64 = 1_000_000;
const DAY: i64 = 86_400 * S;
/// Noon of a day long after 1970.
const NOON: i64 = 20_000 * DAY + DAY / 2;

fn at(at_us: i64, count: u64) -> Opening {
    Opening { at_us, refunds: count, others: 0, top: count, in_shares: 0 }
}

fn history(rules: &[(i64, &str)]) -> History {
    History::new(rules.iter().map(|(since, rule)| (*since, (*rule).to_owned(), "node-a".to_owned())))
}

/// Proves the ten minutes around noon, with every permit in the ledger.
fn prove(history: &History, openings: &[Opening]) -> Findings {
    let period = Period { from_us: NOON - 300 * S, to_us: NOON + 300 * S };
    let oldest = openings.first().map(|first| first.at_us);
    let mut history = history.clone();
    if let Some(oldest) = oldest {
        history.began_before(oldest);
    }
    let scope = Scope::of(period, &history, oldest, NOON + 300 * S);
    let mut prover = Prover::new(&history, &scope, Duration::ZERO);
    let reads = prover.reads();
    for opening in openings.iter().filter(|o| (reads.from_us..reads.to_us).contains(&o.at_us)) {
        prover.see(opening);
    }
    prover.finish()
}

fn since_ever(rule: &str) -> History {
    history(&[(NOON - 10 * DAY, rule)])
}

#[test]
fn a_full_window_holds_and_one_more_breaks_it() {
    let history =
        since_ever(r#"{"algorithm":"fixed_window","permits":3,"per_us":1000000,"lateness_us":20000}"#);
    let kept = prove(&history, &[at(NOON, 3), at(NOON + S, 3)]);
    assert_eq!((kept.refunds, kept.spans, kept.broken.count), (6, 2, 0));
    assert_eq!(kept.worst.map(|w| (w.actual, w.allowed, w.span.from_us)), Some((3, 3, NOON)));
    let broken = prove(&history, &[at(NOON, 3), at(NOON + S, 4)]);
    assert_eq!((broken.broken.count, broken.broken.first[0].span.from_us), (1, NOON + S));
    // A number beyond the limit breaks the rule, and so does a window beside the grid.
    let number = prove(&history, &[Opening { top: 4, ..at(NOON, 1) }]);
    assert_eq!(number.broken.first[0].measure, Measure::Number);
    assert_eq!(prove(&history, &[at(NOON, 3), at(NOON + S / 2, 1)]).broken.count, 1);
}

#[test]
fn a_span_is_half_open_and_longer_by_the_lateness() {
    let history =
        since_ever(r#"{"algorithm":"sliding_log","permits":2,"per_us":1000000,"lateness_us":20000}"#);
    let third = |gap: i64| prove(&history, &[at(NOON, 2), at(NOON + gap, 1)]).broken.count;
    assert_eq!((third(1_019_999), third(1_020_000)), (1, 0));
}

#[test]
fn a_token_bucket_may_have_its_burst_on_top() {
    let history = since_ever(
        r#"{"algorithm":"token_bucket","permits":2,"per_us":1000000,"lateness_us":20000,"burst":5}"#,
    );
    assert_eq!(prove(&history, &[at(NOON, 5), at(NOON + S, 2)]).broken.count, 0);
    assert_eq!(prove(&history, &[at(NOON, 5), at(NOON + S, 3)]).broken.count, 1);
}

#[test]
fn slots_closer_than_their_spacing_break_the_pace() {
    let history = since_ever(r#"{"algorithm":"paced","permits":2,"per_us":1000000,"lateness_us":20000}"#);
    let kept = prove(&history, &[at(NOON, 1), at(NOON + 510_000, 1)]);
    assert_eq!(
        (kept.broken.count, kept.closest.map(|c| (c.actual, c.allowed))),
        (0, Some((510_000, 510_000)))
    );
    let close = prove(&history, &[at(NOON, 1), at(NOON + 509_999, 1)]);
    assert_eq!(close.broken.first[0].measure, Measure::Gap);
    assert_eq!(prove(&history, &[at(NOON, 2)]).broken.first[0].measure, Measure::Gap);
}

#[test]
fn shares_may_have_a_slot_at_one_moment_and_no_span_above_the_rule() {
    let history = since_ever(r#"{"algorithm":"paced","permits":2,"per_us":1000000,"lateness_us":20000}"#);
    let shared_out = |at_us: i64, count: u64| Opening { in_shares: count, ..at(at_us, count) };
    let kept = prove(&history, &[shared_out(NOON, 2), shared_out(NOON + 1_020_000, 2)]);
    assert_eq!((kept.spans, kept.broken.count, kept.closest), (2, 0, None));
    let above = prove(&history, &[shared_out(NOON, 2), shared_out(NOON + 1_019_999, 1)]);
    assert_eq!((above.broken.count, above.broken.first[0].measure), (1, Measure::Permits));
    // Permits of the limit itself keep their distance, also with a share's permit between them.
    let close = prove(&history, &[at(NOON, 1), shared_out(NOON + 100_000, 1), at(NOON + 509_999, 1)]);
    let gaps = close.broken.first.iter().filter(|span| span.measure == Measure::Gap).count();
    assert_eq!(gaps, 1, "{close:?}");
}

#[test]
fn beside_a_change_the_looser_rule_counts_and_later_the_new_one() {
    let ten = r#"{"algorithm":"fixed_window","permits":10,"per_us":1000000,"lateness_us":20000}"#;
    let rules = history(&[
        (
            NOON - 10 * DAY,
            r#"{"algorithm":"fixed_window","permits":20,"per_us":1000000,"lateness_us":20000}"#,
        ),
        (NOON + S / 2, ten),
    ]);
    let twenty_at = |second: i64| prove(&rules, &[at(NOON + second * S, 20)]).broken.count;
    assert_eq!((twenty_at(0), twenty_at(2), twenty_at(4)), (0, 0, 0));
    assert_eq!(twenty_at(5), 1);
    let above_both = prove(&rules, &[at(NOON + S, 21)]);
    assert_eq!(above_both.broken.count, 1);
    // A looser rule does not count before it was recorded.
    let up = history(&[
        (NOON - 10 * DAY, ten),
        (NOON + S / 2, r#"{"algorithm":"fixed_window","permits":20,"per_us":1000000,"lateness_us":20000}"#),
    ]);
    assert_eq!(prove(&up, &[at(NOON - S, 20)]).broken.count, 1);
    assert_eq!(prove(&up, &[at(NOON, 20)]).broken.count, 0);
}

#[test]
fn another_length_of_window_allows_what_it_allows_in_that_time() {
    let rules = history(&[
        (
            NOON - 10 * DAY,
            r#"{"algorithm":"fixed_window","permits":60,"per_us":60000000,"lateness_us":20000}"#,
        ),
        (NOON, r#"{"algorithm":"fixed_window","permits":2,"per_us":1000000,"lateness_us":20000}"#),
    ]);
    // The permits of the minute before noon may all be spent at once. Well after noon a second may not have three.
    assert_eq!(prove(&rules, &[at(NOON - 60 * S, 60), at(NOON + 90 * S, 2)]).broken.count, 0);
    assert_eq!(prove(&rules, &[at(NOON + 90 * S, 3)]).broken.count, 1);
}

#[test]
fn equal_neighbours_are_one_rule() {
    let rule = r#"{"algorithm":"paced","permits":2,"per_us":1000000,"lateness_us":20000}"#;
    let twice = history(&[(NOON, rule), (NOON + 5, rule)]);
    assert_eq!(twice.rule_periods().len(), 1);
    assert_eq!(twice.rule_periods()[0].until_us, i64::MAX);
}

#[test]
fn what_was_pruned_or_had_no_rule_is_named() {
    let now = NOON;
    let period = Period { from_us: NOON - 8 * 3600 * S, to_us: NOON };
    let rules = history(&[(
        NOON - 6 * 3600 * S,
        r#"{"algorithm":"sliding_log","permits":2,"per_us":1000000,"lateness_us":20000}"#,
    )]);
    let kept = NOON - 3 * 3600 * S;
    let scope = Scope::of(period, &rules, Some(kept), now);
    let why: Vec<&Why> = scope.unproven.iter().map(|u| &u.why).collect();
    assert_eq!(why, [&Why::NoRule, &Why::Pruned]);
    assert_eq!(scope.unproven[1].period, Period { from_us: NOON - 6 * 3600 * S, to_us: kept + 1 });
    assert_eq!(scope.provable.from_us, kept + 1);
    // Without any permit only the last hour is sure to be kept.
    let empty = Scope::of(period, &rules, None, now);
    assert_eq!(empty.provable.from_us, NOON - 3600 * S);
    // Without any rule nothing can be said.
    assert!(Scope::of(period, &History::default(), Some(kept), now).provable.is_empty());
    let foreign =
        history(&[(NOON - 600 * S, r#"{"algorithm":"leaky","permits":2,"per_us":1,"lateness_us":1}"#)]);
    assert_eq!(
        Scope::of(period, &foreign, None, now).unproven[1].why,
        Why::ForeignRule(r#"{"algorithm":"leaky","permits":2,"per_us":1,"lateness_us":1}"#.into())
    );
}

#[test]
fn beside_a_time_without_a_known_rule_too_many_are_in_doubt() {
    let rules = history(&[(
        NOON,
        r#"{"algorithm":"fixed_window","permits":2,"per_us":1000000,"lateness_us":20000}"#,
    )]);
    let findings = prove(&rules, &[at(NOON - 600 * S, 9), at(NOON + S, 9), at(NOON + 60 * S, 9)]);
    assert_eq!((findings.doubtful.count, findings.broken.count), (1, 1));
    // If no permit was spent before the first rule, there was no unknown rule.
    assert_eq!(prove(&rules, &[at(NOON + S, 9)]).broken.count, 1);
}

/// Counts every span by hand.
fn naive(rule: &Rule, openings: &[Opening]) -> u64 {
    let sum = |from: i64, to: i64| -> u64 {
        openings.iter().filter(|o| (from..to).contains(&o.at_us)).map(|o| o.refunds + o.others).sum()
    };
    let (per, whole) = (micros(rule.per), micros(rule.per + rule.lateness));
    let permits = u64::from(rule.permits);
    let spans = |most: u64| openings.iter().filter(|o| sum(o.at_us, o.at_us + whole) > most).count() as u64;
    if rule.window().is_some() {
        let windows: std::collections::BTreeSet<i64> = openings.iter().map(|o| o.at_us / per).collect();
        return windows.iter().filter(|w| sum(*w * per, (*w + 1) * per) > permits).count() as u64;
    }
    match rule.algorithm.supply() {
        Supply::Slots => {
            let spacing = if rule.algorithm.keeps_gap() {
                per.cast_unsigned().div_ceil(permits) + (whole - per).cast_unsigned()
            } else {
                whole.cast_unsigned().div_ceil(permits)
            };
            let gaps =
                openings.windows(2).filter(|p| (p[1].at_us - p[0].at_us).cast_unsigned() < spacing).count();
            let twice = openings.iter().filter(|o| o.refunds + o.others > 1).count();
            spans(permits) + (gaps + twice) as u64
        }
        Supply::OneByOne | Supply::Together => spans(permits + rule.algorithm.burst().map_or(0, u64::from)),
    }
}

fn any_rule() -> impl Strategy<Value = String> {
    let per = prop_oneof![Just(1000u64), Just(50_000), Just(1_000_000)].prop_map(Duration::from_micros);
    (any::<prop::sample::Index>(), 1..6u32, per, 1..5u32).prop_map(|(which, permits, per, burst)| {
        let algorithm = which.get(&Algorithm::all(burst, 5)).clone();
        Rule { algorithm, permits, per, lateness: per / 50 }.to_string()
    })
}

proptest! {
    #[test]
    fn every_span_is_counted_as_by_hand(
        rule in any_rule(),
        steps in prop::collection::vec((prop_oneof![1..2000i64, 1..300_000i64, 900_000..1_100_000i64], 1..4u64, 0..2u64), 1..80),
    ) {
        let mut time = NOON - 60 * S;
        let openings: Vec<Opening> = steps
            .iter()
            .map(|(step, refunds, others)| {
                time += step;
                Opening { at_us: time, refunds: *refunds, others: *others, top: 1, in_shares: 0 }
            })
            .collect();
        let findings = prove(&since_ever(&rule), &openings);
        let rule: Rule = rule.parse().unwrap();
        prop_assert_eq!(findings.broken.count, naive(&rule, &openings));
        prop_assert_eq!(findings.refunds + findings.others, openings.iter().map(|o| o.refunds + o.others).sum::<u64>());
        prop_assert_eq!(findings.doubtful.count, 0);
    }

    #[test]
    fn a_change_never_makes_a_span_stricter_and_leaves_the_rest_alone(
        rules in (any_rule(), any_rule()),
        times in prop::collection::btree_set(0..40 * S, 1..120),
    ) {
        let openings: Vec<Opening> = times.iter().map(|t| at(NOON - 20 * S + t, 1)).collect();
        let both = history(&[(NOON - 10 * DAY, &rules.0), (NOON, &rules.1)]);
        let findings = prove(&both, &openings);
        let alone = [prove(&since_ever(&rules.0), &openings), prove(&since_ever(&rules.1), &openings)];
        // Openings that keep both rules also keep the change between them. Spans far from the change are judged as
        // if there was no change.
        if alone.iter().all(|findings| findings.broken.count == 0) {
            prop_assert_eq!(findings.broken.count, 0);
        }
        let is_far = |f: &&SpanCount| f.span.to_us <= NOON || f.span.from_us >= NOON + 6 * S;
        let nth_rule = |f: &&SpanCount| usize::from(f.span.from_us >= NOON);
        for (nth, alone) in alone.iter().enumerate() {
            if alone.broken.count <= 10 && findings.broken.count <= 10 {
                let far: Vec<&SpanCount> = alone.broken.first.iter().filter(is_far).filter(|f| nth_rule(f) == nth).collect();
                let seen: Vec<&SpanCount> = findings.broken.first.iter().filter(is_far).filter(|f| nth_rule(f) == nth).collect();
                prop_assert_eq!(far, seen);
            }
        }
    }
}

/// The rules of a slowed channel: `count` of them, each `step_us` after the one before.
fn slowed(count: i64, step_us: i64) -> History {
    let rule = |nth: i64| {
        format!(r#"{{"algorithm":"paced","permits":{},"per_us":1000000,"lateness_us":20000}}"#, 10 + nth % 7)
    };
    History::new(
        (0..count).map(|nth| (NOON - count / 2 * step_us + nth * step_us, rule(nth), "node-a".to_owned())),
    )
}

#[test]
fn a_day_of_a_slowed_channel_is_proven_in_moments() {
    let (history, begun) = (slowed(20_000, 5 * S), std::time::Instant::now());
    let period = Period { from_us: NOON - DAY / 2, to_us: NOON + DAY / 2 };
    let scope = Scope::of(period, &history, Some(NOON - 10 * DAY), NOON + DAY / 2);
    let mut prover = Prover::new(&history, &scope, Duration::from_secs(1));
    for second in 0..86_400 {
        prover.see(&at(NOON - DAY / 2 + second * S, 1));
    }
    let findings = prover.finish();
    assert_eq!((findings.refunds, findings.broken.count), (86_400, 0));
    // It takes less than a second. With each rule beside all others it took 26 s in a debug build.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
