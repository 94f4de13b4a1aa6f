//! The cases: the algorithm, the rate and the number of nodes, and which cases may share the machine.

use std::fmt;
use std::time::Duration;

use anyhow::bail;
use playground::rule::TestAlgorithm;
use serde::{Serialize, Serializer};

/// The limiter that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Refundd(TestAlgorithm),
    /// The limiter of the peer, `BullMQ`.
    Bullmq,
}

impl Kind {
    pub fn all() -> impl Iterator<Item = Kind> {
        TestAlgorithm::ALL.into_iter().map(Kind::Refundd).chain([Kind::Bullmq])
    }

    pub fn name(self) -> &'static str {
        self.algorithm().map_or("bullmq", TestAlgorithm::name)
    }

    /// The algorithm of a limit; `None` for the peer.
    pub fn algorithm(self) -> Option<TestAlgorithm> {
        match self {
            Kind::Refundd(algorithm) => Some(algorithm),
            Kind::Bullmq => None,
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// One measurement. All limits are `permits` a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Case {
    #[serde(rename = "algorithm")]
    pub kind: Kind,
    pub permits: u32,
    /// Nodes of refundd, or worker processes of the peer.
    pub nodes: u32,
}

impl Case {
    pub const PER: Duration = Duration::from_secs(1);
    /// The time after the first arrival in which a full token bucket empties and every node opens its connections.
    pub const WARM: Duration = Duration::from_secs(3);

    /// How long the case is measured. Slower cases take longer.
    pub fn length(self) -> Duration {
        Duration::from_secs(match self.permits {
            ..10 => 60,
            10..500 => 20,
            _ => 11,
        })
    }

    /// More refunds than the run can send and the bucket can hold, so that some always wait in Postgres too.
    pub fn backlog(self) -> u32 {
        let seconds = (Self::WARM + self.length()).as_secs() + 10;
        2_000 + self.permits * u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// Requests in progress on each node: a whole burst, so that the bank's time to answer is never the limit.
    pub fn in_flight(self) -> u32 {
        self.permits.max(16)
    }

    /// The burst of the limit; `None` for an algorithm without one.
    pub fn burst(self) -> Option<u32> {
        self.kind.algorithm()?.has_burst().then(|| (self.permits / 5).max(1))
    }

    /// The limit and the channel for a node's configuration. All other settings are the defaults.
    pub fn channels(self) -> String {
        let burst = self.burst().map_or(String::new(), |burst| format!("burst = {burst}\n"));
        format!(
            "[limit.acme]\nalgorithm = \"{}\"\npermits = {}\nper = \"1s\"\n{burst}[channel.acme]\n\
             endpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\nmax_in_flight = {}\n",
            self.kind.name(),
            self.permits,
            self.in_flight(),
        )
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/s on {} nodes", self.kind.name(), self.permits, self.nodes)
    }
}

const RATES: [u32; 3] = [1, 50, 1_000];
const NODES: [u32; 2] = [3, 20];

/// The chosen cases.
#[derive(Debug, Default)]
pub struct Choice {
    kinds: Vec<Kind>,
    rates: Vec<u32>,
    nodes: Vec<u32>,
}

impl Choice {
    /// Reads names, rates and numbers of nodes in any order. A kind that no argument names is not restricted. Fails
    /// on an unknown argument.
    pub fn of(arguments: impl Iterator<Item = String>) -> anyhow::Result<Choice> {
        let mut choice = Choice::default();
        for argument in arguments {
            let kind = Kind::all().find(|kind| kind.name() == argument);
            match (kind, argument.parse()) {
                (Some(kind), _) => choice.kinds.push(kind),
                (None, Ok(number)) if RATES.contains(&number) => choice.rates.push(number),
                (None, Ok(number)) if NODES.contains(&number) => choice.nodes.push(number),
                _ => bail!(
                    "`{argument}` is no algorithm, no rate of {RATES:?} and no number of nodes of {NODES:?}"
                ),
            }
        }
        Ok(choice)
    }

    pub fn is_everything(&self) -> bool {
        self.kinds.is_empty() && self.rates.is_empty() && self.nodes.is_empty()
    }

    /// The chosen cases in groups. The cases of a group are measured at the same time, each on its own servers. At
    /// one a second the machine is nearly idle, so all algorithms run together. At higher rates each case runs alone.
    pub fn groups(&self) -> Vec<Vec<Case>> {
        let wanted = |case: &Case| {
            (self.kinds.is_empty() || self.kinds.contains(&case.kind))
                && (self.rates.is_empty() || self.rates.contains(&case.permits))
                && (self.nodes.is_empty() || self.nodes.contains(&case.nodes))
                // The peer is measured at the usual limits of banks only: few workers and low rates.
                && (case.kind != Kind::Bullmq || (case.permits <= 50 && case.nodes == 3))
        };
        let mut groups = Vec::new();
        for permits in RATES {
            for nodes in NODES {
                let cases = Kind::all().map(|kind| Case { kind, permits, nodes }).filter(wanted);
                if permits == 1 {
                    groups.push(cases.collect());
                } else {
                    groups.extend(cases.map(|case| vec![case]));
                }
            }
        }
        groups.retain(|group| !group.is_empty());
        groups
    }
}
