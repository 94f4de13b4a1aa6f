//! What a person sends with every decision, approval and withdrawal: why, and in whose name. And ids as callers write them.
//!
//! With callers the name is the caller's. While the configuration has no callers, this module believes the name that the
//! request gives.

use serde_json::{Map, Value};

use super::Who;
use super::who::of_a_person;
use crate::refund::draft::FieldError;

/// A reason and a name, for the journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Person {
    pub reason: String,
    pub by: String,
}

impl Person {
    /// Reads `reason` and `by`. The faults go to `wrong`.
    pub(super) fn read(object: &Map<String, Value>, who: &Who, wrong: &mut Vec<FieldError>) -> Person {
        let reason = of_a_person(object, "reason", 400, "how you know; it is kept in the journal", wrong);
        let by = actor(object, who, "who decides, for the journal", wrong);
        Person { reason, by }
    }
}

/// Who acts: the caller, or, while the configuration has none, the name in the request. `rule` says what the name is for.
pub(super) fn actor(
    object: &Map<String, Value>,
    who: &Who,
    rule: &str,
    wrong: &mut Vec<FieldError>,
) -> String {
    match who.name() {
        Some(name) => {
            wrong.extend(who.check_name("by", object.get("by")).err());
            name.to_string()
        }
        None => of_a_person(object, "by", 100, rule, wrong),
    }
}

/// Reads the id of a refund or of a proposal: a positive whole number, or the same as a text.
pub(super) fn read_id(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).filter(|id| *id > 0)
}

/// Reads a version: a whole number from 0 on.
pub(super) fn read_version(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|version| i32::try_from(version).ok()).filter(|version| *version >= 0)
}

/// Reads a thing that is named with a version: `{"id": 4711, "version": 7}`.
pub(super) fn read_id_and_version(value: &Value) -> Option<(i64, i32)> {
    let object = value.as_object().filter(|object| object.len() == 2)?;
    Some((read_id(object.get("id")?)?, read_version(object.get("version")?)?))
}

/// Reads a list of 1 to `most` things, of which `what` says what they are.
pub(super) fn read_list<T>(
    object: &Map<String, Value>,
    name: &str,
    most: usize,
    what: &str,
    read: fn(&Value) -> Option<T>,
) -> Result<Vec<T>, FieldError> {
    let value = object.get(name);
    let all = value.and_then(Value::as_array).filter(|all| (1..=most).contains(&all.len()));
    let all =
        all.ok_or_else(|| FieldError::new(name, value, format!("must be a list of 1 to {most} {what}")))?;
    let entry = |(place, one)| {
        let wrong = || {
            FieldError::new(
                &format!("{name}[{place}]"),
                Some(one),
                format!("is wrong; {name} must be a list of 1 to {most} {what}"),
            )
        };
        read(one).ok_or_else(wrong)
    };
    all.iter().enumerate().map(entry).collect()
}

/// A fault for each field that is not among `known`.
pub(super) fn unknown_fields(object: &Map<String, Value>, known: &[&str]) -> Vec<FieldError> {
    let unknown = object.iter().filter(|(name, _)| !known.contains(&name.as_str()));
    let fault = |(name, value): (&String, &Value)| {
        FieldError::new(name, Some(value), format!("is not known; known here: {}", known.join(", ")))
    };
    unknown.map(fault).collect()
}
