//! How long a statement may take, and how Postgres plans it.

use std::time::Duration;

/// How long a statement may take, and how it is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// For a statement over a few rows, for which a caller waits. Postgres plans it once for all values, and by an
    /// index even if the table has ten rows: the plan stays when the table has millions. A plan for the actual values
    /// may read the whole table, too, when autovacuum has not updated the statistics.
    Short,
    /// For a statement over thousands of rows, or with optional conditions. Postgres plans it for its actual values.
    Long,
}

impl Patience {
    /// How long the server works on a statement, in ms.
    const fn server_ms(self) -> u64 {
        match self {
            // A statement that waits on a lost connection is the longest part of the way back after an outage.
            Patience::Short => 3_500,
            Patience::Long => 30_000,
        }
    }

    /// How long the client waits for the answer.
    pub(super) const fn limit(self) -> Duration {
        Duration::from_millis(self.server_ms() + 500)
    }

    /// The settings of a session with this patience.
    pub(super) const fn profile(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Patience::Short => &[
                ("statement_timeout", "3500ms"),
                ("plan_cache_mode", "force_generic_plan"),
                ("enable_seqscan", "off"),
            ],
            Patience::Long => {
                &[("statement_timeout", "30s"), ("plan_cache_mode", "auto"), ("enable_seqscan", "on")]
            }
        }
    }

    /// The statement that gives a session these settings.
    pub(super) const fn command(self) -> &'static str {
        match self {
            Patience::Short => {
                "select set_config('statement_timeout', '3500', false), set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false)"
            }
            Patience::Long => {
                "select set_config('statement_timeout', '30000', false), set_config('plan_cache_mode', 'auto', false), set_config('enable_seqscan', 'on', false)"
            }
        }
    }
}
