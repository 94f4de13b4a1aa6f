//! Holds the text of the file, gives access to the environment, and collects the complaints.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, Error};

use super::complaint::{Complaint, ConfigError};
use super::mask;

/// A configuration while it is read.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    /// The mode of the file, if it was read from a regular file.
    pub(super) mode: Option<u32>,
    env: &'a dyn Fn(&str) -> Option<String>,
    complaints: RefCell<Vec<Complaint>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Source { file, text, mode: None, env, complaints: RefCell::default() }
    }

    /// Parses the text as TOML. Requirements are checked only after that succeeds: on half a file they would
    /// only add noise.
    ///
    /// # Errors
    /// [`ConfigError::Refused`] with all syntax faults.
    pub(super) fn table(&self) -> Result<DeTable<'a>, ConfigError> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            self.not_toml(error);
        }
        if errors.is_empty() { Ok(table.into_inner()) } else { Err(self.refusal()) }
    }

    /// A variable of the environment; a blank variable counts as not set.
    pub(super) fn env(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.trim().is_empty())
    }

    /// Resolves a path of the file, which is relative to the file's own folder.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        Path::new(self.file).parent().unwrap_or(Path::new("")).join(path)
    }

    /// Whether a file is a systemd credential. systemd guards their folder by other means than the mode of a file.
    pub(super) fn is_credential(&self, path: &Path) -> bool {
        self.env("CREDENTIALS_DIRECTORY").is_some_and(|folder| path.starts_with(folder))
    }

    /// Complains about the place `at` in the file; `at` is `None` for a key or section that the file leaves out.
    pub(super) fn complain(&self, at: Option<usize>, subject: String, requirement: impl Into<String>) {
        self.push(at.map(|at| self.place(at)), subject, requirement.into(), None);
    }

    /// Complains about a value from outside the file, such as a variable of the environment.
    pub(super) fn complain_outside(&self, subject: String, requirement: impl Into<String>) {
        let complaint =
            Complaint { file: None, place: None, subject, requirement: requirement.into(), quote: None };
        self.complaints.borrow_mut().push(complaint);
    }

    /// The text of the file at a place, on one line, without passwords and cut to 80 characters.
    pub(super) fn excerpt(&self, span: &Range<usize>) -> String {
        let excerpt = self.text.get(span.clone()).unwrap_or_default();
        let excerpt = excerpt.split_whitespace().collect::<Vec<_>>().join(" ");
        let excerpt = mask::address(&excerpt);
        match excerpt.char_indices().nth(80) {
            Some((end, _)) => format!("{}…", &excerpt[..end]),
            None => excerpt,
        }
    }

    pub(super) fn complaint_count(&self) -> usize {
        self.complaints.borrow().len()
    }

    /// The error with all complaints, in the order of the file.
    pub(super) fn refusal(&self) -> ConfigError {
        let mut complaints = self.complaints.take();
        complaints.sort_by_key(|complaint| complaint.place.unwrap_or((usize::MAX, usize::MAX)));
        ConfigError::Refused { file: self.file.to_owned(), complaints }
    }

    fn not_toml(&self, error: &Error) {
        let at = error.span().map_or(self.text.len(), |span| span.start);
        let (line, column) = self.place(at);
        let table = self.headers().take_while(|(number, _)| *number <= line).last();
        let table = table.filter(|_| error.message() == "duplicate key");
        let is_seen = |number: usize| number == line || table.is_some_and(|(header, _)| number == header);
        if self.complaints.borrow().iter().any(|other| other.place.is_some_and(|place| is_seen(place.0))) {
            return; // later faults of a line, or keys of a table that stands twice, mostly follow from the first
        }
        let requirement = match table {
            Some((header, name)) if header == line && !name.starts_with("[[") => {
                self.stands_twice(line, name)
            }
            _ => error.message().to_owned(),
        };
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        let shown = mask::line(text);
        let quote = if shown == text {
            let margin: String =
                text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            format!("{text}\n{margin}^")
        } else {
            shown // masking moved the fault to another column
        };
        self.push(Some((line, column)), "not TOML".to_owned(), requirement, Some(quote));
    }

    /// What to do about a second header of a table in this line.
    fn stands_twice(&self, line: usize, name: &str) -> String {
        let first = self.headers().find(|(number, other)| *number < line && *other == name);
        let place = first.map_or_else(|| "elsewhere".to_owned(), |(number, _)| format!("in line {number}"));
        let other_name = if name.contains('.') { ", or give this one another name" } else { "" };
        format!("`{name}` stands {place} already; put its keys together there{other_name}")
    }

    /// The headers of tables, such as `[limit.acme]`, with the numbers of their lines.
    fn headers(&self) -> impl Iterator<Item = (usize, &'a str)> {
        (1..).zip(self.text.lines()).filter_map(|(number, line)| {
            let header = line.split('#').next()?.trim();
            let is_header = header.starts_with('[') && header.ends_with(']') && !header.contains('=');
            is_header.then_some((number, header))
        })
    }

    fn push(
        &self,
        place: Option<(usize, usize)>,
        subject: String,
        requirement: String,
        quote: Option<String>,
    ) {
        let complaint = Complaint { file: Some(self.file.to_owned()), place, subject, requirement, quote };
        self.complaints.borrow_mut().push(complaint);
    }

    fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}
