//! The tries to open a connection to one address: which failed, and when the next may begin.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Pool;
use crate::backoff::Backoff;
use crate::bank::dial_error::DialError;
use crate::refund::Code;

/// Why the pool has no connection now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    pub code: Code,
    /// A fragment, such as `connect to 10.0.0.1: Connection refused`.
    pub message: String,
    /// The time until the next try.
    pub retry_in: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Tries {
    /// The last try failed.
    trouble: Option<Trouble>,
    /// Failed tries since the last `take_failures`.
    failures: BTreeMap<Code, u64>,
    /// A request was answered since the last failed try.
    is_proven: bool,
    /// Connections ended without an answer since the last answer. A new one must stay open for this long.
    outlives: Duration,
    /// When a request was last answered.
    answered_at: Option<Instant>,
    /// When a connection first ended without an answer since the last answer; later, when the last probe did.
    unanswered_at: Option<Instant>,
}

/// The last try to open a connection failed.
#[derive(Debug)]
struct Trouble {
    code: Code,
    message: String,
    failures: u32,
    retry_at: Instant,
}

impl Tries {
    /// About how long the pauses between tries are.
    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), last: Duration::from_secs(3) };

    /// The least time for which a new connection must stay open before use, while no request was answered since the last
    /// failure.
    const LEAST_TRIAL: Duration = Duration::from_millis(5);

    /// A bank that closes unused connections early looks like a proxy that cannot reach its bank, and no new connection
    /// outlives the earlier ones. Only a request tells the two apart. It is made this long after the last one.
    const PROBE_AFTER: Duration = Duration::from_mins(1);

    /// How many of `need` connections may be opened at one time, while so many others are `out`: only one after a failed try,
    /// none in a pause, and none beside the connection of a probe.
    pub fn allowed(&self, need: usize, out: usize) -> usize {
        let need = if self.is_probing() { need.min(1_usize.saturating_sub(out)) } else { need };
        match &self.trouble {
            None => need,
            Some(trouble) if Instant::now() < trouble.retry_at => 0,
            Some(_) => need.min(1),
        }
    }

    /// A connection was opened, and it stayed open for its [`Tries::trial`].
    pub fn opened(&mut self) {
        self.trouble = None;
    }

    /// A request was answered: the address does not accept connections only to close them.
    pub fn answered(&mut self) {
        self.is_proven = true;
        self.outlives = Duration::ZERO;
        self.answered_at = Some(Instant::now());
        self.unanswered_at = None;
    }

    /// A connection ended without any answer soon after it was `opened`; it lived for this long. A proxy that accepts every
    /// connection and cannot reach the bank ends them all alike, give or take. It says nothing if a request on another
    /// connection was answered meanwhile.
    pub fn ended_unanswered(&mut self, opened: Instant, lived: Duration) {
        if self.answered_at.is_some_and(|at| at > opened) {
            return;
        }
        if self.unanswered_at.is_none() || self.is_probing() {
            self.unanswered_at = Some(Instant::now());
        }
        self.is_proven = false;
        self.outlives = self.outlives.max(2 * lived + Self::LEAST_TRIAL).min(Pool::AT_ONCE);
    }

    /// For how long a new connection must stay open before it is used.
    pub fn trial(&self) -> Duration {
        if self.is_proven {
            Duration::ZERO
        } else if self.is_probing() {
            Self::LEAST_TRIAL
        } else {
            self.outlives.max(Self::LEAST_TRIAL)
        }
    }

    /// Whether the next connection is used at once, to learn whether requests are answered. It stays so until a connection
    /// in use shows it.
    pub fn is_probing(&self) -> bool {
        self.unanswered_at.is_some_and(|at| at.elapsed() >= Self::PROBE_AFTER)
    }

    /// A try that began at this moment failed.
    pub fn failed(&mut self, error: &DialError, began: Instant) {
        *self.failures.entry(error.code()).or_default() += 1;
        let now = Instant::now();
        self.is_proven = false;
        let before = self.trouble.take();
        let failures = match &before {
            // Several tries at one time count as one failure.
            Some(trouble) if now < trouble.retry_at => trouble.failures,
            Some(trouble) => trouble.failures.saturating_add(1),
            None => 1,
        };
        let wait = Self::BACKOFF.after(failures).mul_f64(0.75 + fastrand::f64() * 0.5);
        // The pause counts from the start of the failed try.
        let retry_at = (began + wait).max(now + Self::BACKOFF.first / 2);
        self.trouble = Some(Trouble { code: error.code(), message: error.to_string(), failures, retry_at });
    }

    /// Why there is no connection while none is being opened.
    pub fn unreachable(&self) -> Unreachable {
        match &self.trouble {
            Some(trouble) => Unreachable {
                code: trouble.code,
                message: trouble.message.clone(),
                retry_in: trouble.retry_at.saturating_duration_since(Instant::now()),
            },
            // Other requests use all connections.
            None => Unreachable {
                code: Code::ConnectionsUsedUp,
                message: "open another connection: all that `max_in_flight` allows are in use".to_owned(),
                retry_in: Duration::from_millis(10),
            },
        }
    }

    /// How many tries failed since the last call, by code.
    pub fn take_failures(&mut self) -> BTreeMap<Code, u64> {
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tries {
        /// As if a probe were due now.
        pub fn a_minute_passes(&mut self) {
            self.unanswered_at = self.unanswered_at.and_then(|at| at.checked_sub(Self::PROBE_AFTER));
        }
    }

    #[test]
    fn a_minute_after_an_unanswered_connection_one_new_connection_is_used_at_once() {
        let lived = Duration::from_millis(300);
        let mut tries = Tries::default();
        assert_eq!(tries.allowed(16, 3), 16);
        for _ in 0..2 {
            tries.ended_unanswered(Instant::now(), lived);
            assert_eq!((tries.trial(), tries.is_probing()), (Pool::AT_ONCE, false));
            tries.a_minute_passes();
            assert_eq!(tries.trial(), Tries::LEAST_TRIAL);
            assert_eq!((tries.allowed(16, 0), tries.allowed(16, 1)), (1, 0), "one at a time");
        }
        tries.answered();
        assert_eq!((tries.trial(), tries.allowed(16, 1)), (Duration::ZERO, 16));
    }

    #[test]
    fn a_connection_that_ended_unanswered_says_nothing_if_another_was_answered_meanwhile() {
        let mut tries = Tries::default();
        let (moment, lived) = (Duration::from_millis(1), Duration::from_millis(100));
        tries.answered();
        tries.ended_unanswered(Instant::now().checked_sub(lived).unwrap(), lived);
        assert_eq!(tries.trial(), Duration::ZERO);
        tries.ended_unanswered(Instant::now() + moment, lived);
        assert_eq!(tries.trial(), Duration::from_millis(205));
    }
}
