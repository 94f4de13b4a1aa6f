//! The tries to open a connection to one address: which failed, and when the next may begin.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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

    /// How many of `need` connections may be opened at one time: only one after a failed try, and none in a pause.
    pub fn allowed(&self, need: usize) -> usize {
        match &self.trouble {
            None => need,
            Some(trouble) if Instant::now() < trouble.retry_at => 0,
            Some(_) => need.min(1),
        }
    }

    /// A connection was opened, and it stayed open.
    pub fn opened(&mut self) {
        self.trouble = None;
    }

    /// A request was answered: the address does not accept connections only to close them.
    pub fn answered(&mut self) {
        self.is_proven = true;
    }

    /// Whether a request was answered since the last failed try.
    pub fn is_proven(&self) -> bool {
        self.is_proven
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
