//! Tests which share of its rate a limit grants, while the bucket is never empty and every node waits as long as the
//! scripts say.

use std::collections::BinaryHeap;
use std::time::Duration;

use super::judge;
use super::scripts::micros;
use super::world::{Taken, World};
use crate::limiter::{Algorithm, Permit, Rule, Supply, timing};

/// Plays `nodes` nodes with up to four lead times, for 20 cycles of the rule. Returns the share of the rule's rate
/// that was granted, and the number of calls for each permit.
fn share(rules: &[Rule], ahead_ms: i64, nodes: usize, want: u32, lead_times: [i64; 4]) -> (f64, f64) {
    let rule = rules.last().unwrap();
    let mut world = World::new(&[rules.to_vec()], 0, lead_times);
    world.ahead = ahead_ms * 1000;
    // Between a permit and the next call lie a claim and a round trip.
    let pause = |node: usize| 1_500 + 300 * i64::try_from(node % 7).unwrap();
    let mut wakes: BinaryHeap<(std::cmp::Reverse<i64>, usize)> = (0..nodes)
        .map(|node| (std::cmp::Reverse(world.now() + 1000 * i64::try_from(node).unwrap()), node))
        .collect();
    // The time in which the rule grants its permits once.
    let cycle = match rule.algorithm.supply() {
        Supply::Slots => rule.spacing_us().cast_signed() * i64::from(rule.permits),
        Supply::OneByOne | Supply::Together => micros(rule.window().unwrap_or_else(|| rule.memory())),
    };
    let (begin, end) = (world.now() + 3 * cycle, world.now() + 23 * cycle);
    let (mut calls, mut before) = (0, None);
    while let Some((std::cmp::Reverse(at), node)) = wakes.pop() {
        if at > end {
            break;
        }
        world.wait((at - world.now()).max(0));
        if at >= begin && before.is_none() {
            before = Some(world.taken);
        }
        let Taken { wait, .. } = world.try_take(node % 4, want, true).unwrap();
        calls += i64::from(before.is_some());
        wakes.push((
            std::cmp::Reverse(world.now() + wait.min(micros(timing::STAYS_AWAY)) + pause(node)),
            node,
        ));
    }
    judge::judge(&world).unwrap();
    let taken = world.taken - before.unwrap();
    let due = 20.0 * f64::from(rule.permits);
    (taken as f64 / due, calls as f64 / taken as f64)
}

/// Rules of every algorithm, with these numbers of permits and this length.
fn rules(permits: &[u32], per: Duration) -> Vec<Rule> {
    let lateness = Duration::from_millis(20);
    let rule =
        |algorithm: &Algorithm, permits: u32| Rule { algorithm: algorithm.clone(), permits, per, lateness };
    let mut rules = Vec::new();
    for algorithm in Algorithm::all(1, 10) {
        rules.extend(permits.iter().map(|permits| rule(&algorithm, *permits)));
        if algorithm.burst().is_some() {
            rules.push(rule(&algorithm.with_burst(10), 50));
        }
    }
    rules
}

#[test]
fn nodes_that_wait_as_long_as_they_must_leave_no_permit_unused() {
    let mut all = rules(&[1, 50], Duration::from_secs(1));
    // Slots that do not divide a second.
    all.extend(rules(&[7], Duration::from_secs(1)).into_iter().filter(|rule| rule.algorithm.is_paced()));
    for rule in all {
        for (nodes, want) in [(1, 1), (1, 16), (1, 64), (3, 16), (20, 1), (20, 16)] {
            let (share, calls) =
                share(std::slice::from_ref(&rule), 50, nodes, want, [0, 2_000, 5_000, 10_000]);
            println!("{rule}, {nodes} nodes that want {want}: share {share:.3}, calls a permit {calls:.2}");
            assert!(share >= 0.94, "{nodes} nodes that want {want} use {share:.3} of {rule}");
            assert!(calls <= 3.01, "{nodes} nodes that want {want} need {calls:.2} calls a permit, {rule}");
        }
    }
}

