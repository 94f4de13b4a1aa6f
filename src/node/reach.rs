//! Whether one address of a bank can be reached from this node, and how far away it is: for logs, metrics and
//! people. The first failure is logged, and the recovery.

use std::time::{Duration, Instant};

use super::Node;
use crate::bank::{Pool, Reading, Unreachable};
use crate::bucket::Errand;
use crate::limiter::{Algorithm, Limit};
use crate::refund::{ChannelName, Code, LimitName};

/// As one loop sees it.
#[derive(Debug)]
pub struct Reach {
    node: Node,
    channel: ChannelName,
    errand: Errand,
    away_since: Option<Instant>,
    measured: Option<Instant>,
    too_small: Vec<LimitName>,
}

impl Reach {
    const MEASURE_EVERY: Duration = Duration::from_secs(1);

    pub fn new(node: Node, channel: ChannelName, errand: Errand) -> Self {
        let reach = Reach { node, channel, errand, away_since: None, measured: None, too_small: Vec::new() };
        // A loop that ran before may have left its word.
        reach.note(None);
        reach
    }

    fn note(&self, message: Option<&str>) {
        match self.errand {
            Errand::Send => self.node.standing.note_unreachable(&self.channel, message),
            Errand::Inquire => self.node.standing.note_unreachable_to_ask(&self.channel, message),
        }
    }

    /// There is no connection, and none can be had just now.
    pub fn failed(&mut self, pool: &Pool, unreachable: &Unreachable) {
        let name = &self.channel;
        if unreachable.code == Code::ConnectionsUsedUp {
            return;
        }
        if self.away_since.is_none() {
            self.away_since = Some(Instant::now());
            let (code, message) = (unreachable.code.as_str(), &unreachable.message);
            match self.errand {
                Errand::Send => tracing::warn!(
                    channel.name = %name, code,
                    "Channel `{name}` is unreachable from this node: failed to {message}; no permit is spent and no attempt counted until a connection is open",
                ),
                Errand::Inquire => tracing::warn!(
                    channel.name = %name, code,
                    "The inquiry address of channel `{name}` is unreachable from this node: failed to {message}; what is unknown is asked about when a connection is open",
                ),
            }
        }
        self.note(Some(&unreachable.message));
        self.count(pool);
    }

    /// There is a connection.
    pub fn reached(&mut self, pool: &Pool, limits: &[std::sync::Arc<Limit>]) {
        let name = &self.channel;
        if let Some(since) = self.away_since.take() {
            let away_ms = since.elapsed().as_millis();
            match self.errand {
                Errand::Send => {
                    tracing::info!(channel.name = %name, away_ms, "Channel `{name}` can be reached again");
                }
                Errand::Inquire => {
                    tracing::info!(channel.name = %name, away_ms, "The inquiry address of channel `{name}` can be reached again");
                }
            }
            self.note(None);
            self.measured = None;
        }
        if self.measured.is_none_or(|at| at.elapsed() >= Self::MEASURE_EVERY) {
            self.measured = Some(Instant::now());
            self.count(pool);
            if self.errand == Errand::Send {
                self.measure(pool.reading(), limits);
            }
        }
    }

    fn count(&self, pool: &Pool) {
        for (code, failures) in pool.take_failures() {
            self.node.metrics.connect_failures(&self.channel, code, failures);
        }
        if self.errand == Errand::Send {
            self.node.metrics.bank_connected(&self.channel, self.away_since.is_none());
        }
    }

    fn measure(&mut self, reading: Reading, limits: &[std::sync::Arc<Limit>]) {
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
        self.node.standing.note_distance(&self.channel, reading, why);
    }
}

/// The channel is gone, or another loop speaks of it from now on, at its next try at the latest.
impl Drop for Reach {
    fn drop(&mut self) {
        match self.errand {
            Errand::Send => {
                self.node.standing.forget_bank(&self.channel);
                self.node.metrics.forget_bank(&self.channel);
            }
            Errand::Inquire => self.note(None),
        }
    }
}

/// Why a limit's `lateness` cannot cover how much the way to the bank varies. TCP takes four times the variation of
/// the round trip for the most that an answer may come late (RFC 6298); a request that is held up on its way is
/// no better off than both ways together.
fn too_small(limit: &Limit, reading: Reading) -> Option<String> {
    let variation = reading.round_trip_variation?;
    let rule = &limit.rule;
    let ms = |span: Duration| span.as_micros() as f64 / 1000.0;
    let varies = 4 * variation;
    match rule.algorithm {
        // The way itself counts too: the bank's window is over when it is over there.
        Algorithm::FixedWindow { .. } => {
            let way = reading.round_trip.unwrap_or_default() / 2 + varies;
            (rule.lateness < way).then(|| {
                format!(
                    "it is {:.1} ms; half a round trip and 4 times its variation are {:.1} ms",
                    ms(rule.lateness),
                    ms(way)
                )
            })
        }
        Algorithm::Paced
        | Algorithm::PacedStrict
        | Algorithm::SlidingLog
        | Algorithm::SlidingWindow { .. }
        | Algorithm::TokenBucket { .. } => (rule.lateness / 2 < varies).then(|| {
            format!(
                "half of it is {:.1} ms; 4 times the variation of the round trip is {:.1} ms",
                ms(rule.lateness / 2),
                ms(varies)
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::{Placement, Rule};

    #[test]
    fn a_way_that_varies_more_than_lateness_covers_is_told_with_the_numbers() {
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
        let reading = |rtt, variation| Reading {
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
        assert_eq!(too_small(&limit(Algorithm::Paced), Reading::default()), None, "nothing was measured");
    }
}
