//! The hands at Redis: one loses it and sets its clock, the other forges what it says.

use std::time::Duration;

use jiff::SignedDuration;
use playground::Forger;

use super::pause;
use crate::world::{NODES, World, now_us};

/// How far apart the clocks of Redis and Postgres are set: within the nodes' `clock_tolerance` of 5 s, with some room for the
/// length of a window.
pub const FARTHEST: SignedDuration = SignedDuration::from_millis(4_200);

/// Loses Redis, makes it forget, splits it, or sets its clock.
pub async fn play(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let _settled = world.settled.read().await;
    let (pair, from_us) = (&world.redis, now_us());
    let kind = match dice.u8(..8) {
        0 => {
            pair.primary().flush().await?;
            "Redis flushed"
        }
        1 => {
            pair.primary().kill_hard().await?;
            pause(dice, 0, 1_500).await;
            pair.primary().restart(None).await?;
            "Redis killed"
        }
        2 => {
            let old = pair.primary().snapshot().await?;
            pause(dice, 50, 3_000).await;
            pair.primary().restart(Some(&old)).await?;
            "Redis from an old snapshot"
        }
        3 => {
            pair.attach().await?;
            pause(dice, 0, 200).await;
            pair.sever().await?;
            pause(dice, 10, 1_000).await;
            pair.promote().await?;
            "Redis replica promoted"
        }
        4 => {
            pair.attach().await?;
            pause(dice, 0, 300).await;
            let mut doors: Vec<usize> = (0..NODES.len()).collect();
            dice.shuffle(&mut doors);
            doors.truncate(dice.usize(1..NODES.len()));
            pair.split(&doors).await?;
            pause(dice, 50, 3_000).await;
            pair.heal().await?;
            "Redis split in two"
        }
        5 => {
            pair.attach().await?;
            pair.depose().await?;
            "Redis demoted, conversations kept"
        }
        _ => {
            // 10 ms to 4 s, each order of magnitude equally likely. The clock stays within the tolerance.
            let size = SignedDuration::from_secs_f64(0.01 * 400_f64.powf(dice.f64()));
            let by = if dice.bool() { size } else { -size };
            let primary = pair.primary();
            let apart = primary.ahead() - world.stage.postgres.ahead();
            let by = if (apart + by).abs() > FARTHEST { -by } else { by };
            primary.step_clock(by).await?;
            if by.is_positive() { "Redis's clock forward" } else { "Redis's clock back" }
        }
    };
    world.record_fault(kind, from_us);
    Ok(())
}

/// Forges what Redis says about one limit: what was spent, for a while; its rule; or garbage.
pub async fn lies(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let _settled = world.settled.read().await;
    let (url, from_us) = (world.redis.primary().admin_url(), now_us());
    let (kind, length) = (dice.u8(..6), Duration::from_millis(dice.u64(100..3_000)));
    // Redis may be away. Then nothing is forged this time.
    let keys = Forger::limits(&url).await.unwrap_or_default();
    // A slow limit is always used up, so that a permit too many shows. Half of the lies are about one of them, whose
    // numbers alone do not keep its rule.
    let (slow, others): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| key.contains("{slow}"));
    let among = if dice.bool() { slow } else { others };
    let Some(key) = dice.choice(among) else { return Ok(()) };
    let Ok(mut forger) = Forger::of(&url, key).await else { return Ok(()) };
    let (what, forged) = match kind {
        0..=3 => ("forgets what was spent", forger.keep_forgetting(length).await),
        4 => (
            "has a forged rule",
            forger.write_rule(dice.choice(["fixed_window", "sliding_log"]).unwrap_or("")).await,
        ),
        _ => {
            let spared = dice.usize(..5);
            let garbage = dice.choice(["", "garbage", "-1", "1e300", "nan"]).unwrap_or("");
            ("says garbage", forger.write_garbage(garbage, |place| place % 5 == spared).await)
        }
    };
    // A forger whose connection broke may have forged a lot until then.
    let until = if forged.is_ok() { "" } else { ", until its connection broke" };
    world.record_forgery(forger.key, format!("Redis {what}{until}"), from_us);
    Ok(())
}
