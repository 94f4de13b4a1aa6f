//! One value with the place it came from, so that a law broken later can still point at it.

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
    /// Where it stands; for a default, where its section does, if anywhere.
    at: Option<usize>,
    /// How it is shown in a complaint, after the path.
    shown: String,
    /// Whether the file says it.
    pub(super) given: bool,
    /// Already complained about: laws that build on it keep silent.
    sound: bool,
}

impl<T> Field<T> {
    pub(super) fn given(source: &Source<'_>, path: String, span: &Range<usize>, value: T) -> Self {
        let shown = format!(" = {}", source.words(span));
        Field { value, path, at: Some(span.start), shown, given: true, sound: true }
    }

    /// The value used instead of one that could not be read and was complained about.
    pub(super) fn faulty(path: String, value: T) -> Self {
        Field { value, path, at: None, shown: String::new(), given: true, sound: false }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    /// Shows it as `shown` from now on, for values that may hold a secret.
    pub(super) fn shown_as(&mut self, shown: &str) {
        self.shown = format!(" = \"{shown}\"");
    }

    /// Complains unless the law holds; about each field only once.
    pub(super) fn law<L: Into<String>>(
        &mut self,
        source: &Source<'_>,
        holds: bool,
        law: impl FnOnce() -> L,
    ) -> bool {
        if self.sound && !holds {
            self.sound = false;
            source.complain(self.at, format!("field `{}`{}", self.path, self.shown), law());
        }
        self.sound
    }
}

impl<T: Say> Field<T> {
    pub(super) fn default(path: String, at: Option<usize>, value: T) -> Self {
        let shown = format!(" (default {})", value.say());
        Field { value, path, at, shown, given: false, sound: true }
    }
}

impl<T: Say + PartialOrd> Field<T> {
    /// The law that it lies between two bounds.
    pub(super) fn within(&mut self, source: &Source<'_>, bounds: &RangeInclusive<T>) -> bool {
        let holds = bounds.contains(&self.value);
        self.law(source, holds, || {
            format!("must lie between {} and {}", bounds.start().say(), bounds.end().say())
        })
    }
}

/// How a value is written in the file.
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