/// The share of a paced limit that a node uses whose bucket for sends is never empty, while one permit in ten is due to an inquiry; and
/// whether inquiries get their permits. Sends and inquiries ask with these lead times, in us.
fn share_with_inquiries(permits: u32, sends: i64, inquiries: i64) -> (f64, bool) {
    let (per, lateness) = (Duration::from_secs(1), Duration::from_millis(20));
    let rule = Rule { algorithm: Algorithm::Paced, permits, per, lateness };
    let mut world = World::new(&[vec![rule.clone()]], 0, [sends, inquiries, 0, 0]);
    world.ahead = 50_000;
    // Restores the count.
    world.try_take(0, 1, true).unwrap();
    let (began, before) = (world.now(), world.taken);
    // When the worker for sends takes next, and when the worker for inquiries does.
    let (mut sends_at, mut asks_at) = (began, i64::MAX);
    let (mut sent, mut asked) = (0, 0);
    while world.now() < began + 10_000_000 {
        let is_inquiry = asks_at <= sends_at;
        world.wait((sends_at.min(asks_at) - world.now()).max(0));
        let want = if is_inquiry { sent / 9 - asked } else { 16 };
        let Taken { count, wait } =
            world.try_take(usize::from(is_inquiry), u32::try_from(want).unwrap(), true).unwrap();
        let at = world.now() + wait + 1_500;
        *(if is_inquiry { &mut asks_at } else { &mut sends_at }) = at;
        *(if is_inquiry { &mut asked } else { &mut sent }) += count;
        if sent / 9 == asked {
            asks_at = i64::MAX;
        } else if asks_at == i64::MAX {
            asks_at = world.now() + 1_500;
        }
    }
    judge::judge(&world).unwrap();
    let slots = (world.now() - began) as f64 / rule.spacing_us() as f64;
    ((world.taken - before) as f64 / slots, asked * 12 >= sent)
}

#[test]
fn inquiries_that_ask_as_early_as_sends_leave_no_slot_unused() {
    for permits in [10, 50, 200] {
        for (sends, inquiries) in [(3_000, 4_000), (30_000, 30_000)] {
            let (share, have_theirs) = share_with_inquiries(permits, sends, inquiries);
            assert!(
                share >= 0.94 && have_theirs,
                "{permits} a second, {sends} us: {share:.3}, {have_theirs}"
            );
        }
    }
    // The reason why they do not ask with the longest lead time.
    let (share, have_theirs) = share_with_inquiries(200, 3_000, micros(Permit::LONGEST_LEAD_TIME));
    assert!(share < 0.8 && have_theirs, "{share:.3}, {have_theirs}");
    // The reason why they ask no later than sends.
    let (_, have_theirs) = share_with_inquiries(50, 30_000, 4_000);
    assert!(!have_theirs, "sends see further, and leave no slot");
}

/// Of a limit that is used up, each visit takes several permits. Asking for each permit would cost a claim for each.
#[test]
fn nodes_at_a_limit_that_is_used_up_take_several_permits_at_each_visit() {
    let mut all = rules(&[100], Duration::from_secs(1));
    all.extend(rules(&[600], Duration::from_mins(1)));
    all.push(Rule { algorithm: Algorithm::TokenBucket { burst: 100 }, ..all[0].clone() });
    let is_of_many =
        |rule: &Rule| !rule.algorithm.is_paced() && rule.algorithm.burst().is_none_or(|burst| burst > 10);
    for rule in all.into_iter().filter(is_of_many) {
        let (share, calls) = share(std::slice::from_ref(&rule), 50, 20, 64, [4_000; 4]);
        println!("{rule}, 20 nodes that want 64: share {share:.3}, calls a permit {calls:.2}");
        assert!(calls <= 0.6, "20 nodes that want 64 need {calls:.2} calls a permit, {rule}");
    }
}

