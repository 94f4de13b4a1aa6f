//! Logs: where they go, how they look, how much of them.
//!
//! What a line says is each room's business; docs/logging.md lists the fields.

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// An error and everything that caused it, on one line, for a log field.
#[derive(Debug)]
pub struct Chain<'a>(&'a dyn std::error::Error);

/// Shows an error with all its causes; JSON lines would drop them otherwise.
pub fn chain(error: &dyn std::error::Error) -> Chain<'_> {
    Chain(error)
}

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Human,
    Json,
}

/// Changes the level while running.
#[derive(Debug, Clone)]
pub struct Level(Handle<EnvFilter, Registry>);

/// A filter that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error(
    "read the log level `{given}`: use error, warn, info, debug or trace, or directives such as refundd=debug"
)]
pub struct BadLevel {
    given: String,
    source: tracing_subscriber::filter::ParseError,
}

fn filter(level: &str) -> Result<EnvFilter, BadLevel> {
    EnvFilter::try_new(level).map_err(|source| BadLevel { given: level.to_owned(), source })
}

/// Sends logs to standard output from now on.
pub fn init(format: Format, level: &str) -> Result<Level, BadLevel> {
    let (filter, handle) = tracing_subscriber::reload::Layer::new(filter(level)?);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        Format::Json => {
            Box::new(tracing_subscriber::fmt::layer().json().flatten_event(true).with_target(false))
        }
        Format::Human => {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stdout());
            Box::new(tracing_subscriber::fmt::layer().with_target(false).with_ansi(ansi))
        }
    };
    // A second init in one process (tests) keeps the first.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Ok(Level(handle))
}

impl Level {
    /// Takes over another level.
    pub fn set(&self, level: &str) -> Result<(), BadLevel> {
        let _ = self.0.reload(filter(level)?);
        Ok(())
    }
}
