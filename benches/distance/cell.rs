//! One cell of the matrix: which algorithm, at which rate, to a bank how far away.

use std::path::Path;
use std::time::Duration;

use playground::Distance;
use playground::judge::Period;
use playground::rule::{Algorithm, Rule};

const MS: Duration = Duration::from_millis(1);

/// The way to a bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub name: &'static str,
    pub distance: Distance,
    /// Whether the bank closes each connection after one answer.
    pub hangs_up: bool,
}

const fn set_up(name: &'static str, ms: u64) -> Way {
    Way { name, distance: Distance { set_up: Duration::from_millis(ms), ..HERE }, hangs_up: false }
}

const HERE: Distance =
    Distance { set_up: Duration::ZERO, there: Duration::ZERO, back: Duration::ZERO, jitter: Duration::ZERO };

/// A round trip of 200 ms, 30 ms more or less, and a connection that takes two of them, or this much more.
const fn far(set_up_ms: u64) -> Distance {
    let one_way = Duration::from_millis(85);
    let set_up = Duration::from_millis(set_up_ms);
    Distance { set_up, there: one_way, back: one_way, jitter: Duration::from_millis(30) }
}

/// The near one first: the others are held against it.
pub const WAYS: [Way; 8] = [
    Way { name: "near", distance: HERE, hangs_up: false },
    set_up("5ms", 5),
    set_up("60ms", 60),
    set_up("150ms", 150),
    set_up("500ms", 500),
    Way { name: "far", distance: far(200), hangs_up: false },
    Way { name: "closes", distance: HERE, hangs_up: true },
    // TLS takes one round trip more: 500 ms in all.
    Way { name: "all", distance: far(300), hangs_up: true },
];

/// How much may be sent, and by how many nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub name: &'static str,
    pub permits: u32,
    pub per: Duration,
    pub nodes: u32,
}

pub const PACES: [Pace; 3] = [
    Pace { name: "1/s", permits: 1, per: Duration::from_secs(1), nodes: 6 },
    Pace { name: "10/min", permits: 10, per: Duration::from_mins(1), nodes: 6 },
    Pace { name: "50/s", permits: 50, per: Duration::from_secs(1), nodes: 3 },
];

/// Above the jitter, for the near bank as for the far one.
pub const LATENESS: &str = "100ms";
const LATE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub algorithm: Algorithm,
    pub pace: Pace,
    pub way: Way,
}

impl Cell {
    /// The channel and its limit.
    pub fn name(self) -> String {
        let pace = self.pace.name.replace('/', "-");
        format!("{}-{pace}-{}", self.algorithm.name().replace('_', "-"), self.way.name)
    }

    fn rule(self) -> Rule {
        Rule { algorithm: self.algorithm, permits: self.pace.permits, per: self.pace.per }
    }

    /// What was promised to the bank.
    pub fn periods(self) -> Vec<Period> {
        Period::always(self.rule().law())
    }

    /// How much later than it left the first byte of a request arrives at least, in microseconds: by so much
    /// the bank's aligned windows begin later than ours.
    pub fn shift_us(self) -> i64 {
        i64::try_from(self.way.distance.there.as_micros()).unwrap_or(i64::MAX)
    }

    /// As it stands in a node's file.
    pub fn section(self, endpoint: &str, ca_file: &Path) -> String {
        let name = self.name();
        format!(
            "{}lateness = \"{LATENESS}\"\n[channel.{name}]\nendpoint = \"{endpoint}\"\nca_file = \"{}\"\n\
             limits = [\"{name}\"]\nmax_in_flight = {}\n",
            self.rule().section(&name),
            ca_file.display(),
            // A whole burst, so that the bank's time to answer never limits.
            self.pace.permits.max(16),
        )
    }

    /// The share of its number that a limit lets through for ever, by its algorithm and `lateness` (docs/limits.md).
    pub fn expected(self) -> f64 {
        let per = self.pace.per.as_secs_f64();
        match self.algorithm {
            Algorithm::FixedWindow => 1.0,
            Algorithm::Paced | Algorithm::SlidingLog | Algorithm::TokenBucket => {
                per / (per + LATE.as_secs_f64())
            }
            // Ten segments, of which one more than the span is counted.
            Algorithm::SlidingWindow => per / ((per + LATE.as_secs_f64()) * 1.1),
        }
    }

