//! Property tests of all algorithms: the real scripts run with random rules, nodes and times.
//!
//! The judge knows only the granted permits and the times at which their requests may have reached the bank. A
//! limiter does not decide which permits a node uses, or when. So the judge assumes that each permit that the ledger
//! accepts arrives at the moment of its span that does the most harm.

mod judge;
mod ledger;
mod pauses;
mod scripts;
mod share;
mod world;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::limiter::{Algorithm, Rule};
use world::{Loss, World};

/// One step in the life of a limit.
#[derive(Debug, Clone)]
enum Step {
    /// Time passes, in millionths of the longest `per`; at most two million of them.
    Pass(u32),
    Take {
        node: usize,
        want: u32,
        /// Whether the permits are claimed at once, or as late as possible.
        at_once: bool,
    },
    Acquire {
        want: u32,
    },
    /// Redis writes a snapshot. A later loss may restart Redis from it.
    Save,
    Lose(Loss),
    /// A node loads another configuration file.
    Reload {
        node: usize,
        file: usize,
    },
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    (1u32..=50, 1u32..=100, any::<prop::sample::Index>())
        .prop_map(|(burst, segments, which)| which.get(&Algorithm::all(burst, segments)).clone())
}

fn rules_of(algorithms: impl Strategy<Value = Algorithm>) -> impl Strategy<Value = Rule> {
    let numbers = (1u32..=50, 50_000u64..=5_000_000, 1_000u64..=200_000);
    (algorithms, numbers).prop_map(|(algorithm, (permits, per, lateness))| Rule {
        algorithm,
        permits,
        per: std::time::Duration::from_micros(per),
        lateness: std::time::Duration::from_micros(lateness.min(per / 2 - 1)),
    })
}

fn wants() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(1u32), 4 => 1u32..=60]
}

fn passing() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(0u32),
        4 => 0u32..=30_000,
        3 => 0u32..=400_000,
        1 => 0u32..=2_000_000,
    ]
    .prop_map(Step::Pass)
}

fn taking() -> impl Strategy<Value = Step> {
    (0usize..4, wants(), any::<bool>()).prop_map(|(node, want, at_once)| Step::Take { node, want, at_once })
}

fn acquiring() -> impl Strategy<Value = Step> {
    (1u32..=5).prop_map(|want| Step::Acquire { want })
}

fn losing() -> impl Strategy<Value = Step> {
    let losses = [Loss::Flushed, Loss::Restarted, Loss::Both, Loss::Restored, Loss::Restored, Loss::Evicted];
    prop_oneof![2 => prop::sample::select(losses.to_vec()).prop_map(Step::Lose), 1 => Just(Step::Save)]
}

/// Another server takes over. Its clock differs by up to two seconds from the clock of the server before.
fn taking_over() -> impl Strategy<Value = Step> {
    let taken_over = (-1_000_000i64..=1_000_000, any::<bool>());
    let taken_over = taken_over.prop_map(|(clock, behind)| Step::Lose(Loss::TakenOver { clock, behind }));
    prop_oneof![3 => taken_over, 1 => Just(Step::Save)]
}

fn reloading() -> impl Strategy<Value = Step> {
    (0usize..4, 0usize..3).prop_map(|(node, file)| Step::Reload { node, file })
}

fn lead_times() -> impl Strategy<Value = [i64; 4]> {
    prop::array::uniform4(prop_oneof![Just(0i64), 0i64..=5_000, 0i64..=100_000])
}

/// Plays the steps with nodes that share these limits. `files[i]` has the rule of each limit in the i-th file.
fn play(
    files: &[Vec<Rule>],
    ahead: u32,
    lead_times: [i64; 4],
    steps: Vec<Step>,
) -> Result<World, TestCaseError> {
    let mut world = World::new(files, i64::from(ahead), lead_times);
    for step in steps {
        world.step(&step)?;
    }
    world.still_moves()?;
    judge::judge(&world)?;
    Ok(world)
}

/// How far ahead permits are granted, in millionths of the shortest `per`.
fn aheads() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0u32), 0u32..=500_000]
}

/// 64 cases of each property, or as many as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 64 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// As many cases of each algorithm.
fn config_of_each() -> ProptestConfig {
    let algorithms = u32::try_from(Algorithm::all(1, 1).len()).unwrap_or(1);
    ProptestConfig { cases: config().cases * algorithms, ..config() }
}

proptest! {
    #![proptest_config(config_of_each())]

    #[test]
    fn no_span_contains_more_than_the_rule_allows(
        rule in rules_of(algorithms()), ahead in aheads(), lead_times in lead_times(),
        steps in vec(prop_oneof![4 => passing(), 6 => taking(), 1 => acquiring()], 1..120),
    ) {
        play(&[vec![rule]], ahead, lead_times, steps)?;
    }

    #[test]
    fn a_redis_that_forgets_breaks_no_limit(
        rule in rules_of(algorithms()), ahead in aheads(), lead_times in lead_times(),
        steps in vec(prop_oneof![8 => passing(), 12 => taking(), 2 => acquiring(), 1 => losing()], 1..120),
    ) {
        play(&[vec![rule]], ahead, lead_times, steps)?;
    }

    #[test]
    fn other_numbers_keep_the_history(
        rule in rules_of(algorithms()), permits in 1u32..=50, more in 1u32..=50,
        ahead in aheads(), lead_times in lead_times(),
        steps in vec(prop_oneof![8 => passing(), 12 => taking(), 2 => acquiring(), 2 => reloading(), 1 => losing()], 1..120),
    ) {
        let other = Rule { permits, algorithm: rule.algorithm.clone().with_burst(more), ..rule.clone() };
        play(&[vec![rule], vec![other]], ahead, lead_times, steps)?;
    }

    #[test]
    fn another_rule_keeps_the_history(
        rule in rules_of(algorithms()), other in rules_of(algorithms()), third in rules_of(algorithms()),
        ahead in aheads(), lead_times in lead_times(),
        steps in vec(prop_oneof![16 => passing(), 24 => taking(), 3 => acquiring(), 2 => reloading(), 1 => losing()], 1..120),
    ) {
        play(&[vec![rule], vec![other], vec![third]], ahead, lead_times, steps)?;
    }
}

