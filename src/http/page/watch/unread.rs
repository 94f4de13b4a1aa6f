//! A page whose figures cannot be read goes on without them, so the reason stands on the page and in the log.

use super::super::super::Problem;
use super::super::super::log_throttle::LogThrottle;
use crate::logs::chain;
use crate::refund::text::counted;
use crate::store::StoreError;

/// That what a page shows is not known, and why, for people.
pub(in super::super) fn unread(problem: &Problem) -> String {
    let why = match problem.kind() {
        "too-slow" => "Postgres took too long to read it",
        "still-counting" => "it is being read",
        _ => "Postgres did not read it",
    };
    format!("what happened lately is not known: {why}. Load the page again for the rest of it")
}

/// The page is no answer of a problem, so nothing else logs the failure.
pub(super) fn logged<T>(read: Result<T, StoreError>, failures: &LogThrottle) -> Result<T, Problem> {
    read.map_err(|error| {
        if let Some(failures) = failures.count() {
            tracing::warn!(
                failures,
                error = %chain(&error),
                "Failed to read what pages show: {} since the last such line",
                counted(failures, "failure")
            );
        }
        // The problem of any other failure would be logged at each read.
        if error.is_outage() || error.is_too_slow() { Problem::from(error) } else { Problem::internal() }
    })
}