    /// How long after the one before a channel begins. Limits that open all at once stay that far apart, as those of
    /// different banks are, and one second's sends do not all fall into one moment of two cores.
    pub fn apart(self, cells: usize) -> Duration {
        if self.pace.permits < 50 {
            return Duration::ZERO;
        }
        (self.pace.per + LATE) / u32::try_from(cells).unwrap_or(u32::MAX)
    }

    /// More than can go in so long.
    pub fn backlog(self, length: Duration) -> i32 {
        let seconds = length.as_secs_f64() + 60.0;
        let sent = f64::from(self.pace.permits) * (seconds / self.pace.per.as_secs_f64() + 2.0);
        #[expect(clippy::cast_possible_truncation, reason = "some thousands")]
        let count = sent.ceil() as i32;
        count + 20
    }

    /// Where a stretch that is measured may begin and end: a whole period fits in, and some more, since windows
    /// that slide are a little longer.
    pub fn search(self) -> Duration {
        (self.pace.per.mul_f64(1.25)).max(2_000 * MS)
    }
}

/// What somebody asked for; of what no word speaks, all. Near banks are always there.
#[derive(Debug)]
pub struct Choice {
    words: Vec<String>,
    seconds: Option<Duration>,
}

impl Choice {
    pub fn read() -> anyhow::Result<Choice> {
        let only = std::env::var("ONLY").unwrap_or_default();
        let args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
        let words: Vec<String> = args.chain(only.split([' ', ',']).map(str::to_owned)).collect();
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        for word in &words {
            anyhow::ensure!(
                algorithms().any(|name| name == word)
                    || PACES.iter().any(|pace| pace.name == word)
                    || WAYS.iter().any(|way| way.name == word),
                "`{word}` is no algorithm ({}), no rate ({}) and no way ({})",
                algorithms().collect::<Vec<_>>().join(", "),
                PACES.map(|pace| pace.name).join(", "),
                WAYS.map(|way| way.name).join(", ")
            );
        }
        let seconds = match std::env::var("SECONDS") {
            Ok(text) => Some(Duration::from_secs(text.parse()?)),
            Err(_) => None,
        };
        Ok(Choice { words, seconds })
    }

    pub fn is_everything(&self) -> bool {
        self.words.is_empty() && self.seconds.is_none()
    }

    fn wants(&self, names: &mut dyn Iterator<Item = &'static str>, name: &str) -> bool {
        let chosen: Vec<&str> = names.filter(|known| self.words.iter().any(|word| word == known)).collect();
        chosen.is_empty() || chosen.contains(&name)
    }

    /// How long a group is measured.
    pub fn length(&self, group: &[Cell]) -> Duration {
        let usual = if group.iter().any(|cell| cell.pace.per > Duration::from_secs(1)) { 200 } else { 40 };
        self.seconds.unwrap_or(Duration::from_secs(usual))
    }

    /// The cells, in groups of which each has the machine to itself: all slow ones, and each algorithm at 50 a second.
    pub fn groups(&self) -> Vec<Vec<Cell>> {
        let mut slow = Vec::new();
        let mut groups = Vec::new();
        for algorithm in Algorithm::ALL {
            let mut fast = Vec::new();
            for pace in PACES {
                for way in WAYS {
                    let wanted = self.wants(&mut algorithms(), algorithm.name())
                        && self.wants(&mut PACES.iter().map(|pace| pace.name), pace.name)
                        && (way.name == "near" || self.wants(&mut WAYS.iter().map(|way| way.name), way.name));
                    let group = if pace.permits < 50 { &mut slow } else { &mut fast };
                    if wanted {
                        group.push(Cell { algorithm, pace, way });
                    }
                }
            }
            groups.push(fast);
        }
        groups.insert(0, slow);
        groups.retain(|group| !group.is_empty());
        groups
    }
}

fn algorithms() -> impl Iterator<Item = &'static str> {
    Algorithm::ALL.into_iter().map(Algorithm::name)
}
