//! The hands at Postgres: one breaks it, the other sets its clock.

use std::time::Duration;

use jiff::SignedDuration;
use playground::PrivateRedis;

use super::{pause, redis};
use crate::world::{World, now_us};

/// How far Postgres's clock is set from the machine's clock at most. Two steps the same way are then shorter than the 5 s
/// for which a node takes permits of its share, and a dead node's share stays idle for longer than that.
const FARTHEST: SignedDuration = SignedDuration::from_secs(2);
/// Longer than a heartbeat, and than a limit of a second counts back or rests after another server of Redis took over.
const ALONE: Duration = Duration::from_millis(2_500);

/// Restarts Postgres, crashes it, fails it over, or lets it refuse writes.
pub async fn play(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let _settled = world.settled.read().await;
    let (postgres, from_us) = (&world.stage.postgres, now_us());
    let kind = match dice.u8(..12) {
        0 | 1 => {
            postgres.fail_over(Duration::from_millis(dice.u64(..2_000))).await?;
            "Postgres's standby promoted"
        }
        2 => {
            postgres.restart().await?;
            "Postgres restarted"
        }
        3 | 4 => {
            postgres.kill_hard().await?;
            pause(dice, 0, 2_000).await;
            postgres.start_again().await?;
            "Postgres crashed"
        }
        5..=7 => {
            world.stage.terminate_backends().await?;
            "Postgres conversations ended"
        }
        8 | 9 => {
            postgres.set_read_only(true).await?;
            pause(dice, 300, 3_000).await;
            postgres.set_read_only(false).await?;
            "Postgres read-only"
        }
        _ => {
            world.stage.fill_disk().await?;
            pause(dice, 300, 3_000).await;
            world.stage.empty_disk().await?;
            "Postgres's disk full"
        }
    };
    world.record_fault(kind, from_us);
    Ok(())
}

/// Sets Postgres's clock forward or back by 10 ms to 4 s, each order of magnitude equally likely. Most times it does nothing: the
/// other hands must wait for it.
///
/// The step stands alone. Where Redis forgets, the ledger tells by Postgres's clock what was spent, and so do the shares of a node
/// that ended. Nodes write a step down within a heartbeat, and steps of up to 1 s never. So for that moment only the counts that
/// are there are right. And two steps between two heartbeats look like one. So the hands that stop nodes, Redis or Postgres
/// wait before a step and after it.
///
/// A standby is promoted at the old server's address and with the old server's clock, so its promotion is no step.
pub async fn set_clock(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    if dice.u8(..20) != 0 {
        return Ok(());
    }
    let size = SignedDuration::from_secs_f64(0.01 * 400_f64.powf(dice.f64()));
    let first = if dice.bool() { size } else { -size };
    let _alone = world.settled.write().await;
    tokio::time::sleep(ALONE).await;
    let postgres = &world.stage.postgres;
    // The second server of Redis may become the primary, with the clock that it has.
    let clocks = [world.redis.primary(), world.redis.second()].map(PrivateRedis::ahead);
    let is_near = |by: &SignedDuration| {
        let ahead = postgres.ahead() + *by;
        let is_near_redis = clocks.iter().all(|of_redis| (*of_redis - ahead).abs() <= redis::FARTHEST);
        ahead.abs() <= FARTHEST && is_near_redis
    };
    let Some(by) = [first, -first].into_iter().find(is_near) else { return Ok(()) };
    let from_us = now_us();
    world.step_postgres(by)?;
    tokio::time::sleep(ALONE).await;
    world.record_fault(
        if by.is_positive() { "Postgres's clock forward" } else { "Postgres's clock back" },
        from_us,
    );
    Ok(())
}
