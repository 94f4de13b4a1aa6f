//! Whether a part of recovery fails at present, for the metrics. A part of Postgres may rest after a failure, so a round without
//! a failure does not prove that it works again.

use std::time::{Duration, Instant};

use crate::node::restoring::ServerError;

/// When a round last failed because of Postgres.
#[derive(Debug, Default)]
pub(super) struct RecentFailure(Option<Instant>);

impl RecentFailure {
    /// Longer than the time between two looks at the house. The alarm reads two minutes, for the parts that rest longer.
    const COUNTS_FOR: Duration = Duration::from_secs(30);

    /// Notes how a round went. Answers whether recovery fails. Every round needs Redis, so a failure of Redis ends with the
    /// first round that works.
    pub fn note<T>(&mut self, round: &Result<T, ServerError>, now: Instant) -> bool {
        if matches!(round, Err(ServerError::Store(_))) {
            self.0 = Some(now);
        }
        round.is_err() || self.0.is_some_and(|at| now.duration_since(at) < Self::COUNTS_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::BucketError;
    use crate::store::StoreError;

    fn postgres_fails() -> Result<(), ServerError> {
        Err(StoreError::Row { table: "refunds", id: 1, column: "state", found: String::new() }.into())
    }

    fn redis_fails() -> Result<(), ServerError> {
        Err(BucketError::Reply { what: "acme".to_owned(), reply: String::new() }.into())
    }

    /// Whether recovery fails after each of these rounds, which begin at these seconds.
    fn after<const N: usize>(rounds: [(u64, Result<(), ServerError>); N]) -> [bool; N] {
        let (mut recent, begin) = (RecentFailure::default(), Instant::now());
        rounds.map(|(second, round)| recent.note(&round, begin + Duration::from_secs(second)))
    }

    #[test]
    fn a_part_that_fails_once_in_twenty_seconds_fails_all_the_time_and_not_for_ever() {
        let rounds = [(0, Ok(())), (3, postgres_fails()), (6, Ok(())), (20, Ok(())), (23, postgres_fails())];
        assert_eq!(after(rounds), [false, true, true, true, true]);
        assert_eq!(after([(0, postgres_fails()), (29, Ok(())), (30, Ok(()))]), [true, true, false]);
    }

    #[test]
    fn a_failure_of_redis_ends_with_the_first_round_that_works() {
        assert_eq!(after([(0, redis_fails()), (3, redis_fails()), (6, Ok(()))]), [true, true, false]);
    }
}
