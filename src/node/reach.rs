//! Whether this node can reach one address of a bank, and how far away that address is.
//!
//! The results go to the log, the metrics and the status report. One thing is decided by them: while the address for sends
//! is unreachable, inquiries yield to active sends only ([`crate::bucket::Yield`]). The log shows the first failure and
//! the recovery.

use std::time::{Duration, Instant};

use super::Node;
use crate::bank::{AddressTimes, Pool, Unreachable};
use crate::bucket::Purpose;
use crate::channel::Channel;
use crate::limiter::Limit;
use crate::logs::millis;
use crate::refund::{ChannelName, Code, LimitName};

/// What one channel worker sees of its bank's address.
#[derive(Debug)]
pub struct Reach {
    node: Node,
    channel: ChannelName,
    purpose: Purpose,
    /// After so many failed connections one after the other, an event says so; `None` for never.
    most_failures: Option<u32>,
    away_since: Option<Instant>,
    /// The connections that failed one after the other.
    failures: u64,
    measured: Option<Instant>,
    too_small: Vec<LimitName>,
}

impl Reach {
    const MEASURE_EVERY: Duration = Duration::from_secs(1);

    pub fn new(node: Node, channel: &Channel, purpose: Purpose) -> Self {
        let reach = Reach {
            node,
            channel: channel.name.clone(),
            purpose,
            most_failures: channel.breaker.map(|breaker| breaker.unreachable),
            away_since: None,
            failures: 0,
            measured: None,
            too_small: Vec::new(),
        };
        // A channel worker that ran before may have left a message in the status report.
        reach.note(None);
        reach
    }

    /// Puts into the status report why the bank is unreachable; `None` removes the message.
    fn note(&self, message: Option<&str>) {
        match self.purpose {
            Purpose::Send => self.node.status_report.note_unreachable(&self.channel, message),
            Purpose::Inquire => self.node.status_report.note_unreachable_to_ask(&self.channel, message),
        }
    }

    /// Notes that there is no connection and none can be opened just now.
    pub fn failed(&mut self, pool: &Pool, unreachable: &Unreachable) {
        let name = &self.channel;
        if unreachable.code == Code::ConnectionsUsedUp {
            return;
        }
        if self.away_since.is_none() {
            self.away_since = Some(Instant::now());
            let (code, message) = (unreachable.code.as_str(), &unreachable.message);
            match self.purpose {
                Purpose::Send => tracing::warn!(
                    channel.name = %name, code,
                    "Channel `{name}` is unreachable from this node: failed to {message}; no permit is spent and no attempt counted until a connection is open",
                ),
                Purpose::Inquire => tracing::warn!(
                    channel.name = %name, code,
                    "The inquiry address of channel `{name}` is unreachable from this node: failed to {message}; inquiries are made when a connection is open",
                ),
            }
        }
        self.note(Some(&unreachable.message));
        self.count(pool);
        let is_many = self.most_failures.is_some_and(|most| self.failures >= u64::from(most));
        if self.purpose == Purpose::Send && is_many {
            self.node.note_reach(&self.channel, Some(&unreachable.message));
        }
    }

    /// Notes that there is a connection, and measures the distance once a second.
    pub fn reached(&mut self, pool: &Pool, limits: &[std::sync::Arc<Limit>]) {
        let name = &self.channel;
        if let Some(since) = self.away_since.take() {
            let away_ms = millis(since.elapsed());
            match self.purpose {
                Purpose::Send => {
                    tracing::info!(channel.name = %name, away_ms, "Channel `{name}` can be reached again");
                }
                Purpose::Inquire => {
                    tracing::info!(channel.name = %name, away_ms, "The inquiry address of channel `{name}` can be reached again");
                }
            }
            self.note(None);
            self.measured = None;
        }
        if self.measured.is_none_or(|at| at.elapsed() >= Self::MEASURE_EVERY) {
            self.measured = Some(Instant::now());
            self.count(pool);
            if self.purpose == Purpose::Send {
                // Not only after a failure of this worker: the bank may have failed the one before it.
                self.node.note_reach(&self.channel, None);
                self.measure(pool.reading(), limits);
            }
        }
    }

    /// Writes the failed connections, and whether the bank is connected, to the metrics.
    fn count(&mut self, pool: &Pool) {
        if self.away_since.is_none() {
            self.failures = 0;
        }
        for (code, failures) in pool.take_failures() {
            self.failures = self.failures.saturating_add(failures);
            self.node.metrics.connect_failures(&self.channel, code, failures);
        }
        self.node.metrics.bank_connected(&self.channel, self.purpose, self.away_since.is_none());
    }

