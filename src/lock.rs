//! Takes locks, poisoned ones too.
//!
//! A lock is poisoned when a thread panicked while it held the lock. This crate uses the value all the same. These
//! locks guard the caches, counters, queues and settings of one process. Postgres keeps the truth about refunds,
//! and no lock here guards that truth. If every later use of a poisoned lock panicked too, one failed call would
//! end the whole node.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A mutex that is used even when it is poisoned.
pub trait Lock<T> {
    /// Waits for the lock and takes it.
    fn locked(&self) -> MutexGuard<'_, T>;
}

impl<T> Lock<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read-write lock that is used even when it is poisoned.
pub trait SharedLock<T> {
    /// Waits for the lock and takes it for reading.
    fn read_locked(&self) -> RwLockReadGuard<'_, T>;
    /// Waits for the lock and takes it for writing.
    fn write_locked(&self) -> RwLockWriteGuard<'_, T>;
}

impl<T> SharedLock<T> for RwLock<T> {
    fn read_locked(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_locked(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_lock_is_used_after_a_panic_under_it() {
        let (one, many) = (Mutex::new(1), RwLock::new(1));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let (_one, _many) = (one.locked(), many.write_locked());
            panic!("under both locks");
        }));
        assert!(panicked.is_err() && one.is_poisoned() && many.is_poisoned());
        *one.locked() += 1;
        *many.write_locked() += 1;
        assert_eq!((*one.locked(), *many.read_locked()), (2, 2));
    }
}
