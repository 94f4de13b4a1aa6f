//! Shows a person the refunds whose time for inquiries is over.

use std::time::{Duration, Instant};

use super::Recovery;
use super::batch_size::BatchSize;
use crate::refund::RefundId;
use crate::store::{OverduePlace, StoreError};

/// How far the present round over the planned inquiries has come.
#[derive(Debug)]
pub(super) struct OverdueLook {
    /// The earliest moment to go on.
    at: Instant,
    after: OverduePlace,
    /// How many inquiries the next call looks at.
    looks_at: BatchSize,
}

impl OverdueLook {
    /// About a tenth of a second of work, and less than the time of a statement even on slow storage.
    const AT_MOST: u32 = 20_000;
}

impl Default for OverdueLook {
    fn default() -> Self {
        OverdueLook {
            at: Instant::now(),
            after: OverduePlace::default(),
            looks_at: BatchSize::new(Self::AT_MOST),
        }
    }
}

impl Recovery {
    const OVERDUE_AT_LEAST_EVERY: Duration = Duration::from_mins(1);

    /// Looks at some of the planned inquiries, and goes on there in the next pass.
    pub(super) async fn show_overdue(&mut self) -> Result<Vec<(RefundId, String)>, StoreError> {
        let began = Instant::now();
        let (store, look) = (&self.node.store, &mut self.overdue);
        if began < look.at {
            return Ok(Vec::new());
        }
        let mut shown = store.show_overdue(Self::AT_ONCE, look.looks_at.now(), &look.after).await;
        // Postgres refuses to move this one refund. Step over it, so that the others are shown; the next round tries again.
        if let Err(error) = &shown
            && look.looks_at.is_alone()
            && !error.is_away()
            && let Ok((_, next)) = store.show_overdue(0, 1, &look.after).await
        {
            look.after = next;
        }
        look.at = Self::next_after(began, Self::OVERDUE_AT_LEAST_EVERY);
        match &mut shown {
            Ok((_, next)) => {
                look.after = std::mem::take(next);
                look.looks_at.worked();
            }
            Err(error) if error.is_away() => {}
            Err(_) => look.looks_at.failed(look.looks_at.now()),
        }
        shown.map(|(shown, _)| shown)
    }
}
