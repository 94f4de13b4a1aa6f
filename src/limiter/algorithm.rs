//! The algorithms, and the properties that the rest of refundd asks them for.
//!
//! It does not count: the scripts in `limiter/lua` count. CONTRIBUTING.md says how to add an algorithm.

use jiff::tz::TimeZone;

/// The algorithms, one of them in two forms; docs/limits.md draws each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Algorithm {
    /// `permits` in each aligned window of Redis's clock, or in each day of a time zone.
    FixedWindow { zone: Option<TimeZone> },
    /// `permits` in any span of `per`, evenly spaced.
    Paced,
    /// As `Paced`, and any two first bytes are at least `per` / `permits` apart.
    PacedStrict,
    /// `permits` in any span of `per`, with bursts; counted exactly.
    SlidingLog,
    /// `permits` in any span of `per`, with bursts; counted by segments.
    SlidingWindow { segments: u32 },
    /// At most `permits` + `burst` in any span of `per`.
    TokenBucket { burst: u32 },
}

/// How the permits of an algorithm become free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// Each permit is a slot at a fixed moment. An unused slot is lost.
    Slots,
    /// One by one. Unused permits add up to the burst.
    OneByOne,
    /// Many at one moment.
    Together,
}

/// What an algorithm is like.
#[derive(Debug, Clone, Copy)]
struct Properties<'a> {
    name: &'static str,
    /// The Lua that counts: `admit.NAME` and its functions.
    script: &'static str,
    /// Whether permits are numbered within windows that all nodes know.
    is_numbered: bool,
    /// The time zone whose days are the windows.
    zone: Option<&'a TimeZone>,
    supply: Supply,
    /// Whether any two first bytes keep a distance, however late each of them is.
    keeps_gap: bool,
    /// How many permits a span may have on top of the rule's `permits`.
    burst: Option<u32>,
    /// The parts of `per` by which it counts. A part that overlaps a span counts whole.
    segments: Option<u32>,
}

impl Algorithm {
    /// Every algorithm, with these numbers where it has numbers of its own. The configuration, the scripts and the
    /// tests go through this list.
    #[must_use]
    pub fn all(burst: u32, segments: u32) -> [Algorithm; 6] {
        [
            Algorithm::FixedWindow { zone: None },
            Algorithm::Paced,
            Algorithm::PacedStrict,
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow { segments },
            Algorithm::TokenBucket { burst },
        ]
    }

    fn properties(&self) -> Properties<'_> {
        match self {
            Algorithm::FixedWindow { zone } => Properties {
                name: "fixed_window",
                script: include_str!("lua/fixed_window.lua"),
                is_numbered: true,
                zone: zone.as_ref(),
                supply: Supply::Together,
                keeps_gap: false,
                burst: None,
                segments: None,
            },
            Algorithm::Paced => Properties {
                name: "paced",
                script: include_str!("lua/paced.lua"),
                is_numbered: false,
                zone: None,
                supply: Supply::Slots,
                keeps_gap: false,
                burst: None,
                segments: None,
            },
            Algorithm::PacedStrict => {
                Properties { name: "paced_strict", keeps_gap: true, ..Algorithm::Paced.properties() }
            }
            Algorithm::SlidingLog => Properties {
                name: "sliding_log",
                script: include_str!("lua/sliding_log.lua"),
                is_numbered: false,
                zone: None,
                supply: Supply::Together,
                keeps_gap: false,
                burst: None,
                segments: None,
            },
            Algorithm::SlidingWindow { segments } => Properties {
                name: "sliding_window",
                script: include_str!("lua/sliding_window.lua"),
                is_numbered: false,
                zone: None,
                supply: Supply::Together,
                keeps_gap: false,
                burst: None,
                segments: Some(*segments),
            },
            Algorithm::TokenBucket { burst } => Properties {
                name: "token_bucket",
                script: include_str!("lua/token_bucket.lua"),
                is_numbered: false,
                zone: None,
                supply: Supply::OneByOne,
                keeps_gap: false,
                burst: Some(*burst),
                segments: None,
            },
        }
    }

    /// The algorithm with another burst, if it has one.
    #[must_use]
    pub fn with_burst(mut self, other: u32) -> Algorithm {
        match &mut self {
            Algorithm::TokenBucket { burst } => *burst = other,
            Algorithm::FixedWindow { .. }
            | Algorithm::Paced
            | Algorithm::PacedStrict
            | Algorithm::SlidingLog
            | Algorithm::SlidingWindow { .. } => {}
        }
        self
    }

    /// The algorithm with the days of this zone as windows; `None` for an algorithm without windows.
    #[must_use]
    pub fn in_zone(self, zone: TimeZone) -> Option<Algorithm> {
        self.is_numbered().then_some(Algorithm::FixedWindow { zone: Some(zone) })
    }

    /// The name in a rule's JSON form; in the configuration file `paced_strict` is `paced` with `gap = "strict"`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.properties().name
    }

    /// The Lua that counts.
    #[must_use]
    pub fn script(&self) -> &'static str {
        self.properties().script
    }

    /// Whether permits are numbered within windows that all nodes know. Then the ledger's key alone keeps the limit.
    #[must_use]
    pub fn is_numbered(&self) -> bool {
        self.properties().is_numbered
    }

    /// The time zone whose days are the windows; `None` for other algorithms.
    #[must_use]
    pub fn zone(&self) -> Option<&TimeZone> {
        self.properties().zone
    }

    /// How permits become free.
    #[must_use]
    pub fn supply(&self) -> Supply {
        self.properties().supply
    }

    /// Whether each permit is a slot at a fixed moment.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.supply() == Supply::Slots
    }

    /// Whether any two first bytes keep a distance, however late each of them is.
    #[must_use]
    pub fn keeps_gap(&self) -> bool {
        self.properties().keeps_gap
    }

    /// How many permits a span may have on top of the rule's `permits`; `None` for an algorithm without a burst.
    #[must_use]
    pub fn burst(&self) -> Option<u32> {
        self.properties().burst
    }

    /// By how many parts of `per` it counts; `None` for an algorithm that counts exactly.
    #[must_use]
    pub fn segments(&self) -> Option<u32> {
        self.properties().segments
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The files in `limiter/lua` that count nothing by themselves.
    const SHARED: [&str; 2] = ["rule.lua", "grant.lua"];

    #[test]
    fn every_script_is_one_of_a_listed_algorithm_that_it_defines() {
        let all = Algorithm::all(1, 1);
        for algorithm in &all {
            let defined = format!("admit.{} = ", algorithm.name());
            assert!(algorithm.script().contains(&defined), "its script lacks `{defined}`");
        }
        let scripts: BTreeSet<&str> = all.iter().map(Algorithm::script).collect();
        for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/limiter/lua")).unwrap()
        {
            let path = file.unwrap().path();
            let is_shared = SHARED.iter().any(|shared| path.ends_with(shared));
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(is_shared || scripts.contains(text.as_str()), "{path:?} is of no algorithm in `all`");
        }
        let names: BTreeSet<&str> = all.iter().map(Algorithm::name).collect();
        assert_eq!(names.len(), all.len());
    }
}
