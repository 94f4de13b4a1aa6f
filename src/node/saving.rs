//! Whether refunds can be saved through this node: the last failure of a save over HTTP that other refunds meet, too.
//!
//! Pings and heartbeats may work while no refund can be saved: somebody builds an index on `refundd.refunds`, or the
//! role of the nodes lost a right. Health and metrics show the failure; no loop decides by it.
//!
//! A failure ends without callers, too. A load balancer may send nothing to a node whose health is bad, and then no save
//! can show that the cause is gone. So after a failure a task tries to save no refund at all, once a second.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Node;
use crate::lock::Lock;
use crate::logs::chain;
use crate::store::StoreError;

/// How saves over HTTP fail at present.
#[derive(Debug, Default)]
pub struct Saving(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failure: Option<Failure>,
    /// A task tries whether saving works again.
    is_tried: bool,
    /// How many refunds in a row took Postgres too long.
    too_slow: u32,
}

impl State {
    fn end(&mut self) {
        if self.failure.take().is_some() {
            tracing::info!("Refunds can be saved again");
        }
    }
}

#[derive(Debug)]
struct Failure {
    why: String,
    at: Instant,
    of: Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// To save a refund. To save none may work meanwhile.
    ToSave,
    /// To save none.
    ToTry,
}

impl Saving {
    /// A failure to save a refund counts at least so long, unless a refund is saved.
    const LEAST: Duration = Duration::from_secs(3);
    const TRY_EVERY: Duration = Duration::from_secs(1);

    /// Why refunds cannot be saved; `None` while they can.
    pub fn trouble(&self) -> Option<String> {
        self.0.locked().failure.as_ref().map(|failure| failure.why.clone())
    }

    /// Notes that a refund was saved.
    pub fn worked(&self) {
        let mut state = self.0.locked();
        state.too_slow = 0;
        state.end();
    }

    /// Notes a refund that took Postgres too long. Returns whether it is not the first one since a refund was saved.
    fn was_too_slow(&self) -> bool {
        let mut state = self.0.locked();
        state.too_slow = state.too_slow.saturating_add(1);
        state.too_slow > 1
    }

    fn failed(&self, of: Failed, error: &StoreError) {
        let why = chain(error).to_string();
        let mut state = self.0.locked();
        if state.failure.is_none() {
            tracing::warn!(error = why, "No refund can be saved through this node: {why}");
        }
        state.failure = Some(Failure { why, at: Instant::now(), of });
    }

    /// Whether the caller is to begin trying.
    fn begins_to_try(&self) -> bool {
        !std::mem::replace(&mut self.0.locked().is_tried, true)
    }

    /// Notes that saving no refund worked. Returns whether nothing is left to try.
    fn passed(&self, now: Instant) -> bool {
        let mut state = self.0.locked();
        let is_over = |failure: &Failure| {
            failure.of == Failed::ToTry || now.saturating_duration_since(failure.at) >= Self::LEAST
        };
        if state.failure.as_ref().is_none_or(is_over) {
            state.end();
            state.is_tried = false;
        }
        !state.is_tried
    }
}

impl Node {
    /// Notes that a save failed. The failure counts unless it is about the refund alone.
    ///
    /// A lock may be one that somebody keeps on this refund or on the whole table. So it counts when saving no refund
    /// fails, too. One refund may take Postgres too long. So that counts if no refund is saved before the next such one.
    pub fn note_failed_save(&self, error: &StoreError) {
        if error.is_about_the_row() {
            return;
        }
        if !error.is_a_lock() && (!error.is_too_slow() || self.saving.was_too_slow()) {
            self.saving.failed(Failed::ToSave, error);
        }
        if self.saving.begins_to_try() {
            tokio::spawn(self.clone().try_to_save());
        }
    }

    /// Tries until saving works.
    async fn try_to_save(self) {
        loop {
            match self.store.save_unless_locked(&[]).await {
                Err(error) => self.saving.failed(Failed::ToTry, &error),
                Ok(_) if self.saving.passed(Instant::now()) => return,
                Ok(_) => {}
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(Saving::TRY_EVERY) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_counts_until_a_refund_is_saved_or_for_three_seconds_after_which_saving_nothing_works() {
        let error = || StoreError::Statement { doing: "save refunds", source: sqlx::Error::PoolTimedOut };
        let (saving, now) = (Saving::default(), Instant::now());
        assert_eq!(saving.trouble(), None);
        saving.failed(Failed::ToSave, &error());
        assert!(saving.begins_to_try() && !saving.begins_to_try(), "one task tries");
        assert!(!saving.passed(now) && saving.trouble().unwrap().contains("save refunds"));
        assert!(saving.passed(now + Saving::LEAST + Duration::from_secs(1)));
        assert!(saving.trouble().is_none() && saving.begins_to_try());
        saving.failed(Failed::ToSave, &error());
        saving.failed(Failed::ToTry, &error());
        assert!(saving.passed(now) && saving.trouble().is_none(), "the failure of a try ends with the next");
        saving.failed(Failed::ToSave, &error());
        saving.worked();
        assert_eq!(saving.trouble(), None);
    }
}
