//! Compares the clocks of Postgres, of Redis and of this machine.

use std::time::{Duration, Instant};

use super::finding::Finding;
use crate::config::Config;

const CHECK: &str = "clocks";

/// One reading of a clock.
#[derive(Debug, Clone)]
pub(super) struct ClockSample {
    /// Whose clock it is.
    pub name: String,
    /// In us since 1970.
    pub us: i64,
    /// When it was read, on this machine's monotonic clock.
    pub at: Instant,
}

impl ClockSample {
    /// How far this clock is ahead of another one, in seconds.
    fn ahead_of(&self, other: &ClockSample) -> f64 {
        let passed = if self.at >= other.at {
            (self.at - other.at).as_secs_f64()
        } else {
            -(other.at - self.at).as_secs_f64()
        };
        (self.us - other.us) as f64 / 1e6 - passed
    }
}

pub(super) fn findings(
    config: &Config,
    postgres: Option<&ClockSample>,
    redis: &[ClockSample],
    here: &ClockSample,
) -> Vec<Finding> {
    let Some(postgres) = postgres else { return Vec::new() };
    let tolerance = config.redis.clock_tolerance;
    let mut findings: Vec<Finding> =
        redis.iter().map(|redis| redis_and_postgres(redis, postgres, tolerance)).collect();
    let ahead = here.ahead_of(postgres);
    findings.push(if ahead.abs() > tolerance.as_secs_f64() {
        Finding::warning(
            CHECK,
            apart(here, postgres, ahead),
            "tokens of callers, access tokens, signatures and certificates are judged by this machine's clock, and logs have its times",
            "let all machines use one time service; `chronyc tracking` or `timedatectl` shows whether this one does",
        )
    } else {
        Finding::ok(CHECK, apart(here, postgres, ahead))
    });
    findings
}

fn redis_and_postgres(redis: &ClockSample, postgres: &ClockSample, tolerance: Duration) -> Finding {
    let (ahead, most) = (redis.ahead_of(postgres), tolerance.as_secs_f64());
    let found = format!("{}; `[redis] clock_tolerance` is {tolerance:?}", apart(redis, postgres, ahead));
    let way_out = "let both machines use one time service; `chronyc tracking` on each shows its offset";
    if ahead.abs() > most {
        let why = "no channel with a limit sends anything: a claim is refused while the two clocks differ by more than the tolerance";
        Finding::broken(CHECK, found, why, way_out)
    } else if ahead.abs() > most / 2.0 {
        let why = "if the clocks drift further apart, claims are refused, and no channel with a limit sends anything";
        Finding::warning(CHECK, found, why, way_out)
    } else {
        Finding::ok(CHECK, found)
    }
}

fn apart(one: &ClockSample, other: &ClockSample, ahead: f64) -> String {
    // A reading is good to about a millisecond.
    if ahead.abs() < 0.0005 {
        return format!("the clocks of {} and {} agree", one.name, other.name);
    }
    let way = if ahead > 0.0 { "ahead of" } else { "behind" };
    format!("the clock of {} is {:.3} s {way} the clock of {}", one.name, ahead.abs(), other.name)
}
