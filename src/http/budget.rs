//! A bound on the bytes that a node keeps for all callers together, such as answers that they have not read.

use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The semaphore counts in this unit, because its permits are few.
const UNIT: usize = 1024;

/// Bytes that may be reserved. Cheap to clone.
#[derive(Clone)]
pub(super) struct Budget {
    free: Arc<Semaphore>,
    units: u32,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("units", &self.units).finish_non_exhaustive()
    }
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        let units = units(bytes);
        Budget { free: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Reserves bytes at once; `None` if fewer are free. More than the whole budget count as the whole budget.
    pub(super) fn try_reserve(&self, bytes: usize) -> Option<ReservedBytes> {
        let units = units(bytes).min(self.units);
        let permit = Arc::clone(&self.free).try_acquire_many_owned(units).ok()?;
        Some(ReservedBytes { permit, budget: self.clone() })
    }
}

/// Reserved bytes of a [`Budget`]; free again when this is dropped.
#[derive(Debug)]
pub(super) struct ReservedBytes {
    permit: OwnedSemaphorePermit,
    budget: Budget,
}

impl ReservedBytes {
    /// Reserves as many bytes in all, and waits until so many are free.
    pub(super) async fn grow_to(&mut self, bytes: usize) {
        let units = units(bytes).min(self.budget.units);
        let have = u32::try_from(self.permit.num_permits()).unwrap_or(u32::MAX);
        // The semaphore is never closed, so this does not fail.
        if let Ok(more) = Arc::clone(&self.budget.free).acquire_many_owned(units.saturating_sub(have)).await {
            self.permit.merge(more);
        }
    }

    /// These bytes; they stay reserved while any part of them lives.
    pub(super) fn keep(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Kept { bytes, _reserved: self })
    }
}

struct Kept<B> {
    bytes: B,
    _reserved: ReservedBytes,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Kept<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_stay_reserved_until_the_last_part_of_them_is_dropped() {
        let budget = Budget::new(10 * UNIT);
        let mut reserved = budget.try_reserve(UNIT).unwrap();
        reserved.grow_to(9 * UNIT).await;
        let mut bytes = reserved.keep(vec![7; 9 * UNIT]);
        let part = bytes.split_off(UNIT);
        drop(bytes);
        assert!(budget.try_reserve(2 * UNIT).is_none());
        assert_eq!(part[0], 7);
        drop(part);
        assert!(budget.try_reserve(1000 * UNIT).is_some(), "more than the budget is the whole budget");
    }
}
