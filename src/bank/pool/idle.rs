//! How long a connection to a bank may be idle and still be used.
//!
//! Each bank closes idle connections after a time of its own. A request that leaves at that moment is lost, and nobody
//! knows whether the bank read it. So the bound must lie below the bank's time. The configuration gives the longest
//! bound. The bank lowers it: by its `Keep-Alive` header, by closing a connection that was idle, and by losing a request
//! on such a connection.
//!
//! Servers have another time for a connection that has not carried a request yet, mostly a longer one. So such a
//! connection is unused, and what a used connection taught does not shorten its time. Otherwise a bank whose answers say
//! `timeout=0` would have each new connection thrown away before its first request.

use std::time::{Duration, Instant};

use crate::bank::connect::Connection;
use crate::channel::Channel;

/// A connection that nobody has reserved, and since when it has been idle.
#[derive(Debug)]
pub(super) struct Idle {
    pub connection: Connection,
    pub since: Instant,
}

impl Idle {
    pub fn is_usable(&self, at: Instant, bound: &IdleBound) -> bool {
        !self.connection.sender.is_closed()
            && at.saturating_duration_since(self.since) < bound.of(self.connection.answered)
            && at < self.connection.renew_at
    }
}

/// The bounds of one address.
#[derive(Debug)]
pub(super) struct IdleBound {
    longest: Duration,
    /// For connections that have carried a request.
    used: Learned,
    /// For connections that have not.
    unused: Learned,
}

/// A lower bound that the bank showed, and when it last showed it.
#[derive(Debug, Default)]
struct Learned(Option<(Duration, Instant)>);

impl IdleBound {
    /// No sign of the bank lowers a bound below this time: the least `idle_timeout` that a file may name.
    const LEAST: Duration = Channel::LEAST_IDLE_TIMEOUT;
    /// A request is on its way for less than this time, so the bank must keep a connection for this much longer.
    const ON_ITS_WAY: Duration = Duration::from_secs(1);

    pub fn new(longest: Duration) -> Self {
        IdleBound { longest, used: Learned::default(), unused: Learned::default() }
    }

    /// A connection that answered so many requests must not be used if it has been idle for this long, or longer.
    pub fn of(&self, answered: u32) -> Duration {
        if answered == 0 { self.unused.below(self.longest) } else { self.used.below(self.longest) }
    }

    /// The shorter of the two bounds.
    pub fn shortest(&self) -> Duration {
        self.of(0).min(self.of(1))
    }

    /// The bank's answer says for how long it keeps idle connections.
    pub fn announced(&mut self, kept: Duration) {
        self.used.learn(kept.saturating_sub(Self::ON_ITS_WAY).max(kept / 2), self.longest);
    }

    /// The bank closed a connection that answered so many requests, or lost a request on it, after the connection had been
    /// idle for this long.
    pub fn closed_after(&mut self, idle: Duration, answered: u32) {
        self.used.learn(idle / 2, self.longest);
        if answered == 0 {
            self.unused.learn(idle / 2, self.longest);
        }
    }
}

impl Learned {
    /// A learned bound is forgotten after this time without a new sign, because the bank may have changed.
    const REMEMBERED: Duration = Duration::from_hours(1);

    fn below(&self, longest: Duration) -> Duration {
        match self.0 {
            Some((bound, at)) if at.elapsed() < Self::REMEMBERED => bound.min(longest),
            _ => longest,
        }
    }

    fn learn(&mut self, bound: Duration, longest: Duration) {
        let bound = bound.max(IdleBound::LEAST);
        if bound <= self.below(longest) {
            self.0 = Some((bound, Instant::now()));
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
        assert_eq!(bound.of(1), ms(4_000));
        bound.announced(ms(60_000));
        assert_eq!(bound.of(1), ms(4_000), "the file's bound is lower");
        bound.announced(ms(3_000));
        assert_eq!(bound.of(1), ms(2_000));
        bound.closed_after(ms(1_000), 1);
        assert_eq!(bound.of(1), ms(500));
        bound.closed_after(ms(1_200), 1);
        assert_eq!(bound.of(1), ms(500), "the lowest counts");
        let mut bound = IdleBound::new(ms(4_000));
        bound.announced(ms(1_000));
        assert_eq!(bound.of(1), ms(500), "half, where a second would leave nothing");
    }

    #[test]
    fn no_sign_of_the_bank_lowers_a_bound_below_the_least_one_of_a_file() {
        let mut bound = IdleBound::new(ms(4_000));
        bound.announced(ms(0));
        assert_eq!(bound.of(1), Channel::LEAST_IDLE_TIMEOUT);
        bound.closed_after(ms(20), 0);
        assert_eq!(bound.shortest(), Channel::LEAST_IDLE_TIMEOUT);
    }

    #[test]
    fn an_unused_connection_obeys_only_what_unused_connections_taught() {
        let mut bound = IdleBound::new(ms(4_000));
        bound.announced(ms(1_000));
        bound.closed_after(ms(800), 7);
        assert_eq!((bound.of(0), bound.of(1)), (ms(4_000), ms(400)));
        bound.closed_after(ms(600), 0);
        assert_eq!((bound.of(0), bound.of(1)), (ms(300), ms(300)));
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
