//! What the body of a pause or a resume wants, and which fields a refusal names.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::super::Who;
use super::super::person::{actor, unknown_fields};
use super::super::who::of_a_person;
use crate::refund::draft::FieldError;
use crate::store::{Seen, SuspendedBy};

const MOST_SECONDS: u64 = 366 * 86_400;

/// What the name in a request is for.
const WHO: &str = "who does it; others will ask";

/// What a request to pause or to resume wants.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) struct PauseRequest {
    pub(super) reason: String,
    pub(super) by: String,
    pub(super) verb: PauseVerb,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PauseVerb {
    Pause {
        lasts: Option<Duration>,
        seen: Seen,
    },
    /// End a person's pause, or a suspension by refundd itself.
    End {
        by: SuspendedBy,
        /// When the suspension began that the request saw, or, of a cooling, its end.
        seen: Option<Timestamp>,
    },
}

impl PauseRequest {
    /// The cause that it begins or ends; `is_one`: of one channel, and not of everything.
    pub(in crate::http) fn cause(&self, is_one: bool) -> SuspendedBy {
        match self.verb {
            PauseVerb::Pause { .. } if is_one => SuspendedBy::Person,
            PauseVerb::Pause { .. } => SuspendedBy::All,
            PauseVerb::End { by, .. } => by,
        }
    }
}

pub(in crate::http) fn read_pause(
    object: &Map<String, Value>,
    who: &Who,
) -> Result<PauseRequest, Vec<FieldError>> {
    let mut wrong = unknown_fields(object, &["reason", "for_seconds", "by", "seen"]);
    let reason = of_a_person(object, "reason", 400, "why; others will ask", &mut wrong);
    let by = actor(object, who, WHO, &mut wrong);
    let lasts = object.get("for_seconds").filter(|value| !value.is_null()).and_then(|value| {
        let seconds = value.as_u64().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
        if seconds.is_none() {
            let expected = format!(
                "must be a whole number of seconds from 1 to {MOST_SECONDS}; leave it out to pause until somebody resumes"
            );
            wrong.push(FieldError::new("for_seconds", Some(value), expected));
        }
        seconds.map(Duration::from_secs)
    });
    let seen = match object.get("seen").and_then(Value::as_str) {
        Some("none") => Seen::Nothing,
        _ => read_seen(object, ", or \"none\"", &mut wrong).map_or(Seen::Unsaid, Seen::Since),
    };
    if wrong.is_empty() {
        Ok(PauseRequest { reason, by, verb: PauseVerb::Pause { lasts, seen } })
    } else {
        Err(wrong)
    }
}

/// When the suspension began that the one who asks saw, or, of a cooling, its end.
fn read_seen(object: &Map<String, Value>, or: &str, wrong: &mut Vec<FieldError>) -> Option<Timestamp> {
    let value = object.get("seen").filter(|value| !value.is_null())?;
    let since = value.as_str().and_then(|text| text.parse().ok());
    if since.is_none() {
        let expected = format!(
            "must be the `since` of the suspension, of a cooling its `until`, as GET /v1/suspensions shows it{or}"
        );
        wrong.push(FieldError::new("seen", Some(value), expected));
    }
    since
}

/// `is_one`: about one channel, and not about everything.
pub(in crate::http) fn read_resume(
    object: &Map<String, Value>,
    who: &Who,
    is_one: bool,
) -> Result<PauseRequest, Vec<FieldError>> {
    let fields: &[&str] = if is_one { &["lift", "reason", "by", "seen"] } else { &["reason", "by", "seen"] };
    let mut wrong = unknown_fields(object, fields);
    let reason = match object.get("reason") {
        None | Some(Value::Null) => String::new(),
        Some(_) => of_a_person(object, "reason", 400, "why", &mut wrong),
    };
    let who = actor(object, who, WHO, &mut wrong);
    let by = match object.get("lift").map(|value| (value, value.as_str())) {
        None if !is_one => SuspendedBy::All,
        None | Some((_, Some("pause"))) => SuspendedBy::Person,
        Some((_, Some("credentials"))) => SuspendedBy::Credentials,
        Some((_, Some("breaker"))) => SuspendedBy::Breaker,
        Some((_, Some("cooling"))) => SuspendedBy::Cooling,
        Some((value, _)) => {
            wrong.push(FieldError::new(
                "lift",
                Some(value),
                "must be pause, credentials, breaker or cooling",
            ));
            SuspendedBy::Person
        }
    };
    let seen = read_seen(object, "", &mut wrong);
    if wrong.is_empty() {
        Ok(PauseRequest { reason, by: who, verb: PauseVerb::End { by, seen } })
    } else {
        Err(wrong)
    }
}

#[cfg(test)]
mod tests;
