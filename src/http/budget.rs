//! A bound on the bytes that a node keeps for all callers together, such as answers that they have not read. Each caller has a
//! share of it, and no caller takes more than its share, except for one thing that is larger by itself.

use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::per_caller::PerCaller;
use crate::refund::CallerName;

/// The semaphores count in this unit, because their permits are few.
const UNIT: usize = 1024;

/// Bytes that may be reserved. Cheap to clone.
#[derive(Clone)]
pub(super) struct Budget {
    free: Arc<Semaphore>,
    units: u32,
    shares: PerCaller,
    units_of_share: u32,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("units", &self.units).finish_non_exhaustive()
    }
}

/// Which bytes are too few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// Those of the caller's share.
    InShare,
    /// Those of all callers together.
    AtAll,
}

impl Budget {
    /// So many bytes for all callers together, of which each caller may take `share`.
    pub(super) fn new(bytes: usize, share: usize) -> Self {
        let (units, units_of_share) = (units(bytes), units(share));
        let shares = PerCaller::new(units_of_share as usize);
        Budget { free: Arc::new(Semaphore::new(units as usize)), units, shares, units_of_share }
    }

    /// Reserves bytes at once, in the caller's share and in the whole budget. More bytes than either count as the whole of it.
    ///
    /// # Errors
    /// When fewer bytes are free.
    pub(super) fn try_reserve(
        &self,
        caller: Option<&CallerName>,
        bytes: usize,
    ) -> Result<ReservedBytes, NoRoom> {
        let take = |share| ReservedUnits::at_once(share, self.units_of_share, bytes).ok_or(NoRoom::InShare);
        let own = self.shares.of(caller).map(take).transpose()?;
        let of_all = ReservedUnits::at_once(Arc::clone(&self.free), self.units, bytes);
        Ok(ReservedBytes { own, of_all: of_all.ok_or(NoRoom::AtAll)? })
    }
}

/// Reserved bytes of a [`Budget`]; free again when this is dropped.
#[derive(Debug)]
pub(super) struct ReservedBytes {
    /// Those of the caller's share, where a caller is known.
    own: Option<ReservedUnits>,
    of_all: ReservedUnits,
}

impl ReservedBytes {
    /// Reserves as many bytes in all, and waits until so many are free. `at_the_end` is the final number, if it is known. The
    /// caller's share is taken for that number at once: otherwise two large bodies of one caller could wait for each other.
    pub(super) async fn grow_to(&mut self, bytes: usize, at_the_end: Option<usize>) {
        if let Some(own) = &mut self.own {
            own.grow_to(at_the_end.unwrap_or(bytes)).await;
        }
        self.of_all.grow_to(bytes).await;
    }

    /// These bytes; they stay reserved while any part of them lives.
    pub(super) fn keep(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(BytesOwner { bytes, _reserved: self })
    }
}

/// Units of one semaphore, and the most that may be taken of it.
#[derive(Debug)]
struct ReservedUnits {
    permit: OwnedSemaphorePermit,
    most: u32,
}

impl ReservedUnits {
    fn at_once(free: Arc<Semaphore>, most: u32, bytes: usize) -> Option<Self> {
        let permit = free.try_acquire_many_owned(units(bytes).min(most)).ok()?;
        Some(ReservedUnits { permit, most })
    }

    async fn grow_to(&mut self, bytes: usize) {
        let units = units(bytes).min(self.most);
        let have = u32::try_from(self.permit.num_permits()).unwrap_or(u32::MAX);
        let free = Arc::clone(self.permit.semaphore());
        // The semaphore is never closed, so this does not fail.
        if let Ok(more) = free.acquire_many_owned(units.saturating_sub(have)).await {
            self.permit.merge(more);
        }
    }
}

struct BytesOwner<B> {
    bytes: B,
    _reserved: ReservedBytes,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for BytesOwner<B> {
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

    fn name(text: &str) -> CallerName {
        CallerName::new(text).unwrap()
    }

    #[tokio::test]
    async fn bytes_stay_reserved_until_the_last_part_of_them_is_dropped() {
        let budget = Budget::new(10 * UNIT, 5 * UNIT);
        let mut reserved = budget.try_reserve(None, UNIT).unwrap();
        reserved.grow_to(9 * UNIT, None).await;
        let mut bytes = reserved.keep(vec![7; 9 * UNIT]);
        let part = bytes.split_off(UNIT);
        drop(bytes);
        assert!(budget.try_reserve(None, 2 * UNIT).is_err());
        assert_eq!(part[0], 7);
        drop(part);
        assert!(budget.try_reserve(None, 1000 * UNIT).is_ok(), "more than the budget is the whole budget");
    }

    #[test]
    fn a_caller_takes_its_share_and_leaves_the_rest_to_others() {
        let budget = Budget::new(10 * UNIT, 4 * UNIT);
        let (shop, desk) = (name("shop"), name("desk"));
        let reserved = [1, 3].map(|units| budget.try_reserve(Some(&shop), units * UNIT).unwrap());
        assert_eq!(budget.try_reserve(Some(&shop), UNIT).unwrap_err(), NoRoom::InShare);
        let large =
            budget.try_reserve(Some(&desk), 6 * UNIT).expect("one thing may be larger than the share");
        assert_eq!(budget.try_reserve(Some(&desk), UNIT).unwrap_err(), NoRoom::InShare);
        assert_eq!(budget.try_reserve(Some(&name("till")), UNIT).unwrap_err(), NoRoom::AtAll);
        drop(reserved);
        assert!(budget.try_reserve(Some(&name("till")), 4 * UNIT).is_ok());
        drop(large);
        assert!(budget.try_reserve(Some(&desk), 4 * UNIT).is_ok());
    }
}
