//! The log lines that requests cause. Each comes once a minute at most: anybody can send as many requests as they like, and a
//! load balancer asks every second.

use super::AccessRefusal;
use crate::http::log_throttle::LogThrottle;
use crate::http::problem::Away;

#[derive(Debug, Default)]
pub(super) struct Lines {
    refusals: LogThrottle,
    postgres_away: LogThrottle,
    postgres_slow: LogThrottle,
    redis_away: LogThrottle,
}

impl Lines {
    /// Counts a request that was not let in.
    pub(super) fn refused(&self, refusal: &AccessRefusal) {
        if let Some(requests) = self.refusals.count() {
            tracing::warn!(
                requests,
                "Refused {requests} HTTP requests since the last such line; the last one: {refusal}"
            );
        }
    }

    /// Counts a request that was answered 503 because a server is away.
    pub(super) fn away(&self, away: &Away) {
        let (what, error, line) = match away {
            Away::Postgres(error) => ("Postgres is away", error, &self.postgres_away),
            Away::SlowPostgres(error) => ("Postgres gave up a statement", error, &self.postgres_slow),
            Away::Redis(error) => ("Redis is away", error, &self.redis_away),
        };
        if let Some(requests) = line.count() {
            tracing::warn!(
                requests,
                error,
                "{what}: answered {requests} HTTP requests with 503 since the last such line"
            );
        }
    }
}
