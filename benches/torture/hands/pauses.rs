//! The person who pauses a channel for good, and resumes it much later.

use std::time::Duration;

use refundd::store::Pause;

use crate::channels::{CHANNELS, Channel};
use crate::world::{World, now_us};

/// Pauses a channel if none is paused, or resumes the one that was paused for long enough. Postgres may be away, so the
/// person repeats what was not acknowledged. Steady channels are spared: the time to their next request says how long a fault stopped them.
pub async fn pause_or_resume(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let soon = Duration::from_millis(200);
    if let Some(pause) = world.paused.lasting() {
        if now_us() > pause.planned_us {
            world.paused.end(now_us());
            while world.store.resume(pause.channel, "torture", None).await.is_err() {
                tokio::time::sleep(soon).await;
            }
            world.record_fault("channel paused for good", pause.from_us);
        }
        return Ok(());
    }
    let paused: Vec<&Channel> = CHANNELS.iter().filter(|channel| !channel.is_steady()).collect();
    let channel = paused[dice.usize(..paused.len())].name;
    let lasts_us = dice.i64(12_000_000..40_000_000);
    let pause = Pause { reason: "nobody trusts this bank today", who: "torture", lasts: None };
    while world.store.pause(channel, &pause).await.is_err() {
        tokio::time::sleep(soon).await;
    }
    world.paused.begin(channel, now_us(), lasts_us);
    Ok(())
}
