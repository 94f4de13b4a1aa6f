//! The commands that try refundd out, on private servers and with a pretend bank.
//!
//! The commands need the feature `playground`. The shipped program is built without this feature.

mod demo;
mod dev;
mod pretend_bank;

use std::net::{AddrParseError, SocketAddr};
use std::process::ExitCode;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Run a node with its own throw-away Postgres and Redis and a pretend bank, until Ctrl-C
    Dev(dev::Args),
    /// Show in about a minute what refundd promises, by the pretend bank's own ledger
    Demo(demo::Args),
    /// Run only the pretend bank
    PretendBank(pretend_bank::Args),
}

pub(super) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Dev(args) => dev::dev(args).await,
        Command::Demo(args) => demo::demo(args).await,
        Command::PretendBank(args) => pretend_bank::run(args).await,
    }
}

/// Reads an address from the command line.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|error: AddrParseError| format!("{error}; write one such as 127.0.0.1:8080"))
}
