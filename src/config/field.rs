//! One value with its place in the file, so that a requirement that is checked later can point at it.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use super::duration;
use super::source::Source;

/// A value, written in the file or taken as the default.
#[derive(Debug, Clone)]
pub(super) struct Field<T> {
    pub(super) value: T,
    /// For example `channel.acme.timeout`.
    path: String,
    /// The byte at which the value stands in the file. For a default, the place of its section; `None` without one.
    at: Option<usize>,
    /// The text after the path in a complaint, such as ` = "20m"`.
    shown: String,
    /// Whether the file has this key.
    pub(super) given: bool,
    /// Whether nothing was complained about yet. Requirements of a field that is not sound stay silent.
    sound: bool,
}

impl<T> Field<T> {
    pub(super) fn given(source: &Source<'_>, path: String, span: &Range<usize>, value: T) -> Self {
        let shown = format!(" = {}", source.excerpt(span));
        Field { value, path, at: Some(span.start), shown, given: true, sound: true }
    }

    /// A stand-in value for one that could not be read; the complaint is made already.
    pub(super) fn faulty(path: String, value: T) -> Self {
        Field { value, path, at: None, shown: String::new(), given: true, sound: false }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    /// From now on complaints show the value as `shown`; for values that may be secrets.
    pub(super) fn shown_as(&mut self, shown: &str) {
        self.shown = format!(" = \"{shown}\"");
    }

    /// Complains if the requirement does not hold, but only once for each field. Returns whether the field is still sound.
    pub(super) fn require<L: Into<String>>(
        &mut self,
        source: &Source<'_>,
        holds: bool,
        requirement: impl FnOnce() -> L,
    ) -> bool {
        if self.sound && !holds {
            self.sound = false;
            source.complain(self.at, format!("field `{}`{}", self.path, self.shown), requirement());
        }
        self.sound
    }
}

impl Field<Vec<String>> {
    /// One text of a list of names of files, with the place of the list.
    pub(super) fn one_of(&self, value: String) -> Field<String> {
        Field {
            value,
            path: self.path.clone(),
            at: self.at,
            shown: String::new(),
            given: self.given,
            sound: true,
        }
    }
}

impl<T: Say> Field<T> {
    pub(super) fn default(path: String, at: Option<usize>, value: T) -> Self {
        let shown = format!(" (default {})", value.say());
        Field { value, path, at, shown, given: false, sound: true }
    }
}

impl<T: Say + PartialOrd> Field<T> {
    /// The requirement that the value lies within `bounds`.
    pub(super) fn within(&mut self, source: &Source<'_>, bounds: &RangeInclusive<T>) -> bool {
        let holds = bounds.contains(&self.value);
        self.require(source, holds, || {
            format!("must lie between {} and {}", bounds.start().say(), bounds.end().say())
        })
    }
}

/// Writes a value as the file would.
pub(super) trait Say {
    fn say(&self) -> String;
}

impl Say for Duration {
    fn say(&self) -> String {
        Text(&duration::say(*self)).to_string()
    }
}

impl Say for bool {
    fn say(&self) -> String {
        self.to_string()
    }
}

impl Say for i64 {
    fn say(&self) -> String {
        self.to_string()
    }
}

impl Say for String {
    fn say(&self) -> String {
        Text(self).to_string()
    }
}

impl Say for Vec<String> {
    fn say(&self) -> String {
        let texts: Vec<String> = self.iter().map(Say::say).collect();
        format!("[{}]", texts.join(", "))
    }
}

struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}
