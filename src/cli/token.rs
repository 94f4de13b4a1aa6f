//! `refundd token`: makes a token for a caller, and the line by which nodes recognise it.
//!
//! The command reads no configuration and changes no file.

use std::process::ExitCode;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::caller::token::Token;
use crate::config::duration;

const AFTER_HELP: &str = "\
Nobody can show the token again: refundd keeps its SHA-256 only. Give the token to the caller through a safe channel. Add the line \
to the file that `tokens_file` of [caller.NAME] names, on every node (chmod 600), and send the nodes SIGHUP. The file may \
have two lines, so that the caller can change to the new token before you remove the old line.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// How long the token is valid from now
    #[arg(long, value_name = "SPAN", default_value = "365d", value_parser = span)]
    valid_for: SignedDuration,
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
}

fn span(text: &str) -> Result<SignedDuration, String> {
    let span = duration::read(text)?;
    let span = SignedDuration::try_from(span).map_err(|_| "is too long to count".to_owned())?;
    if span.is_positive() { Ok(span) } else { Err("must be longer than nothing".to_owned()) }
}

pub(super) fn token(args: &Args) -> anyhow::Result<ExitCode> {
    let token = Token::mint().context("the system gave no random numbers")?;
    let now = Timestamp::from_second(Timestamp::now().as_second())?;
    let expires = now.checked_add(args.valid_for).context("--valid-for ends after the year 9999")?;
    let line = token.stored(expires);
    if args.json {
        println!("{}", json!({ "token": token.expose(), "line": line.to_string(), "expires_at": expires }));
    } else {
        println!("The token, for the caller alone. It is shown this once:\n  {}", token.expose());
        println!("The line for the caller's tokens_file:\n  {line}");
    }
    Ok(ExitCode::SUCCESS)
}
