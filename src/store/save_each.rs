//! Saves many refunds, and sets those apart that the database refuses or that another transaction holds, so that they do not
//! keep the others from being saved.

use std::fmt;

use super::save::Saved;
use super::{Store, StoreError};
use crate::refund::NewRefund;

/// Why [`Store::save_each`] did not save a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSaved {
    /// The database refuses it, with this message.
    Refused(String),
    /// Another transaction holds it, or a refund that was tried together with it.
    Locked,
    /// The database refused too many refunds before, so this refund was in none.
    NotTried,
}

impl fmt::Display for NotSaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotSaved::Refused(why) => why.as_str(),
            NotSaved::Locked => {
                "was not saved, because another transaction held it, or a refund tried together with it, for too long; repeat it"
            }
            NotSaved::NotTried => {
                "was not tried, because the database refused too many refunds before it; repeat it without those"
            }
        })
    }
}

impl Store {
    /// How many locked refunds are found one by one. Each costs up to 15 statements of up to 20 ms, beside their work. After
    /// them, a part that meets a lock counts as locked as a whole.
    const MOST_LOCKED: usize = 20;
    /// How many deadlocks a save survives. Each is over at once, because this transaction was given up for the other one.
    const MOST_DEADLOCKS: u32 = 3;

    /// Saves refunds in one commit, like [`Store::save`], unless the database itself refuses one, as a trigger of a newer version
    /// may, or another transaction holds one. Then the halves are saved apart, and their halves, until each such refund is alone.
    /// A refused refund has the database's message. After `most_refusals` refused refunds the rest is not tried: each of them costs
    /// several statements.
    ///
    /// All refunds together wait for a lock, so many times in all: the other transaction likely ends soon. After that no part waits
    /// for longer than 20 ms.
    ///
    /// # Errors
    /// When Postgres failed, or when somebody keeps a lock on the whole table. Some of the refunds may be saved.
    pub async fn save_each(
        &self,
        refunds: &[NewRefund],
        tries: u32,
        most_refusals: usize,
    ) -> Result<Vec<Result<Saved, NotSaved>>, StoreError> {
        let mut results = Vec::with_capacity(refunds.len());
        let (mut refusals, mut locked, mut has_waited) = (0, 0, false);
        // What is still to be saved; the next part is the last one.
        let mut parts = vec![refunds];
        while let Some(part) = parts.pop() {
            if refusals >= most_refusals {
                results.extend(part.iter().map(|_| Err(NotSaved::NotTried)));
                continue;
            }
            let saved = if has_waited {
                self.save_unless_locked(part).await
            } else {
                self.save_in_tries(part, tries).await
            };
            let error = match saved {
                Ok(saved) => {
                    results.extend(saved.into_iter().map(Ok));
                    continue;
                }
                Err(error) => error,
            };
            let is_lock = error.is_a_lock();
            if is_lock && !has_waited {
                // Behind a lock on the whole table, to save none fails as well.
                if self.save_unless_locked(&[]).await.is_err() {
                    return Err(error);
                }
                has_waited = true;
            }
            let can_split = if is_lock { locked < Self::MOST_LOCKED } else { error.refusal().is_some() };
            if can_split && part.len() > 1 {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
                continue;
            }
            let why = if is_lock {
                locked += 1;
                NotSaved::Locked
            } else {
                let Some(why) = error.refusal() else { return Err(error) };
                refusals += 1;
                NotSaved::Refused(why)
            };
            results.extend(part.iter().map(|_| Err(why.clone())));
        }
        Ok(results)
    }

    /// Saves refunds in one commit. A save that meets a lock is tried so many times in all, and one that ends in a deadlock a few
    /// times more.
    async fn save_in_tries(&self, refunds: &[NewRefund], tries: u32) -> Result<Vec<Saved>, StoreError> {
        let (mut after_locks, mut after_deadlocks) = (tries.saturating_sub(1), Self::MOST_DEADLOCKS);
        loop {
            let saved = self.save(refunds).await;
            let is_deadlock = saved.as_ref().is_err_and(StoreError::is_a_deadlock);
            let left = if is_deadlock { &mut after_deadlocks } else { &mut after_locks };
            if !saved.as_ref().is_err_and(StoreError::is_a_lock) || *left == 0 {
                return saved;
            }
            *left -= 1;
        }
    }
}
