//! How far a dial came, for the reason of one that takes too long.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bank::dial_error::DialStage;

#[derive(Debug, Default)]
pub(super) struct DialProgress {
    is_found: AtomicBool,
    reached: OnceLock<SocketAddr>,
}

impl DialProgress {
    /// DNS has named the host's addresses.
    pub fn found(&self) {
        self.is_found.store(true, Ordering::Relaxed);
    }

    /// This address has accepted the connection.
    pub fn reached(&self, address: SocketAddr) {
        let _ = self.reached.set(address);
    }

    /// The address that accepted the connection.
    pub fn address(&self) -> Option<SocketAddr> {
        self.reached.get().copied()
    }

    /// What the dial waits for.
    pub fn stage(&self) -> DialStage {
        match (self.is_found.load(Ordering::Relaxed), self.address()) {
            (_, Some(_)) => DialStage::Tls,
            (true, None) => DialStage::Tcp,
            (false, None) => DialStage::Dns,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bank::dial_error::DialError;
    use crate::refund::Code;

    #[test]
    fn a_dial_that_takes_too_long_says_what_it_waits_for() {
        let progress = DialProgress::default();
        let says = |code: Code, text: &str| {
            let (stage, host, limit) = (progress.stage(), "bank.example".to_owned(), Duration::from_secs(5));
            let error = DialError::TimedOut { stage, host, limit };
            assert_eq!((error.code(), error.to_string().as_str()), (code, text));
        };
        says(Code::DnsFailed, "find the address of bank.example within 5s");
        progress.found();
        says(Code::ConnectTimeout, "connect to bank.example within 5s");
        progress.reached("192.0.2.1:443".parse().unwrap());
        says(Code::ConnectTimeout, "agree on TLS with bank.example within 5s");
    }
}
