//! Looks for refunds that no index finds: those whose time for inquiries is over, that may not be sent again any more, or
//! whose channel moved to another bank.

use std::time::{Duration, Instant};

use super::Recovery;
use super::batch_size::BatchSize;
use super::refusals::Refusals;
use crate::logs::chain;
use crate::refund::RefundId;
use crate::store::{LookPlace, Looked, RecoveryLook, StoreError};

/// How far the present round of one look has come.
#[derive(Debug)]
pub(super) struct LookProgress {
    /// The earliest moment to go on.
    at: Instant,
    after: LookPlace,
    /// How many rows the next call looks at.
    looks_at: BatchSize,
    /// The refunds that Postgres refused to move.
    refused: Refusals,
}

impl LookProgress {
    /// About a tenth of a second of work, and less than the time of a statement even on slow storage.
    const AT_MOST: u32 = 20_000;

    /// Whether some refund is left out now.
    pub fn leaves_out(&self, now: Instant) -> bool {
        self.refused.leaves_out(now)
    }
}

impl Default for LookProgress {
    fn default() -> Self {
        LookProgress {
            at: Instant::now(),
            after: LookPlace::default(),
            looks_at: BatchSize::new(Self::AT_MOST),
            refused: Refusals::default(),
        }
    }
}

impl Recovery {
    const LOOK_AT_LEAST_EVERY: Duration = Duration::from_mins(1);

    /// Looks at some rows, and goes on there in the next pass.
    pub(super) async fn look(&mut self, which: RecoveryLook) -> Result<Looked, StoreError> {
        let (store, look) = (&self.node.store, self.looks.entry(which).or_default());
        let began = Instant::now();
        if began < look.at {
            return Ok(Looked::default());
        }
        let (rows, resting) = (look.looks_at.now(), look.refused.resting(began));
        let mut looked = store.look_for(which, Self::AT_ONCE, rows, &look.after, &resting).await;
        // Postgres fails at this one refund. Step over it, so that the others are moved.
        if let Err(error) = &looked
            && look.looks_at.is_alone()
            && !error.is_away()
            && let Ok(Looked { next, .. }) = store.look_for(which, 0, 1, &look.after, &resting).await
        {
            // No row has the id 0: the refund has moved meanwhile. After a lock the next look tries again.
            let id = next.id;
            if id > 0 && (error.is_outage() || look.refused.note(RefundId(id), began)) {
                tracing::error!(
                    refund.id = %id, error = %chain(error),
                    "Postgres does not let recovery move refund {id}, and this node tries again in a later round. Mend what the error names",
                );
            }
            look.after = next;
        }
        look.refused.log_others("move");
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
