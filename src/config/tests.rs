//! Tests the configuration as a whole.

mod callers;
mod closed;
mod credentials;
mod exchange;
mod http;
mod notify;
mod precedence;
mod reference;
mod reload;
mod requirements;
mod review;
mod settled;
mod shape;

use std::time::Duration;

use super::{Config, ConfigError};

const SERVERS: &str =
    "[postgres]\nurl = \"postgres://refundd@localhost/p\"\n[redis]\nurl = \"redis://localhost\"\n";

fn no_env(_: &str) -> Option<String> {
    None
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, "r.toml", &no_env)
}

/// A configuration of the two servers and of `text`, which starts at line 5.
fn with(text: &str) -> Config {
    parse(&format!("{SERVERS}{text}")).unwrap_or_else(|error| panic!("{error}"))
}

impl Config {
    /// The same, for tests of other rooms.
    pub(crate) fn of_tables(tables: &str) -> Config {
        with(tables)
    }
}

/// The complaints about such a configuration, without the headline.
fn complaints(text: &str) -> String {
    only_complaints(parse(&format!("{SERVERS}{text}")))
}

fn only_complaints(parsed: Result<Config, ConfigError>) -> String {
    let shown = parsed.expect_err("it should have been refused").to_string();
    shown.split_once('\n').expect("a headline").1.to_owned()
}

const SECOND: Duration = Duration::from_secs(1);
