//! Takes a lock even when it is poisoned. A test that panicked must not make the bank of other tests panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also when it is poisoned.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
