//! The command tree. Each command has its own file.
//!
//! Output and exit codes are an interface: scripts rely on them.

#[macro_use]
mod output;

mod bulk;
mod cancel;
mod check;
mod completions;
mod doctor;
mod enqueue;
mod export;
mod guesses;
mod import;
mod log;
mod moving;
mod namesakes;
mod open;
mod pause;
mod person;
#[cfg(feature = "playground")]
mod playground;
mod progress;
mod prove;
mod review;
mod run;
mod show;
mod status;
mod token;
mod totals;
mod wrap;

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::open::{channel_exists, load, load_postgres, load_postgres_and_rest, reached, store, without_mark};
use self::person::{By, check_text};
use crate::config::{Config, ConfigError};
use crate::logs::chain;
use crate::refund::text;
use crate::store::{MigrationProgress, Store, StoreError};
#[cfg(any(test, feature = "fuzzing"))]
pub use import::rows_of_csv;

/// Sends refunds to slow banks and keeps every limit: refunds are saved in Postgres, their ids wait in Redis,
/// and all nodes together send no faster than each bank allows.
#[derive(Debug, Parser)]
#[command(name = "refundd", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    config: ConfigArg,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 it failed, was refused, or a promise broke; 2 the command line is wrong; 3 `resume` found nothing to resume, or `pause` another person's pause; 4 `check --against-running` found refunds that would be late or left behind.";

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
    /// Check the configuration file; with an option, also against the database or against running nodes
    Check(check::Args),
    /// Check what this machine, Postgres, Redis and the banks must be for the promises to hold
    Doctor(doctor::Args),
    #[cfg(feature = "playground")]
    #[command(flatten)]
    Playground(playground::Command),
    /// Save one refund
    Enqueue(enqueue::Args),
    /// Save a file of refunds, CSV or NDJSON
    Import(import::Args),
    /// Write what was sent as CSV, and count it by currency
    Export(export::Args),
    /// Show how every channel stands, or one in detail
    Status(status::Args),
    /// Show one refund: what happened to it, what it waits for, and when it will probably be sent
    Show(show::Args),
    /// Stop sending through a channel, or stop everything, on all nodes, within a second
    Pause(pause::PauseArgs),
    /// Let a paused channel send again
    Resume(pause::ResumeArgs),
    /// Show who changed what: pauses, decisions, cancellations, configurations, breakers
    Log(log::Args),
    /// Withdraw refunds that were never sent
    Cancel(cancel::Args),
    /// Move refunds that were never sent to another channel
    Move(moving::Args),
    /// Show the refunds that wait for a person, or decide one
    Review(review::Args),
    /// Check again that a past period kept its limits, or that the journal is as it was written
    Prove(prove::Args),
    /// Make a token for a caller of the HTTP interface
    Token(token::Args),
    /// Print the completions of a shell
    Completions(completions::Args),
    /// Print the manual page, or write the pages of all commands
    Man(completions::ManArgs),
}

impl Command {
    /// Why the command reads no configuration file; `None` if it reads one.
    fn reads_no_file(&self) -> Option<&'static str> {
        match self {
            Command::Run(_)
            | Command::Migrate
            | Command::Check(check::Args { reference: false, .. })
            | Command::Doctor(_)
            | Command::Enqueue(_)
            | Command::Import(_)
            | Command::Export(_)
            | Command::Status(_)
            | Command::Show(_)
            | Command::Pause(_)
            | Command::Resume(_)
            | Command::Log(_)
            | Command::Cancel(_)
            | Command::Move(_)
            | Command::Review(_)
            | Command::Prove(_) => None,
            #[cfg(feature = "playground")]
            Command::Playground(_) => Some("this command makes its own servers and its own configuration"),
            Command::Check(check::Args { reference: true, .. })
            | Command::Token(_)
            | Command::Completions(_)
            | Command::Man(_) => Some("this command reads no configuration"),
        }
    }
}

/// The longest wait for the runtime's threads, once all is done. Nobody can stop a thread that waits for DNS.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// The commands that refuse `--config`, so their help does not offer it.
const WITHOUT_FILE: [&str; 6] = ["dev", "demo", "pretend-bank", "token", "completions", "man"];

/// The command line as clap knows it.
fn tree() -> clap::Command {
    let mut tree = Cli::command();
    for name in WITHOUT_FILE {
        if tree.find_subcommand(name).is_some() {
            // Stands for the option that all commands have.
            let hidden = ConfigArg::augment_args(clap::Command::new(name));
            let hidden = hidden.get_arguments().next().cloned().map(|config| config.hide(true));
            tree = tree.mut_subcommand(name, |command| command.args(hidden));
        }
    }
    tree
}

