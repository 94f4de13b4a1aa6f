//! How soon a limit goes on after a reload, and after the loss of one of its keys.

use proptest::prelude::TestCaseError;

use super::judge;
use super::scripts::micros;
use super::world::{Loss, World};
use crate::limiter::Rule;

fn rule(algorithm: &str, permits: u32) -> Rule {
    let text =
        format!(r#"{{"algorithm":"{algorithm}","permits":{permits},"per_us":1000000,"lateness_us":20000}}"#);
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
    let mut world = World::new(&[vec![old.clone()], vec![new.clone()]], 50_000, [0; 4]);
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
