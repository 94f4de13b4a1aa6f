//! Logs: their destination, their format and their level. Hidden characters, such as those in a bank's reference, are written out
//! in a whole line at once, so no field can forget it.
//!
//! This file does not write log lines: each room writes its own. docs/logging.md lists the fields.

mod priority;
mod queue;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::LazyLock;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use queue::LineQueue;

use crate::refund::text;

/// The lines for standard output. They belong to the process, as standard output does.
static LINES: LazyLock<LineQueue> = LazyLock::new(LineQueue::default);

/// An error and all its causes, on one line, for a log field.
#[derive(Debug)]
pub struct Chain<'a>(&'a dyn std::error::Error);

/// Shows an error with all its causes. Without this, JSON log lines would drop the causes.
pub fn chain(error: &dyn std::error::Error) -> Chain<'_> {
    Chain(error)
}

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some libraries repeat the cause in the error's own text.
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            last = text;
            cause = error.source();
        }
        Ok(())
    }
}

/// A duration as log fields have it, whose names end in `_ms`: a number with one digit behind the point. `Duration::as_millis`
/// would not do, because JSON lines write its `u128` as a text.
#[must_use]
pub fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 10_000.0).round() / 10.0
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Human,
    Json,
}

/// The logs of the running process. When this value is dropped, it waits until all lines are written, for two seconds at most.
#[derive(Debug)]
pub struct Logs(Handle<EnvFilter, Registry>);

/// The error for a log level that is no valid filter.
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

/// Sends logs to standard output from now on. A thread of its own writes them, and nobody else waits for standard output.
///
/// # Errors
/// When `level` is no valid filter.
pub fn init(format: Format, level: &str) -> Result<Logs, BadLevel> {
    let (filter, handle) = tracing_subscriber::reload::Layer::new(filter(level)?);
    let outputs = |shown: Shown| Outputs { is_journal: priority::stdout_is_journal(), shown };
    let layer: Box<dyn Layer<_> + Send + Sync> = match format {
        Format::Json => {
            let lines = tracing_subscriber::fmt::layer().json().flatten_event(true);
            Box::new(lines.with_target(false).with_writer(outputs(shown_json)))
        }
        Format::Human => {
            // https://no-color.org: any value but an empty one.
            let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let ansi = !is_plain && io::IsTerminal::is_terminal(&io::stdout());
            let outputs = outputs(if ansi { shown_coloured } else { shown_plain });
            Box::new(tracing_subscriber::fmt::layer().with_target(false).with_ansi(ansi).with_writer(outputs))
        }
    };
    // In tests a process may call this twice; the first call wins.
    if tracing_subscriber::registry().with(filter).with(layer).try_init().is_ok() {
        std::thread::spawn(|| LINES.write_to(StandardOutput));
    }
    Ok(Logs(handle))
}

/// Counts the lines that standard output did not take in time, since the process began.
#[must_use]
pub fn lost_lines() -> Counter {
    LINES.lost()
}

/// Standard output without the lock of [`io::stdout`]. A write that hangs would keep the lock, and the process could not end.
struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stdout(), text)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the hidden characters of a line out.
type Shown = fn(&str) -> Cow<'_, str>;

fn shown_json(line: &str) -> Cow<'_, str> {
    // JSON escapes what stands before U+0020, and nearly every line is ASCII.
    if line.is_ascii() && !line.contains('\u{7f}') {
        return Cow::Borrowed(line);
    }
    Cow::Owned(text::shown_json(line.to_owned()))
}

fn shown_plain(event: &str) -> Cow<'_, str> {
    indented(text::shown_lines(event))
}

/// Colours are hidden characters, too: those that tracing-subscriber writes stay.
fn shown_coloured(event: &str) -> Cow<'_, str> {
    const BEGIN: &str = "\u{1b}[";
    let mut parts = event.split(BEGIN);
    let mut shown = text::shown_lines(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let code = part.split_once('m').map_or("", |(code, _)| code);
        let is_colour = matches!(code, "0" | "1" | "2" | "3" | "31" | "32" | "33" | "34" | "35" | "36");
        shown.push_str(if is_colour { BEGIN } else { "\\u{1b}[" });
        shown.push_str(&text::shown_lines(part));
    }
    indented(Cow::Owned(shown))
}

/// The lines of one event: no text in it looks like an event of its own.
fn indented(event: Cow<'_, str>) -> Cow<'_, str> {
    match event.strip_suffix('\n') {
        Some(lines) if lines.contains('\n') => Cow::Owned(lines.replace('\n', "\n    ") + "\n"),
        _ => event,
    }
}

/// Makes the output of each line.
struct Outputs {
    is_journal: bool,
    shown: Shown,
}

impl MakeWriter<'_> for Outputs {
    type Writer = Output;

    fn make_writer(&self) -> Output {
        Output { prefix: None, shown: self.shown }
    }

    fn make_writer_for(&self, line: &Metadata<'_>) -> Output {
        let prefix = self.is_journal.then(|| priority::prefix(*line.level()));
        Output { prefix, shown: self.shown }
    }
}

/// Puts a log line into the queue, as a whole.
struct Output {
    /// What journald wants to see before the line.
    prefix: Option<&'static str>,
    shown: Shown,
}

impl Write for Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let shown = std::str::from_utf8(line).ok().map(self.shown);
        let text = shown.as_deref().map_or(line, str::as_bytes);
        match self.prefix {
            Some(prefix) => LINES.put(&priority::with_prefix(prefix, text)),
            None => LINES.put(text),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Logs {
    /// The longest wait for the last lines.
    const LAST: Duration = Duration::from_secs(2);

    /// Changes the log level.
    ///
    /// # Errors
    /// When `level` is no valid filter.
    pub fn set_level(&self, level: &str) -> Result<(), BadLevel> {
        let _ = self.0.reload(filter(level)?);
        Ok(())
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        LINES.drain(Self::LAST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_an_event_commands_a_terminal_or_looks_like_an_event_of_its_own() {
        let event =
            "\u{1b}[2mtime\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m a\u{1b}[2J\u{1b}[8m\u{9b}1m\u{202e}é\nb\n";
        let said = "a\\u{1b}[2J\\u{1b}[8m\\u{9b}1m\\u{202e}é\n    b\n";
        assert_eq!(shown_coloured(event), format!("\u{1b}[2mtime\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m {said}"));
        assert_eq!(shown_plain("a\u{1b}[2J\u{1b}[8m\u{9b}1m\u{202e}é\nb\n"), said);
        assert_eq!(shown_plain("one line\n"), "one line\n");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Says(&'static str, #[source] Option<Box<Says>>);

    #[test]
    fn a_cause_that_its_error_repeats_is_shown_once() {
        let error = |causes: &[&'static str]| {
            causes.iter().rev().fold(None, |source, text| Some(Box::new(Says(text, source)))).unwrap()
        };
        let repeated = error(&["claim refunds", "database: lock timeout", "lock timeout", "lock timeout"]);
        assert_eq!(chain(&repeated).to_string(), "claim refunds: database: lock timeout");
        assert_eq!(chain(&error(&["a", "b", "c"])).to_string(), "a: b: c");
    }
}
