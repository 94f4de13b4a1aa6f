//! `[log]`: the level and the format of the log lines on standard output.

use std::io::{IsTerminal, stdout};

use tracing_subscriber::EnvFilter;

use super::section::{Section, listed, nearest};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    pub format: LogFormat,
    /// A level, or directives such as `info,refundd::bank=debug`.
    pub level: String,
}

pub use crate::logs::Format as LogFormat;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl Log {
    pub(super) const KEYS: &'static [&'static str] = &["format", "level"];
    pub(super) const LEVEL: &'static str = "info";

    pub(super) fn read(section: &Section<'_>) -> Self {
        let source = section.source;
        section.keys(Self::KEYS, &[("filter", "unknown key; did you mean `level`? It takes directives too")]);
        let mut format = LogFormat::default();
        if let Some(mut field) = section.optional_text("format") {
            let named = LogFormat::named(&field.value);
            field.require(source, named.is_some(), || "must be \"human\" or \"json\"");
            format = named.unwrap_or_default();
        }
        let mut level = section.text("level", Self::LEVEL);
        let wrong = wrong_level(&level.value);
        level.require(source, wrong.is_none(), || wrong.unwrap_or_default());
        Log { format, level: level.value }
    }
}

impl Default for LogFormat {
    /// `Human` on a terminal, which a person reads, and `Json` elsewhere.
    fn default() -> Self {
        if stdout().is_terminal() { LogFormat::Human } else { LogFormat::Json }
    }
}

impl LogFormat {
    fn named(name: &str) -> Option<Self> {
        match name {
            "human" => Some(LogFormat::Human),
            "json" => Some(LogFormat::Json),
            _ => None,
        }
    }
}

/// The fault of a level, if it has one. `EnvFilter` would read an unknown name such as `inof` as the name of a
/// module, and silently turn off all other modules.
fn wrong_level(text: &str) -> Option<String> {
    for part in text.split(',').map(str::trim) {
        let lower = part.to_ascii_lowercase();
        if !part.contains(['=', '[']) && !LEVELS.contains(&lower.as_str()) {
            return Some(match nearest(part, &LEVELS) {
                Some(near) => format!("`{part}` is not a level; did you mean `{near}`?"),
                None => format!(
                    "`{part}` is not a level; use one of {}, and for one module \"info,refundd::bank=debug\"",
                    listed(&LEVELS)
                ),
            });
        }
    }
    EnvFilter::builder().parse(text).err().map(|_| {
        "is not a list of directives; write a level, or \"info,refundd::bank=debug\" for one module"
            .to_owned()
    })
}