/// Reads the command line. A file that the command would not read is an error: its writer expects it to count.
fn parse() -> Result<Cli, clap::Error> {
    let mut tree = tree();
    let matches = tree.try_get_matches_from_mut(std::env::args_os()).map_err(guesses::without_opposites)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut tree))?;
    if matches.value_source("config") == Some(ValueSource::CommandLine)
        && let Some(why) = cli.command.reads_no_file()
    {
        return Err(tree.error(ErrorKind::ArgumentConflict, format!("--config has no use here: {why}")));
    }
    Ok(cli)
}

/// Parses the command line, runs the command, and turns the result into an exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => {
            // The help, or what is wrong with the command line.
            let printed = error.print();
            if !error.use_stderr() {
                output::note(printed);
            }
            return output::exit_code(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)));
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("refundd: failed to start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = match runtime.block_on(dispatch(cli)) {
        Ok(code) => output::exit_code(code),
        Err(error) => {
            // These errors name only the step that failed. The others are whole sentences, also around such an error.
            let is_outermost = |own: &dyn std::error::Error| own.to_string() == error.to_string();
            let is_step = error.downcast_ref::<StoreError>().is_some_and(|own| is_outermost(own))
                || matches!(error.downcast_ref(), Some(own @ ConfigError::Read { .. }) if is_outermost(own));
            let step = if is_step { "failed to " } else { "" };
            eprintln!("refundd: {step}{}", text::shown_lines(&chain(error.as_ref()).to_string()));
            ExitCode::FAILURE
        }
    };
    // What still runs in the background is dropped, such as a temporary folder. Only a lookup of a name that hangs may take longer.
    runtime.shutdown_timeout(LAST_WAIT);
    code
}

async fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    if cli.command.reads_no_file().is_none() {
        run::hide_memory()?;
    }
    let file = cli.config.config;
    let load = || load(file.as_ref());
    // What people need at night needs no more of the file than this.
    let postgres = || load_postgres(file.as_ref());
    let postgres_and_rest = || load_postgres_and_rest(file.as_ref());
    match cli.command {
        Command::Run(args) => run::run(args, file).await,
        Command::Migrate => {
            let store = reached(&postgres()?).await?;
            let schema = progress::beside(|line| {
                line.set("begins".to_owned());
                let mut is_logged = stderr().is_terminal();
                store.migrate_telling(Store::MIGRATION_PATIENCE, move |progress| {
                    // Elsewhere than on a terminal, the line comes after ten seconds. A job's log says at once for whom it waits.
                    if matches!(progress, MigrationProgress::WaitsFor(_)) && !is_logged {
                        eprintln!("{progress}");
                        is_logged = true;
                    }
                    line.set(progress.to_string());
                })
            });
            let schema = schema.await?;
            println!("The schema is at version {}.", schema.applied);
            Ok(ExitCode::SUCCESS)
        }
        Command::Check(check::Args { reference: true, .. }) => {
            print!("{}", Config::REFERENCE);
            Ok(ExitCode::SUCCESS)
        }
        Command::Check(args) => check::check(&args, &load()?).await,
        Command::Doctor(args) => doctor::doctor(&args, file.as_ref()).await,
        #[cfg(feature = "playground")]
        Command::Playground(command) => playground::run(command).await,
        Command::Enqueue(args) => enqueue::enqueue(args, &load()?).await,
        Command::Import(args) => import::import(args, &load()?).await,
        Command::Export(args) => export::export(args, &store(&postgres()?).await?).await,
        Command::Status(args) => {
            let (postgres, config) = postgres_and_rest()?;
            status::status(args, &postgres, config.as_ref()).await
        }
        Command::Show(args) => show::show(args, &store(&postgres()?).await?).await,
        Command::Pause(args) => pause::pause(args, &store(&postgres()?).await?).await,
        Command::Resume(args) => pause::resume(args, &store(&postgres()?).await?).await,
        Command::Log(args) => log::log(args, &store(&postgres()?).await?).await,
        Command::Cancel(args) => {
            let (postgres, config) = postgres_and_rest()?;
            cancel::cancel(args, &postgres, config.as_ref()).await
        }
        Command::Move(args) => {
            let (postgres, config) = postgres_and_rest()?;
            moving::moving(args, &postgres, config.as_ref()).await
        }
        Command::Review(args) => review::review(&args, &store(&postgres()?).await?).await,
        Command::Prove(args) => prove::prove(args, file.as_ref()).await,
        Command::Token(args) => token::token(&args),
        Command::Completions(args) => completions::completions(&args, tree()),
        Command::Man(args) => completions::man(&args, tree()),
    }
}
