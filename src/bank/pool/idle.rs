//! How long a connection to a bank may be idle and still be used.
//!
//! Each bank closes idle connections after a time of its own. A request that leaves at that moment is lost, and nobody
//! knows whether the bank read it. So the bound must lie below the bank's time. The configuration gives the longest
//! bound. The bank lowers it: by its `Keep-Alive` header, by closing a connection that was idle, and by losing a request
//! on such a connection.

use std::time::{Duration, Instant};

/// The bound of one address.
#[derive(Debug)]
pub(super) struct IdleBound {
    longest: Duration,
    /// The lower bound that the bank showed, and when it last showed it.
    learned: Option<(Duration, Instant)>,
}

impl IdleBound {
    /// A learned bound is forgotten after this time without a new sign, because the bank may have changed.
    const REMEMBERED: Duration = Duration::from_hours(1);
    /// A request is on its way for less than this time, so the bank must keep a connection for this much longer.
    const ON_ITS_WAY: Duration = Duration::from_secs(1);

    pub fn new(longest: Duration) -> Self {
        IdleBound { longest, learned: None }
    }

    /// A connection that has been idle for this long, or longer, must not be used.
    pub fn get(&self) -> Duration {
        match self.learned {
            Some((bound, at)) if at.elapsed() < Self::REMEMBERED => bound.min(self.longest),
            _ => self.longest,
        }
    }

    /// The bank's answer says for how long it keeps idle connections.
    pub fn announced(&mut self, kept: Duration) {
        self.learn(kept.saturating_sub(Self::ON_ITS_WAY).max(kept / 2));
    }

    /// The bank closed a connection, or lost a request on it, after the connection had been idle for this long.
    pub fn closed_after(&mut self, idle: Duration) {
        self.learn(idle / 2);
    }

    fn learn(&mut self, bound: Duration) {
        if bound <= self.get() {
            self.learned = Some((bound, Instant::now()));
        }
    }
}

/// The `timeout` of a `Keep-Alive` header, such as `timeout=5, max=100`.
pub(super) fn announced(header: &str) -> Option<Duration> {
    let value = header.split(',').find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim())
    })?;
    value.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_bound_lies_below_what_the_bank_says_and_below_what_it_does_and_never_above_the_file() {
        let mut bound = IdleBound::new(ms(4_000));
        assert_eq!(bound.get(), ms(4_000));
        bound.announced(ms(60_000));
        assert_eq!(bound.get(), ms(4_000), "the file's bound is lower");
        bound.announced(ms(3_000));
        assert_eq!(bound.get(), ms(2_000));
        bound.closed_after(ms(1_000));
        assert_eq!(bound.get(), ms(500));
        bound.closed_after(ms(1_200));
        assert_eq!(bound.get(), ms(500), "the lowest counts");
        let mut bound = IdleBound::new(ms(4_000));
        bound.announced(ms(1_000));
        assert_eq!(bound.get(), ms(500), "half, where a second would leave nothing");
    }

    #[test]
    fn a_keep_alive_header_is_read_whatever_stands_beside_it() {
        assert_eq!(announced("timeout=5, max=100"), Some(ms(5_000)));
        assert_eq!(announced("max=100 , Timeout = 2"), Some(ms(2_000)));
        for none in ["", "max=100", "timeout", "timeout=soon", "timeout=-1"] {
            assert_eq!(announced(none), None, "{none}");
        }
    }
}
