//! The cells: an algorithm, a rate, and the way to the bank.

use std::collections::BTreeMap;
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

/// The nearest way and the hardest one.
const EXTREMES: [Way; 2] = [WAYS[0], WAYS[7]];

/// A rate, the number of nodes, and the ways that are tried with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub name: &'static str,
    pub permits: u32,
    pub per: Duration,
    pub nodes: u32,
    pub ways: &'static [Way],
}

const fn one_a_second(nodes: u32, ways: &'static [Way]) -> Pace {
    Pace { name: "1/s", permits: 1, per: Duration::from_secs(1), nodes, ways }
}

const fn ten_a_minute(nodes: u32, ways: &'static [Way]) -> Pace {
    Pace { name: "10/min", permits: 10, per: Duration::from_mins(1), nodes, ways }
}

const fn fifty_a_second(nodes: u32, ways: &'static [Way]) -> Pace {
    Pace { name: "50/s", permits: 50, per: Duration::from_secs(1), nodes, ways }
}

/// All rates, each with its numbers of nodes. The fewest and the most nodes have the extreme ways only, so that the
/// whole run stays short.
pub const PACES: [Pace; 9] = [
    one_a_second(1, &EXTREMES),
    one_a_second(6, &WAYS),
    one_a_second(20, &EXTREMES),
    ten_a_minute(1, &EXTREMES),
    ten_a_minute(6, &WAYS),
    ten_a_minute(20, &EXTREMES),
    fifty_a_second(1, &EXTREMES),
    fifty_a_second(3, &WAYS),
    fifty_a_second(20, &EXTREMES),
];

impl Pace {
    fn has_all_ways(self) -> bool {
        self.ways.len() == WAYS.len()
    }

    /// How long a cell of this rate is measured at least.
    pub fn length(self) -> Duration {
        Duration::from_secs(match (self.permits < 50, self.has_all_ways()) {
            (true, _) if self.per > Duration::from_secs(1) => 200,
            (true, _) | (false, true) => 40,
            (false, false) => 20,
        })
    }
}

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
        // A whole burst, so that the bank's time to answer is never the limit. A bank that closes each connection
        // needs about 2 × rate × (set-up + round trip) of them (decision 0011). One node needs all of these.
        let bursts = if self.pace.nodes == 1 { 2 } else { 1 };
        format!(
            "{}lateness = \"{LATENESS}\"\n[channel.{name}]\nendpoint = \"{endpoint}\"\nca_file = \"{}\"\n\
             limits = [\"{name}\"]\nmax_in_flight = {}\n",
            self.rule().section(&name),
            ca_file.display(),
            (bursts * self.pace.permits).max(16),
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

    /// Cells with the same key are measured at the same time, in the order of the keys. Slow cells share a group:
    /// those with all ways, and those with the extreme ways. At 50 a second each algorithm has a group of its own,
    /// because many nodes together keep many connections open. One node keeps few, so all algorithms share it.
    pub fn group(self) -> (u32, &'static str) {
        match (self.pace.permits < 50, self.pace.has_all_ways()) {
            (true, true) => (0, ""),
            (false, true) => (1, self.algorithm.name()),
            (true, false) => (2, ""),
            (false, false) if self.pace.nodes == 1 => (3, ""),
            (false, false) => (4, self.algorithm.name()),
        }
    }
}

/// The cells by their number of nodes. Each number has a stage of its own.
pub fn stages(cells: Vec<Cell>) -> Vec<Vec<Cell>> {
    let mut stages: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
    for cell in cells {
        stages.entry(cell.pace.nodes).or_default().push(cell);
    }
    stages.into_values().collect()
}
