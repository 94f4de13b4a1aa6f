//! The channel that a path names.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::StatusCode;

use super::super::{Problem, Who};
use crate::refund::ChannelName;

/// The channel that a path names, if it exists for the one who asks.
pub(super) fn existing(who: &Who, name: Result<Path<String>, PathRejection>) -> Result<ChannelName, Problem> {
    let name = name.ok().and_then(|Path(name)| ChannelName::new(&name).ok());
    name.filter(|name| who.has_channel(name.as_str())).ok_or_else(no_such_channel)
}

pub(super) fn no_such_channel() -> Problem {
    let detail = "no channel of this name was run on this database";
    Problem::new(StatusCode::NOT_FOUND, "no-such-channel", "No such channel", detail)
}