    /// Publishes the distance, and warns about each limit whose `lateness` has become too small for it.
    fn measure(&mut self, reading: AddressTimes, limits: &[std::sync::Arc<Limit>]) {
        self.node.metrics.bank_distance(&self.channel, reading);
        let too_small: Vec<(LimitName, String)> = limits
            .iter()
            .filter_map(|limit| Some((limit.name.clone(), too_small(limit, reading)?)))
            .collect();
        let names: Vec<LimitName> = too_small.iter().map(|(name, _)| name.clone()).collect();
        if names != self.too_small {
            for (name, why) in too_small.iter().filter(|(name, _)| !self.too_small.contains(name)) {
                tracing::warn!(
                    channel.name = %self.channel, limit.name = %name,
                    "`lateness` of limit `{name}` is too small for the way to the bank of channel `{}`: {why}", self.channel,
                );
            }
            self.too_small = names;
        }
        let why = too_small.into_iter().next().map(|(name, why)| format!("limit `{name}`: {why}"));
        self.node.status_report.note_distance(&self.channel, reading, why);
    }
}

/// Removes what this worker published: the channel is gone, or another worker publishes anew at its next try.
impl Drop for Reach {
    fn drop(&mut self) {
        match self.purpose {
            Purpose::Send => {
                self.node.status_report.forget_bank(&self.channel);
                self.node.metrics.forget_bank(&self.channel);
            }
            Purpose::Inquire => {
                self.note(None);
                self.node.metrics.forget_inquiry_address(&self.channel);
            }
        }
    }
}

/// Why a limit's `lateness` cannot cover how much the way to the bank varies; `None` if it can.
///
/// TCP expects an answer to be late by four times the variation of the round trip at most (RFC 6298). A request alone
/// may be as late as request and answer together.
fn too_small(limit: &Limit, reading: AddressTimes) -> Option<String> {
    let variation = reading.round_trip_variation?;
    let rule = &limit.rule;
    let ms = |span: Duration| span.as_micros() as f64 / 1000.0;
    let varies = 4 * variation;
    if rule.window().is_some() {
        // Add the way itself: the bank decides by its own clock, on arrival, in which window a request falls.
        let way = reading.round_trip.unwrap_or_default() / 2 + varies;
        return (rule.lateness < way).then(|| {
            format!(
                "it is {:.1} ms; half a round trip and 4 times its variation are {:.1} ms",
                ms(rule.lateness),
                ms(way)
            )
        });
    }
    (rule.lateness / 2 < varies).then(|| {
        format!(
            "half of it is {:.1} ms; 4 times the variation of the round trip is {:.1} ms",
            ms(rule.lateness / 2),
            ms(varies)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::{Algorithm, Placement, Rule};

    #[test]
    fn a_lateness_too_small_for_the_way_is_reported_with_the_numbers() {
        let limit = |algorithm| {
            let rule = Rule {
                algorithm,
                permits: 1,
                per: Duration::from_secs(1),
                lateness: Duration::from_millis(20),
            };
            let name = LimitName::new("acme").unwrap();
            Limit { name, rule, ahead: Duration::from_millis(50), placement: Placement::Shared }
        };
        let reading = |rtt, variation| AddressTimes {
            set_up: None,
            round_trip: Some(Duration::from_millis(rtt)),
            round_trip_variation: Some(Duration::from_micros(variation)),
        };
        assert_eq!(too_small(&limit(Algorithm::Paced), reading(200, 2500)), None);
        assert_eq!(
            too_small(&limit(Algorithm::Paced), reading(200, 30_000)).unwrap(),
            "half of it is 10.0 ms; 4 times the variation of the round trip is 120.0 ms"
        );
        let window = Algorithm::FixedWindow { zone: None };
        assert_eq!(too_small(&limit(window.clone()), reading(20, 2500)), None);
        assert_eq!(
            too_small(&limit(window), reading(200, 500)).unwrap(),
            "it is 20.0 ms; half a round trip and 4 times its variation are 102.0 ms"
        );
        assert_eq!(
            too_small(&limit(Algorithm::Paced), AddressTimes::default()),
            None,
            "nothing was measured"
        );
    }
}
