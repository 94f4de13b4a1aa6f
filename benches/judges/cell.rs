//! The settings that are tested at each judge: an algorithm at exactly the judge's limit, or a tenth below it.

/// Requests a second: the limit of every judge.
pub const RATE: u32 = 20;
/// A tenth below the judge's limit.
const LOWER: u32 = RATE * 9 / 10;

/// An algorithm with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its part of the channel's name.
    pub name: &'static str,
    /// The text in the table.
    pub shown: &'static str,
    /// Permits a second.
    pub permits: u32,
    /// The limit's section without the permits.
    pub limit: &'static str,
    /// Whether a refusal slows the channel down. Without it the result shows the limiter alone.
    pub is_adaptive: bool,
}

/// The settings to measure.
pub const SETTINGS: &[Setting] = &[
    alone(
        "fixed-20",
        "`fixed_window`, `lateness` 20 ms",
        "algorithm = \"fixed_window\"\nlateness = \"20ms\"\n",
    ),
    alone("paced-5", "`paced`, `lateness` 5 ms", "algorithm = \"paced\"\nlateness = \"5ms\"\n"),
    alone("paced-20", "`paced`, `lateness` 20 ms", "algorithm = \"paced\"\nlateness = \"20ms\"\n"),
    alone("paced-100", "`paced`, `lateness` 100 ms", "algorithm = \"paced\"\nlateness = \"100ms\"\n"),
    alone("strict-2", "`paced`, strict gap, `lateness` 2 ms", STRICT_2),
    alone("strict-5", "`paced`, strict gap, `lateness` 5 ms", STRICT_5),
    alone("strict-10", "`paced`, strict gap, `lateness` 10 ms", STRICT_10),
    alone("strict-20", "`paced`, strict gap, `lateness` 20 ms", STRICT_20),
    Setting {
        permits: LOWER,
        ..alone(
            "lower-20",
            "`paced`, 18 a second, `lateness` 20 ms",
            "algorithm = \"paced\"\nlateness = \"20ms\"\n",
        )
    },
    alone("log-20", "`sliding_log`, `lateness` 20 ms", "algorithm = \"sliding_log\"\nlateness = \"20ms\"\n"),
    alone(
        "window-20",
        "`sliding_window`, `lateness` 20 ms",
        "algorithm = \"sliding_window\"\nlateness = \"20ms\"\n",
    ),
    alone(
        "bucket-20",
        "`token_bucket`, `burst` 1, `lateness` 20 ms",
        "algorithm = \"token_bucket\"\nburst = 1\nlateness = \"20ms\"\n",
    ),
    adaptive(
        "fixed-20-adaptive",
        "`fixed_window`, `lateness` 20 ms, adaptive",
        "algorithm = \"fixed_window\"\nlateness = \"20ms\"\n",
    ),
    adaptive(
        "paced-20-adaptive",
        "`paced`, `lateness` 20 ms, adaptive",
        "algorithm = \"paced\"\nlateness = \"20ms\"\n",
    ),
    adaptive("strict-10-adaptive", "`paced`, strict gap, `lateness` 10 ms, adaptive", STRICT_10),
];

const STRICT_2: &str = "algorithm = \"paced\"\ngap = \"strict\"\nlateness = \"2ms\"\n";
const STRICT_5: &str = "algorithm = \"paced\"\ngap = \"strict\"\nlateness = \"5ms\"\n";
const STRICT_10: &str = "algorithm = \"paced\"\ngap = \"strict\"\nlateness = \"10ms\"\n";
const STRICT_20: &str = "algorithm = \"paced\"\ngap = \"strict\"\nlateness = \"20ms\"\n";

const fn alone(name: &'static str, shown: &'static str, limit: &'static str) -> Setting {
    Setting { name, shown, permits: RATE, limit, is_adaptive: false }
}

const fn adaptive(name: &'static str, shown: &'static str, limit: &'static str) -> Setting {
    Setting { name, shown, permits: RATE, limit, is_adaptive: true }
}

impl Setting {
    /// The configuration of the channel and its limit. `endpoint` is the judge's address for this channel.
    pub fn section(&self, channel: &str, endpoint: &str) -> String {
        format!(
            "[limit.{channel}]\npermits = {}\nper = \"1s\"\n{}[channel.{channel}]\nendpoint = \"{endpoint}\"\n\
             limits = [\"{channel}\"]\nmax_in_flight = {RATE}\nadaptive = {}\n",
            self.permits, self.limit, self.is_adaptive
        )
    }
}
