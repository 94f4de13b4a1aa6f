//! The pauses of channels for good: a person ends them much later, or when the run ends.

use std::sync::Mutex;

use refundd::lock::Lock;

/// A pause of one channel, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct LongPause {
    pub channel: &'static str,
    /// When Postgres had acknowledged the pause.
    pub from_us: i64,
    /// When the person means to end it.
    pub planned_us: i64,
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
    pub fn lasting(&self) -> Option<LongPause> {
        self.0.locked().last().copied().filter(|last| last.until_us.is_none())
    }

    pub fn begin(&self, channel: &'static str, from_us: i64, lasts_us: i64) {
        let pause = LongPause { channel, from_us, planned_us: from_us + lasts_us, until_us: None };
        self.0.locked().push(pause);
    }

    /// Notes that the channel that is paused may send again from now on.
    pub fn end(&self, now_us: i64) {
        if let Some(last) = self.0.locked().last_mut() {
            last.until_us.get_or_insert(now_us);
        }
    }
}
