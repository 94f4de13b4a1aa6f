//! Changes that are made one by one, each in a commit of its own, such as a person's decisions about many refunds.
//!
//! The failure of one change hides nothing of the others: each has a result. The next change is tried, except after an outage
//! of Postgres and after some failures. This module makes no changes and writes no answers.

use crate::store::StoreError;

/// After so many failures no more is tried. Each may have waited for a lock for 3 s, and somebody waits for the answer.
const MOST_FAILED: usize = 5;

/// What is known of a change that has no result of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMade {
    /// Another transaction held a row that it needs. Nothing was changed.
    Locked,
    /// Postgres gave no answer, so it may have been made.
    Unknown,
    /// It was not tried.
    NotTried,
}

impl NotMade {
    /// What became of the change, and what to do; for people.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            NotMade::Locked => {
                "another transaction held it for too long, so nothing was changed; try it again"
            }
            NotMade::Unknown => {
                "Postgres did not say whether this was done; look at it again, and try it again: that is safe"
            }
            NotMade::NotTried => "it was not tried, because others before it had failed; try it again",
        }
    }
}

/// Some changes, so far.
#[derive(Debug, Default)]
pub struct OneByOne {
    has_result: bool,
    failures: usize,
    first_failure: Option<StoreError>,
    is_over: bool,
}

impl OneByOne {
    /// Makes the next change, if one is still tried.
    ///
    /// # Errors
    /// When the change has no result.
    pub async fn make<T>(
        &mut self,
        change: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, NotMade> {
        if self.is_over {
            return Err(NotMade::NotTried);
        }
        let error = match change.await {
            Ok(result) => {
                self.has_result = true;
                return Ok(result);
            }
            Err(error) => error,
        };
        let is_lock = error.is_a_lock();
        self.failures += 1;
        let is_about_this_one = is_lock || error.is_too_slow() || !error.is_outage();
        self.is_over = !is_about_this_one || self.failures >= MOST_FAILED;
        self.first_failure.get_or_insert(error);
        Err(if is_lock { NotMade::Locked } else { NotMade::Unknown })
    }

    /// The first failure, if there was one, of changes of which some have a result.
    ///
    /// # Errors
    /// The first failure, if no change has a result.
    pub fn end(self) -> Result<Option<StoreError>, StoreError> {
        match self.first_failure {
            Some(error) if !self.has_result => Err(error),
            failure => Ok(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage() -> StoreError {
        StoreError::Statement { doing: "write a decision", source: sqlx::Error::PoolTimedOut }
    }

    fn fault() -> StoreError {
        StoreError::Row { table: "refundd.refunds", id: 1, column: "state", found: "?".to_owned() }
    }

    #[tokio::test]
    async fn after_an_outage_nothing_is_tried_and_what_was_done_is_still_told() {
        let mut all = OneByOne::default();
        assert_eq!(all.make(async { Ok(7) }).await, Ok(7));
        assert_eq!(all.make(async { Err::<i32, _>(outage()) }).await, Err(NotMade::Unknown));
        assert_eq!(all.make(async { Ok(8) }).await, Err(NotMade::NotTried));
        assert!(all.end().unwrap().is_some());
    }

    #[tokio::test]
    async fn one_fault_does_not_end_the_work_and_many_do() {
        let mut all = OneByOne::default();
        for _ in 0..MOST_FAILED {
            assert_eq!(all.make(async { Err::<i32, _>(fault()) }).await, Err(NotMade::Unknown));
        }
        assert_eq!(all.make(async { Ok(7) }).await, Err(NotMade::NotTried));
        assert!(all.end().is_err(), "nothing has a result");
    }
}
