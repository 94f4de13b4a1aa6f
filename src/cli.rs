//! The command tree. Each command has its own file.
//!
//! Output and exit codes are an interface: scripts rely on them.

mod enqueue;
mod import;
mod pause;
#[cfg(feature = "playground")]
mod playground;
mod prove;
mod review;
mod run;
mod status;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};

use crate::config::{Config, ConfigError};
use crate::refund::{card, text};
use crate::store::{Store, StoreError};
use crate::telemetry::chain;
#[cfg(any(test, feature = "fuzzing"))]
pub use import::rows_of_csv;

/// A leaky bucket for refunds across machines: saved in Postgres, lined up in Redis, sent to each bank no
/// faster than it allows.
#[derive(Debug, Parser)]
#[command(name = "refundd", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    config: ConfigArg,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 done; 1 it failed, was refused, or a promise broke; 2 the command line is wrong.";

#[derive(Debug, clap::Args)]
struct ConfigArg {
    /// Configuration file [default: /etc/refundd/refundd.toml, where there is one]
    #[arg(long, value_name = "FILE", global = true, env = "REFUNDD_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node until SIGTERM or SIGINT; SIGHUP reads the file again
    Run(run::Args),
    /// Bring the database's schema up to date
    Migrate,
    /// Check the configuration file and nothing else
    Check {
        /// Print the reference configuration with every key and its default, and exit
        #[arg(long)]
        reference: bool,
        /// Also count the refunds that may have been sent to other addresses than this file names
        #[arg(long)]
        against_database: bool,
    },
    #[cfg(feature = "playground")]
    #[command(flatten)]
    Playground(playground::Command),
    /// Save one refund
    Enqueue(enqueue::Args),
    /// Save a file of refunds, CSV or NDJSON
    Import(import::Args),
    /// Show how every channel stands
    Status(status::Args),
    /// Stop sending through a channel, on all nodes, within a second
    Pause(pause::PauseArgs),
    /// Let a paused channel send again
    Resume(pause::ResumeArgs),
    /// Show the refunds that wait for a person, or decide one
    Review(review::Args),
    /// Check again that a past period kept its limits, or that the journal is as it was written
    Prove(prove::Args),
    /// Make a token for a caller of the HTTP interface
    Token(token::Args),
}

/// Parses the command line, runs the command, and turns the result into an exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("refundd: failed to start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(dispatch(cli)) {
        Ok(code) => code,
        Err(error) => {
            // These errors name only the step that failed. The others are whole sentences, also around such an error.
            let is_outermost = |own: &dyn std::error::Error| own.to_string() == error.to_string();
            let is_step = error.downcast_ref::<StoreError>().is_some_and(|own| is_outermost(own))
                || matches!(error.downcast_ref(), Some(own @ ConfigError::Read { .. }) if is_outermost(own));
            let step = if is_step { "failed to " } else { "" };
            eprintln!("refundd: {step}{}", text::shown_lines(&chain(error.as_ref()).to_string()));
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let file = cli.config.config;
    let load = || load(file.as_ref());
    match cli.command {
        Command::Run(args) => run::run(args, file).await,
        Command::Migrate => {
            let schema = store(&load()?).await?.migrate().await?;
            println!("The schema is at version {}.", schema.applied);
            Ok(ExitCode::SUCCESS)
        }
        Command::Check { reference: true, .. } => {
            print!("{}", Config::REFERENCE);
            Ok(ExitCode::SUCCESS)
        }
        Command::Check { reference: false, against_database } => {
            let config = load()?;
            for channel in config.channels.values() {
                crate::bank::Bank::new(channel)
                    .with_context(|| format!("channel `{}`: failed to prepare it", channel.name))?;
            }
            println!(
                "The configuration is good: {} channels, {} limits.",
                config.channels.len(),
                config.limits.len()
            );
            for warning in config.warnings() {
                println!("Warning: {warning}.");
            }
            for channel in config.channels.values() {
                if channel.inquiry.as_ref().is_some_and(|inquiry| inquiry.believes_any_json_404()) {
                    println!(
                        "Warning: channel `{}` sends a refund again after any 404 with a JSON object. A gateway before the bank may answer so, too: set `inquiry.not_found` to the bank's own text.",
                        channel.name
                    );
                }
            }
            if against_database {
                let places = config.channels.values().map(|channel| (&channel.name, channel.bank_address()));
                let left_behind = store(&config).await?.left_behind(places).await?;
                if left_behind.is_empty() {
                    println!("No refund may have been sent to another address than this file names.");
                }
                for left in left_behind {
                    println!("{left}.");
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        #[cfg(feature = "playground")]
        Command::Playground(command) => playground::run(command).await,
        Command::Enqueue(args) => enqueue::enqueue(args, &load()?).await,
        Command::Import(args) => import::import(args, &load()?).await,
        Command::Status(args) => status::status(args, &load()?).await,
        Command::Pause(args) => pause::pause(args, &store(&load()?).await?).await,
        Command::Resume(args) => pause::resume(args, &store(&load()?).await?).await,
        Command::Review(args) => review::review(args, &store(&load()?).await?).await,
        Command::Prove(args) => prove::prove(args, &load()?).await,
        Command::Token(args) => token::token(&args),
    }
}

/// Reads the named configuration file, or the one in the usual place.
fn load(file: Option<&PathBuf>) -> anyhow::Result<Config> {
    let usual = PathBuf::from(Config::DEFAULT_PATH);
    let path = match file {
        Some(path) => Some(path.as_path()),
        None if usual.exists() => Some(usual.as_path()),
        None => bail!(
            "no configuration: give --config FILE, set REFUNDD_CONFIG, or write {}; `refundd check --reference` prints one to start from",
            Config::DEFAULT_PATH
        ),
    };
    Ok(Config::load(path)?)
}

async fn store(config: &Config) -> anyhow::Result<Store> {
    let store = crate::daemon::open_store(config, 2)?;
    store.reach().await?;
    Ok(store)
}

/// The name of the person who gives a command, for the journal.
#[derive(Debug, clap::Args)]
struct By {
    /// Who decides, for the journal [default: the user who runs this]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl By {
    fn name(&self) -> anyhow::Result<String> {
        let name = self.by.as_deref().map(str::trim).filter(|name| !name.is_empty());
        let name = name.map_or_else(user, str::to_owned);
        keeps_the_laws("--by", &name)?;
        Ok(name)
    }
}

/// Refuses a person's text that no door takes.
fn keeps_the_laws(flag: &str, text: &str) -> anyhow::Result<()> {
    let problem = text::problem(text).or_else(|| card::is_in(text).then(|| card::PROBLEM.to_owned()));
    match problem {
        Some(problem) => bail!("{flag} {problem}; nothing was changed"),
        None => Ok(()),
    }
}

fn user() -> String {
    ["SUDO_USER", "USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_else(|| "unknown user".to_owned())
}
