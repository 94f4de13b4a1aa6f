//! What stands before each judge: an algorithm and its settings, at exactly the judge's limit.

/// Permits a second: the limit of every channel, and of every judge.
pub const RATE: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its part of the channel's name.
    pub name: &'static str,
    /// What people read.
    pub shown: &'static str,
    /// The limit's section, but for the permits.
    pub limit: &'static str,
}

/// Add a line for each setting that is to be measured.
pub const SETTINGS: &[Setting] = &[
    setting(
        "fixed-20",
        "`fixed_window`, `lateness` 20 ms",
        "algorithm = \"fixed_window\"\nlateness = \"20ms\"\n",
    ),
    setting("paced-2", "`paced`, `lateness` 2 ms", "algorithm = \"paced\"\nlateness = \"2ms\"\n"),
    setting("paced-20", "`paced`, `lateness` 20 ms", "algorithm = \"paced\"\nlateness = \"20ms\"\n"),
    setting("paced-100", "`paced`, `lateness` 100 ms", "algorithm = \"paced\"\nlateness = \"100ms\"\n"),
    setting("paced-250", "`paced`, `lateness` 250 ms", "algorithm = \"paced\"\nlateness = \"250ms\"\n"),
    setting(
        "log-20",
        "`sliding_log`, `lateness` 20 ms",
        "algorithm = \"sliding_log\"\nlateness = \"20ms\"\n",
    ),
    setting(
        "log-100",
        "`sliding_log`, `lateness` 100 ms",
        "algorithm = \"sliding_log\"\nlateness = \"100ms\"\n",
    ),
    setting(
        "window-20",
        "`sliding_window`, `lateness` 20 ms",
        "algorithm = \"sliding_window\"\nlateness = \"20ms\"\n",
    ),
    setting(
        "bucket-20",
        "`token_bucket`, `burst` 1, `lateness` 20 ms",
        "algorithm = \"token_bucket\"\nburst = 1\nlateness = \"20ms\"\n",
    ),
];

const fn setting(name: &'static str, shown: &'static str, limit: &'static str) -> Setting {
    Setting { name, shown, limit }
}

impl Setting {
    /// The channel at one judge, and its limit.
    pub fn section(&self, channel: &str, endpoint: &str) -> String {
        format!(
            "[limit.{channel}]\npermits = {RATE}\nper = \"1s\"\n{}[channel.{channel}]\nendpoint = \"{endpoint}\"\n\
             limits = [\"{channel}\"]\nmax_in_flight = {RATE}\n",
            self.limit
        )
    }
}
