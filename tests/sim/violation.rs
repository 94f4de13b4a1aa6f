//! The result of a check: a value, or the property that was broken.

use std::fmt;

/// A property was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    pub property: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.what)
    }
}

pub type Checked<T> = Result<T, Violation>;

pub fn broken<T>(property: &'static str, what: impl Into<String>) -> Checked<T> {
    Err(Violation { property, what: what.into() })
}

/// The value of a statement. A refused statement breaks a property: refundd must send none that the database refuses.
pub fn taken<T>(result: Result<T, refundd::store::StoreError>) -> Checked<T> {
    result.map_err(|error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        Violation { property: "the database takes every statement", what: format!("{error}: {source}") }
    })
}
