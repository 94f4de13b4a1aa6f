//! `refundd doctor`: checks what this machine, Postgres, Redis and the banks must be for the promises to hold.
//!
//! It sends no request, takes no permit and shows no secret. All checks run at once, each within a bounded time, so a
//! server that does not answer hides no other finding.

mod banks;
mod callers;
mod certificates;
mod clocks;
mod copies;
mod finding;
mod host;
mod notify;
mod postgres;
mod redis;
mod roles;
mod upkeep;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::time::timeout;

use self::clocks::ClockSample;
use self::finding::{Diagnosis, Finding};
use super::check;
use super::open::path;
use crate::config::{Config, ConfigError, duration};
use crate::refund::text::shown_json;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// Warn of certificates and of callers' tokens that end within this time
    #[arg(long, value_name = "TIME", default_value = "21d", value_parser = duration::read)]
    ends_within: Duration,
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
}

const EXIT_CODES: &str = "Sends no refund and no inquiry, takes no permit, and shows no secret. Exit codes: 0 nothing is broken, although there may be \
warnings; 1 something is broken, or the configuration cannot be used.";

/// The longest time for all that one server is asked.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) async fn doctor(args: &Args, file: Option<&PathBuf>) -> anyhow::Result<ExitCode> {
    let path = path(file)?;
    let findings = match Config::load(Some(&path)) {
        Ok(config) => findings(args, &config, &path).await,
        Err(refused @ ConfigError::Refused { .. }) => refusals(&refused),
        Err(unread @ (ConfigError::Read { .. } | ConfigError::Changing { .. })) => return Err(unread.into()),
    };
    let report = Diagnosis::of(findings);
    if args.json {
        println!("{}", shown_json(serde_json::to_string_pretty(&report)?));
    } else {
        print!("{}", report.page());
    }
    Ok(if report.is_broken() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Each fault of a file that cannot be used. Nothing else can be checked then.
fn refusals(refused: &ConfigError) -> Vec<Finding> {
    let ConfigError::Refused { complaints, .. } = refused else { return Vec::new() };
    let finding = |complaint: &crate::config::Complaint| {
        Finding::broken(
            "configuration",
            complaint.to_string(),
            "no node starts or reloads with this file, and nothing else can be checked",
            "correct the file, and run `refundd check`",
        )
    };
    complaints.iter().map(finding).collect()
}

async fn findings(args: &Args, config: &Config, path: &std::path::Path) -> Vec<Finding> {
    let (soon, now) = (args.ends_within, Timestamp::now());
    let (postgres, redis, banks, notify) = tokio::join!(
        timeout(PATIENCE, postgres::findings(config, soon, now)),
        timeout(PATIENCE, redis::findings(config, soon, now)),
        banks::findings(config, soon, now),
        notify::findings(config, soon, now),
    );
    let here = ClockSample {
        name: "this machine".to_owned(),
        us: Timestamp::now().as_microsecond(),
        at: Instant::now(),
    };
    let silent = |check, server: &str| {
        let found = format!("{server} did not answer all questions within {} s", PATIENCE.as_secs());
        let why = "nodes wait at most 3 s for a connection and 4 s for a statement, and do nothing meanwhile";
        (
            vec![Finding::broken(
                check,
                found,
                why,
                "see whether the server is overloaded, and whether the way to it is open",
            )],
            Vec::new(),
        )
    };
    let (mut findings, postgres_clock) = postgres.unwrap_or_else(|_| silent("postgres.reach", "Postgres"));
    let (of_redis, redis_clocks) = redis.unwrap_or_else(|_| silent("redis.reach", "Redis"));
    findings.extend(of_redis);
    findings.extend(clocks::findings(config, postgres_clock.first(), &redis_clocks, &here));
    findings.extend(banks);
    findings.extend(notify);
    findings.extend(callers::findings(&config.callers, soon, now));
    findings.extend(host::findings(config, path, soon, now));
    let warnings = check::warnings(config);
    if warnings.is_empty() {
        findings.push(Finding::ok("configuration", format!("{} is valid", path.display())));
    }
    findings.extend(warnings.into_iter().map(|warning| {
        Finding::warning(
            "configuration",
            warning,
            "the file is valid, but this setting is seldom intended",
            "change the file, or leave it if it is meant",
        )
    }));
    findings
}
