//! How soon a limit goes on after a reload, and after the loss of one of its keys.

use proptest::prelude::TestCaseError;

use super::judge;
use super::scripts::micros;
use super::world::{Loss, World};
use crate::limiter::Rule;

fn rule(algorithm: &str, permits: u32) -> Rule {
    rule_per(1, algorithm, permits)
}

fn rule_per(seconds: u32, algorithm: &str, permits: u32) -> Rule {
    let more = match algorithm {
        "sliding_window" => r#","segments":10"#,
        "token_bucket" => r#","burst":5"#,
        _ => "",
    };
    let text = format!(
        r#"{{"algorithm":"{algorithm}","permits":{permits},"per_us":{seconds}000000,"lateness_us":20000{more}}}"#
    );
    text.parse().unwrap()
}

/// Takes for so many us, as often as the replies say.
fn take_for(world: &mut World, us: i64) -> Result<(), TestCaseError> {
    let until = world.now() + us;
    while world.now() < until {
        let taken = world.try_take(0, 10, true)?;
        world.wait(taken.wait);
    }
    Ok(())
}

/// How long a limit in full use grants nothing after a reload, in us.
fn pause_between(old: &Rule, new: &Rule) -> Result<i64, TestCaseError> {
    let span = micros(old.per + old.lateness);
    let ahead = 50_000_000_000 / micros(old.per); // 50 ms, in millionths of `per`
    let mut world = World::new(&[vec![old.clone()], vec![new.clone()]], ahead, [0; 4]);
    take_for(&mut world, 3 * span)?;
    world.reload(0, 1);
    let reloaded = world.now();
    let pause = loop {
        let asked = world.now();
        let taken = world.try_take(0, 1, true)?;
        if taken.count > 0 {
            break asked - reloaded;
        }
        world.wait(taken.wait);
    };
    take_for(&mut world, 3 * span)?;
    judge::judge(&world)?;
    Ok(pause)
}

#[test]
fn a_reload_to_a_slower_paced_limit_waits_for_one_span_and_not_for_each_old_permit() {
    let span = 1_020_000;
    for (old, new, windows) in [
        (rule("paced", 100), rule("paced", 1), 0),
        (rule("paced", 100), rule("paced", 10), 0),
        (rule("paced", 100), rule("paced_strict", 1), 0),
        (rule("paced", 100), rule("paced_strict", 10), 0),
        (rule("sliding_log", 100), rule("paced", 1), 0),
        (rule("fixed_window", 100), rule("paced", 10), 1),
    ] {
        let pause = pause_between(&old, &new).unwrap();
        // From the last old permit one span, and up to one slot of the grid. The ledger dates a permit up to 0.3 s after it was
        // spent, and one of a window at the window's end.
        let longest = span + new.spacing_us().cast_signed() + 400_000 + windows * 1_000_000;
        assert!(pause <= longest, "{pause} us from {old} to {new}");
    }
}

#[test]
fn a_long_window_that_becomes_another_kind_goes_on_after_one_span() {
    let window = rule_per(300, "fixed_window", 10);
    for kind in ["sliding_log", "sliding_window", "token_bucket", "paced"] {
        let new = rule_per(300, kind, 10);
        let pause = pause_between(&window, &new).unwrap();
        // A permit counts for its life of 10 s as spent now. `paced` waits for a slot more.
        let longest = 300_000_000 + 10_000_000 + new.spacing_us().cast_signed() + 1_000_000;
        assert!(pause <= longest, "{pause} us to {new}");
    }
}

#[test]
fn a_sliding_log_that_lost_its_log_alone_goes_on_at_its_rate() {
    let rule = rule("sliding_log", 40);
    let span = micros(rule.per + rule.lateness);
    let mut world = World::new(&[vec![rule]], 50_000, [0; 4]);
    take_for(&mut world, 2 * span).unwrap();
    world.wait(2 * span);
    let before = world.taken;
    world.lose(Loss::Evicted);
    take_for(&mut world, span).unwrap();
    assert!(world.taken - before >= 30, "{} permits in a span without old ones", world.taken - before);
    world.lose(Loss::Evicted);
    take_for(&mut world, 3 * span).unwrap();
    judge::judge(&world).unwrap();
}
