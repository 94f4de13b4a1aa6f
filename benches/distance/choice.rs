//! Which cells are measured, for how long, and which at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use playground::rule::TestAlgorithm;
use playground::variable::number;

use crate::cell::{Cell, PACES, WAYS, Way};

/// The chosen cells. A kind that no argument names is not restricted, and the near bank is measured beside every way.
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
                    || rates().contains(&argument.as_str())
                    || argument.parse::<u32>().is_ok_and(|number| numbers_of_nodes().contains(&number))
                    || WAYS.iter().any(|way| way.name == argument),
                "`{argument}` is no algorithm ({}), no rate ({}), no number of nodes {:?} and no way ({})",
                algorithms().collect::<Vec<_>>().join(", "),
                rates().join(", "),
                numbers_of_nodes(),
                WAYS.map(|way| way.name).join(", ")
            );
        }
        let seconds = number("SECONDS")?.map(Duration::from_secs);
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

    fn wants_nodes(&self, nodes: u32) -> bool {
        let chosen: Vec<u32> = self.arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
        chosen.is_empty() || chosen.contains(&nodes)
    }

    /// How long a group is measured: as long as its slowest rate needs.
    pub fn length(&self, group: &[Cell]) -> Duration {
        let usual = group.iter().map(|cell| cell.pace.length()).max().unwrap_or_default();
        self.seconds.unwrap_or(usual)
    }

    /// The chosen cells in groups that are measured one after the other.
    pub fn groups(&self) -> Vec<Vec<Cell>> {
        let mut groups: BTreeMap<_, Vec<Cell>> = BTreeMap::new();
        let wants_way = |way: &Way| self.wants(&mut WAYS.iter().map(|way| way.name), way.name);
        for algorithm in TestAlgorithm::ALL {
            for pace in PACES {
                let wanted = self.wants(&mut algorithms(), algorithm.name())
                    && self.wants(&mut rates().into_iter(), pace.name)
                    && self.wants_nodes(pace.nodes)
                    && pace.ways.iter().any(wants_way);
                if !wanted {
                    continue;
                }
                for &way in pace.ways.iter().filter(|&way| *way == WAYS[0] || wants_way(way)) {
                    let cell = Cell { algorithm, pace, way };
                    groups.entry(cell.group()).or_default().push(cell);
                }
            }
        }
        groups.into_values().collect()
    }
}

fn algorithms() -> impl Iterator<Item = &'static str> {
    TestAlgorithm::ALL.into_iter().map(TestAlgorithm::name)
}

fn rates() -> Vec<&'static str> {
    let mut names = PACES.map(|pace| pace.name).to_vec();
    names.dedup();
    names
}

fn numbers_of_nodes() -> BTreeSet<u32> {
    PACES.iter().map(|pace| pace.nodes).collect()
}
