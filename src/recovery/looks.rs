//! Looks for refunds that no index finds: those whose time for inquiries is over, that may not be sent again any more, or
//! whose channel moved to another bank.

use std::time::{Duration, Instant};

use super::Recovery;
use super::batch_size::BatchSize;
use crate::store::{LookPlace, Looked, RecoveryLook, StoreError};
use crate::telemetry::chain;

/// How far the present round of one look has come.
#[derive(Debug)]
pub(super) struct LookProgress {
    /// The earliest moment to go on.
    at: Instant,
    after: LookPlace,
    /// How many rows the next call looks at.
    looks_at: BatchSize,
}

impl LookProgress {
    /// About a tenth of a second of work, and less than the time of a statement even on slow storage.
    const AT_MOST: u32 = 20_000;
}

impl Default for LookProgress {
    fn default() -> Self {
        LookProgress {
            at: Instant::now(),
            after: LookPlace::default(),
            looks_at: BatchSize::new(Self::AT_MOST),
        }
    }
}

impl Recovery {
    const LOOK_AT_LEAST_EVERY: Duration = Duration::from_mins(1);

    /// Looks at some rows, and goes on there in the next pass.
    pub(super) async fn look(&mut self, which: RecoveryLook) -> Result<Looked, StoreError> {
        let began = Instant::now();
        let (store, look) = (&self.node.store, self.looks.entry(which).or_default());
        if began < look.at {
            return Ok(Looked::default());
        }
        let mut looked = store.look_for(which, Self::AT_ONCE, look.looks_at.now(), &look.after).await;
        // Postgres refuses to move this one refund. Step over it, so that the others are moved; the next round tries again.
        if let Err(error) = &looked
            && look.looks_at.is_alone()
            && !error.is_away()
            && let Ok(Looked { next, .. }) = store.look_for(which, 0, 1, &look.after).await
        {
            tracing::error!(
                refund.id = %next.id, error = %chain(error),
                "Postgres does not let recovery move refund {}, and this node tries again in its next round. Mend what the error names", next.id,
            );
            look.after = next;
        }
        look.at = Self::next_after(began, Self::LOOK_AT_LEAST_EVERY);
        match &mut looked {
            Ok(looked) => {
                look.after = std::mem::take(&mut looked.next);
                look.looks_at.worked();
            }
            Err(error) if error.is_away() => {}
            Err(_) => look.looks_at.failed(look.looks_at.now()),
        }
        looked
    }
}
