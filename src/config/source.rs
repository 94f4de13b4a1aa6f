//! The text being read, the environment around it, and the complaints collected on the way.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, Error};

use super::complaint::{Complaint, ConfigError};
use super::mask;

/// One configuration being read.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    env: &'a dyn Fn(&str) -> Option<String>,
    complaints: RefCell<Vec<Complaint>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Source { file, text, env, complaints: RefCell::default() }
    }

    /// Parses the text as TOML. Nothing else is looked at until that succeeds: laws checked on half
    /// a file would only add noise.
    pub(super) fn table(&self) -> Result<DeTable<'a>, ConfigError> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            self.not_toml(error);
        }
        if errors.is_empty() { Ok(table.into_inner()) } else { Err(self.refusal()) }
    }

    /// A variable of the environment; a blank one counts as not set.
    pub(super) fn env(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.trim().is_empty())
    }

    /// A path as the file means it: relative to the file's own folder.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        Path::new(self.file).parent().unwrap_or(Path::new("")).join(path)
    }

    /// Complains about a place in the file, or about what the file leaves out altogether.
    pub(super) fn complain(&self, at: Option<usize>, subject: String, law: impl Into<String>) {
        self.push(at.map(|at| self.place(at)), subject, law.into(), None);
    }

    /// Complains about something that stands nowhere in the file.
    pub(super) fn complain_outside(&self, subject: String, law: impl Into<String>) {
        let complaint = Complaint { file: None, place: None, subject, law: law.into(), quote: None };
        self.complaints.borrow_mut().push(complaint);
    }

    /// The file's own words at a place, fit to be shown on one line.
    pub(super) fn words(&self, span: &Range<usize>) -> String {
        let words = self.text.get(span.clone()).unwrap_or_default();
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = mask::address(&words);
        match words.char_indices().nth(80) {
            Some((end, _)) => format!("{}…", &words[..end]),
            None => words,
        }
    }

    pub(super) fn has_complaints(&self) -> bool {
        !self.complaints.borrow().is_empty()
    }

    /// Everything that was found, in the order of the file.
    pub(super) fn refusal(&self) -> ConfigError {
        let mut complaints = self.complaints.take();
        complaints.sort_by_key(|complaint| complaint.place.unwrap_or((usize::MAX, usize::MAX)));
        ConfigError::Refused { file: self.file.to_owned(), complaints }
    }

    fn not_toml(&self, error: &Error) {
        let at = error.span().map_or(self.text.len(), |span| span.start);
        let (line, column) = self.place(at);
        let seen = self.complaints.borrow().iter().any(|other| other.place.is_some_and(|p| p.0 == line));
        if seen {
            return; // what follows from the first fault of a line helps nobody
        }
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        let shown = mask::line(text);
        let quote = if shown == text {
            let margin: String =
                text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            format!("{text}\n{margin}^")
        } else {
            shown // the column would point beside the fault
        };
        self.push(Some((line, column)), "not TOML".to_owned(), error.message().to_owned(), Some(quote));
    }

    fn push(&self, place: Option<(usize, usize)>, subject: String, law: String, quote: Option<String>) {
        let complaint = Complaint { file: Some(self.file.to_owned()), place, subject, law, quote };
        self.complaints.borrow_mut().push(complaint);
    }

    fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}
