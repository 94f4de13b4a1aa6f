//! The cells: an algorithm, a rate, and the way to the bank.

use std::path::Path;
use std::time::Duration;

use playground::Distance;
use playground::judge::JudgedPeriod;
use playground::rule::{TestAlgorithm, TestRule};

const MS: Duration = Duration::from_millis(1);

/// The way to a bank: its distance, and whether the bank keeps connections open.
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

/// A round trip of 200 ms on average, give or take 30 ms, and this extra time to set up a connection.
const fn far(set_up_ms: u64) -> Distance {
    let one_way = Duration::from_millis(85);
    let set_up = Duration::from_millis(set_up_ms);
    Distance { set_up, there: one_way, back: one_way, jitter: Duration::from_millis(30) }
}

/// All ways. The first is near, and the others are compared with it.
pub const WAYS: [Way; 8] = [
    Way { name: "near", distance: HERE, hangs_up: false },
    set_up("5ms", 5),
    set_up("60ms", 60),
    set_up("150ms", 150),
    set_up("500ms", 500),
    Way { name: "far", distance: far(200), hangs_up: false },
    Way { name: "closes", distance: HERE, hangs_up: true },
    // TLS takes one more round trip, so the set-up takes 500 ms in all.
    Way { name: "all", distance: far(300), hangs_up: true },
];

/// A rate, and the number of nodes.
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

/// The `lateness` of all limits. It is above the jitter, and the same for near and far banks.
pub const LATENESS: &str = "100ms";
const LATE: Duration = Duration::from_millis(100);

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub algorithm: TestAlgorithm,
    pub pace: Pace,
    pub way: Way,
}

impl Cell {
    /// The name of the channel and of its limit.
    pub fn name(self) -> String {
        let pace = self.pace.name.replace('/', "-");
        format!("{}-{pace}-{}", self.algorithm.name().replace('_', "-"), self.way.name)
    }

    fn rule(self) -> TestRule {
        TestRule { algorithm: self.algorithm, permits: self.pace.permits, per: self.pace.per }
    }

    /// The promise to the bank.
    pub fn periods(self) -> Vec<JudgedPeriod> {
        JudgedPeriod::always(self.rule().promise())
    }

    /// The least time from the write of a first byte to its arrival, in microseconds. The bank's aligned windows
    /// begin later than ours by this much.
    pub fn shift_us(self) -> i64 {
        i64::try_from(self.way.distance.there.as_micros()).unwrap_or(i64::MAX)
    }

    /// The configuration of the limit and the channel.
    pub fn section(self, endpoint: &str, ca_file: &Path) -> String {
        let name = self.name();
        format!(
            "{}lateness = \"{LATENESS}\"\n[channel.{name}]\nendpoint = \"{endpoint}\"\nca_file = \"{}\"\n\
             limits = [\"{name}\"]\nmax_in_flight = {}\n",
            self.rule().section(&name),
            ca_file.display(),
            // A whole burst, so that the bank's time to answer is never the limit.
            self.pace.permits.max(16),
        )
    }

    /// The share of its permits that the limit lets through in the long run.
    pub fn expected(self) -> f64 {
        self.rule().share(LATE)
    }

    /// The time between the starts of two channels. The limits then stay that far apart, as limits of different banks
    /// are. Otherwise the sends of all channels would fall into one moment on a machine with two cores.
    pub fn apart(self, cells: usize) -> Duration {
        if self.pace.permits < 50 {
            return Duration::ZERO;
        }
        (self.pace.per + LATE) / u32::try_from(cells).unwrap_or(u32::MAX)
    }

    /// More refunds than the channel can send in `length`.
    pub fn backlog(self, length: Duration) -> u32 {
        let seconds = length.as_secs_f64() + 60.0;
        let sent = f64::from(self.pace.permits) * (seconds / self.pace.per.as_secs_f64() + 2.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousands")]
        let count = sent.ceil() as u32;
        count + 20
    }

    /// How far from each end of the measurement its stretch may begin or end. One period fits in, and a little more,
    /// because sliding windows are a little longer.
    pub fn search(self) -> Duration {
        (self.pace.per.mul_f64(1.25)).max(2_000 * MS)
    }
}

/// The chosen cells. A kind that no argument names is not restricted, and near banks are always measured.
#[derive(Debug)]
pub struct Choice {
    arguments: Vec<String>,
    seconds: Option<Duration>,
}

impl Choice {
    /// Reads the arguments, `ONLY` and `SECONDS`. Fails on an unknown argument.
    pub fn read() -> anyhow::Result<Choice> {
        let only = std::env::var("ONLY").unwrap_or_default();
        let args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
        let arguments: Vec<String> = args.chain(only.split([' ', ',']).map(str::to_owned)).collect();
        let arguments: Vec<String> = arguments.into_iter().filter(|argument| !argument.is_empty()).collect();
        for argument in &arguments {
            anyhow::ensure!(
                algorithms().any(|name| name == argument)
                    || PACES.iter().any(|pace| pace.name == argument)
                    || WAYS.iter().any(|way| way.name == argument),
                "`{argument}` is no algorithm ({}), no rate ({}) and no way ({})",
                algorithms().collect::<Vec<_>>().join(", "),
                PACES.map(|pace| pace.name).join(", "),
                WAYS.map(|way| way.name).join(", ")
            );
        }
        let seconds = match std::env::var("SECONDS") {
            Ok(text) => Some(Duration::from_secs(text.parse()?)),
            Err(_) => None,
        };
        Ok(Choice { arguments, seconds })
    }

    pub fn is_everything(&self) -> bool {
        self.arguments.is_empty() && self.seconds.is_none()
    }

    fn wants(&self, names: &mut dyn Iterator<Item = &'static str>, name: &str) -> bool {
        let chosen: Vec<&str> =
            names.filter(|known| self.arguments.iter().any(|argument| argument == known)).collect();
        chosen.is_empty() || chosen.contains(&name)
    }

    /// How long a group is measured: 40 s, or 200 s for periods of more than a second.
    pub fn length(&self, group: &[Cell]) -> Duration {
        let usual = if group.iter().any(|cell| cell.pace.per > Duration::from_secs(1)) { 200 } else { 40 };
        self.seconds.unwrap_or(Duration::from_secs(usual))
    }

    /// The chosen cells in groups that are measured one after the other: all slow cells, and each algorithm at 50/s.
    pub fn groups(&self) -> Vec<Vec<Cell>> {
        let mut slow = Vec::new();
        let mut groups = Vec::new();
        for algorithm in TestAlgorithm::ALL {
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
    TestAlgorithm::ALL.into_iter().map(TestAlgorithm::name)
}