/// The algorithms that count spans. A fixed window is left out: there a late first byte matters only when it falls
/// into the next window.
fn dated() -> impl Strategy<Value = Algorithm> {
    algorithms().prop_filter("counts spans", |algorithm| !algorithm.is_numbered())
}

/// Several limits, of which at most one is paced. The slots of two paced limits seldom meet.
fn several() -> impl Strategy<Value = Vec<Rule>> {
    vec(rules_of(algorithms()), 2..=3).prop_map(|mut rules| {
        let mut paced = rules.iter().filter(|rule| rule.algorithm.is_paced()).count();
        rules.retain(|rule| {
            !rule.algorithm.is_paced() || {
                paced -= 1;
                paced == 0
            }
        });
        rules
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_server_with_another_clock_that_takes_over_breaks_no_limit(
        rule in rules_of(algorithms()), ahead in aheads(), lead_times in lead_times(),
        steps in vec(prop_oneof![8 => passing(), 8 => taking(), 6 => acquiring(), 2 => taking_over()], 1..120),
    ) {
        play(&[vec![rule]], ahead, lead_times, steps)?;
    }

    #[test]
    fn two_windows_at_most_meet_a_span_when_a_server_with_another_clock_takes_over(
        rule in rules_of(Just(Algorithm::FixedWindow { zone: None })), ahead in aheads(), lead_times in lead_times(),
        steps in vec(prop_oneof![8 => passing(), 14 => taking(), 2 => taking_over()], 1..120),
    ) {
        play(&[vec![rule]], ahead, lead_times, steps)?;
    }

    #[test]
    fn a_slot_acquired_ahead_counts_until_it_opens_after_a_takeover_by_another_clock(
        strict in any::<bool>(), permits in 1u32..=8, per in 500_000u64..=5_000_000, lateness in 1_000u64..=200_000, clock in 500_000i64..=4_000_000,
        before in vec(prop_oneof![2 => passing(), 3 => acquiring(), 1 => taking()], 1..12),
        after in vec(prop_oneof![3 => passing(), 2 => acquiring(), 1 => taking()], 1..12),
    ) {
        let micros = std::time::Duration::from_micros;
        let algorithm = if strict { Algorithm::PacedStrict } else { Algorithm::Paced };
        let rule = Rule { algorithm, permits, per: micros(per), lateness: micros(lateness) };
        let takeover = Step::Lose(Loss::TakenOver { clock, behind: false });
        play(&[vec![rule]], 0, [0; 4], before.into_iter().chain([takeover]).chain(after).collect())?;
    }

    #[test]
    fn a_late_first_byte_takes_one_more_permit_and_never_gives_one(
        rule in rules_of(algorithms()), lead_times in lead_times(),
        before in vec(prop_oneof![2 => passing(), 3 => taking()], 1..30),
        after in vec(prop_oneof![2 => passing(), 3 => taking()], 1..30), times in 1usize..=3,
    ) {
        let (mut world, mut twin) =
            (World::new(&[vec![rule.clone()]], 0, lead_times), World::new(&[vec![rule]], 0, lead_times));
        for step in before {
            world.step(&step)?;
            twin.step(&step)?;
        }
        for _ in 0..times {
            world.left_late()?;
        }
        for step in after {
            world.step(&step)?;
            twin.step(&step)?;
            prop_assert!(world.taken <= twin.taken, "{} after a late byte, {} without", world.taken, twin.taken);
        }
        judge::judge(&world)?;
    }

    #[test]
    fn the_permits_after_a_late_first_byte_keep_the_span_around_it(
        rule in rules_of(dated()), before in vec(prop_oneof![2 => passing(), 3 => taking()], 1..10),
        want in 1u32..=5, late in 0u32..=900_000,
    ) {
        let mut world = World::new(&[vec![rule.clone()]], 0, [0; 4]);
        for step in before {
            world.step(&step)?;
        }
        while world.try_take(0, want, true)?.count == 0 {
            world.wait(1_000);
        }
        // The process with the last permit was stalled between its look at the clock and its write.
        world.wait((world.last_closes().unwrap_or(0) - world.now()).max(0));
        world.pass(late);
        world.leave_now();
        world.left_late()?;
        let until = world.now() + 3 * scripts::micros(rule.per + rule.lateness);
        while world.now() < until {
            let taken = world.try_take(0, 5, true)?;
            if taken.count == 0 {
                world.wait(taken.wait);
            }
        }
        judge::judge(&world)?;
    }

    #[test]
    fn several_limits_grant_together_or_not_at_all(
        rules in several(), ahead in aheads(), lead_times in lead_times(),
        steps in vec(prop_oneof![8 => passing(), 12 => taking(), 1 => losing()], 1..120),
    ) {
        play(&[rules], ahead, lead_times, steps)?;
    }
}