#[test]
fn a_node_that_asks_again_too_early_does_not_miss_its_turn() {
    // Where permits are rare, a node that misses its turn leaves a permit unused.
    let mut rare = rules(&[1], Duration::from_secs(70));
    rare.extend(rules(&[2], Duration::from_hours(2)).into_iter().filter(|rule| rule.algorithm.is_paced()));
    for rule in rare {
        for nodes in [1, 3] {
            let (share, calls) = share(std::slice::from_ref(&rule), 50, nodes, 16, [0, 2_000, 5_000, 10_000]);
            println!("{rule}, {nodes} nodes: share {share:.3}, calls a permit {calls:.2}");
            assert!(share >= 0.94, "{nodes} nodes use {share:.3} of {rule}");
        }
    }
}

/// A node looks at its own share before it asks for refunds. While the bucket is empty it takes nothing after the look.
#[test]
fn looks_at_a_share_that_take_nothing_put_off_no_later_take() {
    let (per, lateness) = (Duration::from_mins(1), Duration::from_millis(20));
    let rule = Rule { algorithm: Algorithm::Paced, permits: 10, per, lateness };
    let spacing = rule.spacing_us().cast_signed();
    let mut world = World::new(&[vec![rule]], 0, [0; 4]);
    world.ahead = 50_000;
    for nth in 1..=10 {
        let Taken { count, wait } = world.reserve("look", 5).unwrap();
        if count == 0 {
            // The first look is seldom just before a slot.
            assert!(nth == 1 && wait <= spacing, "look {nth} is denied and waits for {wait} us");
            world.wait(wait);
        } else {
            assert_eq!(count, 1);
            assert!(wait <= spacing, "after look {nth} the wait is {wait} us, slots are {spacing} us apart");
        }
    }
    let wait = world.reserve("look", 5).unwrap().wait;
    assert!(wait <= spacing, "the wait is {wait} us, slots are {spacing} us apart");
    assert_eq!(world.reserve("spend", 1).unwrap().count, 1);
    world.wait(wait);
    assert_eq!(world.reserve("look", 5).unwrap().count, 1, "the next slot is not lost");
}

/// A limit over a long time opens its permits in groups, as long as it has permits. Nobody waits for a turn then.
#[test]
fn a_long_limit_that_has_permits_left_lets_no_node_wait_for_a_turn() {
    let lateness = Duration::from_millis(20);
    for (permits, per) in [(5_000, Duration::from_hours(24)), (600, Duration::from_mins(1))] {
        for algorithm in [Algorithm::SlidingLog, Algorithm::SlidingWindow { segments: 10 }] {
            let rule = Rule { algorithm, permits, per, lateness };
            let mut world = World::new(&[vec![rule.clone()]], 0, [2_000; 4]);
            world.ahead = 50_000;
            let began = world.now();
            let mut node = 0;
            while world.taken < 500 {
                let Taken { wait, .. } = world.try_take(node, 128, true).unwrap();
                assert!(wait < 200_000, "{rule}: node {node} waits {wait} us after {} permits", world.taken);
                world.wait(wait.max(1_500));
                node = (node + 1) % 3;
            }
            assert!(world.now() - began < 3_000_000, "{rule}: {} us for 500 permits", world.now() - began);
            judge::judge(&world).unwrap();
        }
    }
}

#[test]
fn a_slowed_channel_goes_at_the_share_it_may() {
    let text = "[limit.acme]\nalgorithm = \"paced\"\npermits = PERMITS\nper = \"1s\"\n\
                [channel.acme]\nendpoint = \"http://localhost/refunds\"\nlimits = [\"acme\"]\n";
    for permits in [1, 20] {
        let config = crate::config::Config::of_tables(&text.replace("PERMITS", &permits.to_string()));
        for percent in [50, 60, 70, 90] {
            let slowed = config.channels.values().next().unwrap().slowed_to(percent).unwrap();
            let rules: Vec<Rule> = slowed.limits.iter().map(|limit| limit.rule.clone()).collect();
            let (share, _) = share(&rules, 50, 2, 16, [0, 2_000, 5_000, 10_000]);
            // A slowed channel uses slots of its own limit. Above half of that rate, it gets either half or all.
            assert!(share >= 0.5, "{share:.3} of {percent} % of {permits} a second");
        }
    }
}
