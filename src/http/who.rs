//! Who sent a request: what exists for the sender, and in whose name it acts.
//!
//! Objects of other callers do not exist for a caller: a handler answers as if there were none. [`super::access`] finds out
//! who it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde_json::{Map, Value};

use super::Problem;
use crate::caller::scope::CallerScope;
use crate::caller::{Caller, Names};
use crate::refund::draft::FieldError;
use crate::refund::{CallerName, NewRefund, card, text};

/// Who sent a request that was let in.
#[derive(Debug, Clone)]
pub(super) enum Who {
    /// The configuration has no callers, so the request may do everything.
    Anyone,
    /// The route needs nothing, so nobody looked who it is.
    Stranger,
    Caller(Arc<Caller>),
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Who>().cloned().ok_or_else(Problem::internal)
    }
}

impl Who {
    /// Whether the objects of this channel exist for the caller.
    pub(super) fn has_channel(&self, channel: &str) -> bool {
        match self {
            Who::Anyone => true,
            Who::Stranger => false,
            Who::Caller(caller) => caller.channels.has(channel),
        }
    }

    /// The channels whose objects exist for the caller.
    pub(super) fn channels(&self) -> Names {
        match self {
            Who::Anyone => Names::All,
            Who::Stranger => Names::These(BTreeSet::new()),
            Who::Caller(caller) => caller.channels.clone(),
        }
    }

    /// Whether the objects of every channel exist for the caller.
    pub(super) fn has_all_channels(&self) -> bool {
        self.channels() == Names::All
    }

    /// Whether this limit exists for the caller.
    pub(super) fn has_limit(&self, limit: &str) -> bool {
        match self {
            Who::Anyone => true,
            Who::Stranger => false,
            Who::Caller(caller) => caller.limits.has(limit),
        }
    }

    /// Whether the caller may do this kind of work.
    pub(super) fn may(&self, scope: CallerScope) -> bool {
        match self {
            Who::Anyone => true,
            Who::Stranger => false,
            Who::Caller(caller) => caller.may.contains(&scope),
        }
    }

    /// Whether the answers to a health check name servers and their faults.
    pub(super) fn may_see_reasons(&self) -> bool {
        matches!(self, Who::Anyone)
    }

    /// Why a server of refundd's fails, as the caller may read it. The reason has the server's address, which a caller for some
    /// channels does not need.
    pub(super) fn server_reason<'w>(&self, why: &'w str) -> &'w str {
        if self.has_all_channels() { why } else { "the reason is for callers with all channels" }
    }

    /// The caller's name; `None` while the configuration has no callers.
    pub(super) fn name(&self) -> Option<&CallerName> {
        match self {
            Who::Anyone | Who::Stranger => None,
            Who::Caller(caller) => Some(&caller.name),
        }
    }

    /// Checks a field that names who acts. A known caller is who acts, and may leave the field out.
    pub(super) fn check_name(&self, field: &str, given: Option<&Value>) -> Result<(), FieldError> {
        let (Some(name), Some(value)) = (self.name(), given) else { return Ok(()) };
        if value.as_str() == Some(name.as_str()) {
            return Ok(());
        }
        let message = format!("is always the caller, and you are `{name}`; leave the field out");
        Err(FieldError::new(field, Some(value), message))
    }

    /// Checks that the caller may order a refund.
    pub(super) fn check_order(&self, refund: &NewRefund) -> Result<(), OrderRefused> {
        let channel = refund.channel.as_str();
        if !self.has_channel(channel) {
            let message =
                "does not exist for this caller, which may name the channels of its `channels` only";
            return Err(OrderRefused::NoSuchChannel(FieldError::new(
                "channel",
                Some(&channel.into()),
                message,
            )));
        }
        let Who::Caller(caller) = self else { return Ok(()) };
        caller.check_amount(&refund.money).map_err(|(field, message)| {
            let value = match field {
                "currency" => Value::from(refund.money.currency.as_str()),
                _ => Value::from(refund.money.amount_minor),
            };
            OrderRefused::TooHigh(FieldError::new(field, Some(&value), message))
        })
    }
}

/// Reads a text of a person, such as a reason: 1 to `most` characters, which every way in takes. `what` says for people what
/// belongs there.
pub(super) fn of_a_person(
    object: &Map<String, Value>,
    name: &str,
    most: usize,
    what: &str,
    wrong: &mut Vec<FieldError>,
) -> String {
    let value = object.get(name);
    let given = value.and_then(Value::as_str).map(str::trim);
    let problem = match given {
        Some(given) if (1..=most).contains(&given.chars().count()) => {
            if name == "by" {
                text::name_problem(given)
            } else {
                text::problem(given)
            }
        }
        _ => Some(format!("must be a text of 1 to {most} characters: {what}")),
    };
    wrong.extend(problem.map(|problem| FieldError::new(name, value, problem)));
    if given.is_some_and(card::is_in) {
        wrong.push(FieldError::new(name, None, card::PROBLEM));
    }
    given.unwrap_or_default().to_owned()
}

/// Why a caller may not order a refund.
#[derive(Debug)]
pub(super) enum OrderRefused {
    NoSuchChannel(FieldError),
    TooHigh(FieldError),
}
