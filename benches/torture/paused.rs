//! The person who pauses a channel for good, and resumes it much later or when the run ends.

use std::sync::Mutex;
use std::time::Duration;

use refundd::lock::Lock;
use refundd::store::Pause;

use crate::channels::{CHANNELS, Channel};
use crate::world::{World, now_us};

/// A pause of one channel, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct LongPause {
    pub channel: &'static str,
    /// When Postgres had acknowledged the pause.
    pub from_us: i64,
    /// When the person means to end it.
    planned_us: i64,
    /// When the person began to end it; `None` while it lasts.
    pub until_us: Option<i64>,
}

/// All pauses of a run. At most the last one still lasts.
#[derive(Debug, Default)]
pub struct LongPauses(Mutex<Vec<LongPause>>);

impl LongPauses {
    pub fn all(&self) -> Vec<LongPause> {
        self.0.locked().clone()
    }

    /// The pause that lasts.
    fn lasting(&self) -> Option<LongPause> {
        self.0.locked().last().copied().filter(|last| last.until_us.is_none())
    }

    fn begin(&self, channel: &'static str, lasts_us: i64) {
        let from_us = now_us();
        let pause = LongPause { channel, from_us, planned_us: from_us + lasts_us, until_us: None };
        self.0.locked().push(pause);
    }

    /// Notes that the channel that is paused may send again from now on.
    pub fn end(&self) {
        if let Some(last) = self.0.locked().last_mut() {
            last.until_us.get_or_insert_with(now_us);
        }
    }
}

/// Pauses a channel if none is paused, or resumes the one that was paused for long enough. Postgres may be away, so the
/// person repeats what was not acknowledged. Steady channels are spared: the time to their next request says how long a fault stopped them.
pub async fn pause_or_resume(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let soon = Duration::from_millis(200);
    if let Some(pause) = world.paused.lasting() {
        if now_us() > pause.planned_us {
            world.paused.end();
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
    world.paused.begin(channel, lasts_us);
    Ok(())
}
