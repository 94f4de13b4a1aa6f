//! The channel that a path names, or the query of a list.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::StatusCode;

use super::{Api, Problem, Who};
use crate::refund::ChannelName;
use crate::refund::draft::FieldError;

/// Refuses a channel that no node ever ran, or that the caller does not have. An empty list would look as if nothing had
/// happened there.
pub(super) async fn exists(api: &Api, who: &Who, channel: Option<&str>) -> Result<(), Problem> {
    let Some(name) = channel else { return Ok(()) };
    let is_there = who.has_channel(name) && api.node.store.is_channel(name).await?;
    if is_there { Ok(()) } else { Err(no_such_channel(name)) }
}

/// The channel that the field of a page's filter names; `None` if the field is empty. Refuses what [`exists`] refuses.
pub(super) async fn in_filter(api: &Api, who: &Who, text: &str) -> Result<Option<String>, Problem> {
    let channel = match text.trim() {
        "" => None,
        name => Some(ChannelName::new(name).map_err(|bad| {
            Problem::invalid(vec![FieldError::new("channel", Some(&name.into()), bad.to_string())])
        })?),
    };
    let channel = channel.map(String::from);
    exists(api, who, channel.as_deref()).await?;
    Ok(channel)
}

/// The name in a path. One that is no text names no channel.
pub(super) fn in_path(name: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    name.map(|Path(name)| name).map_err(|_| no_such_channel("\u{fffd}"))
}

/// The name in a path of one channel; `None` in a path of everything, which has none.
pub(super) type ChannelOrAll = Result<Option<Path<String>>, PathRejection>;

/// As [`in_path`].
pub(super) fn one_or_all(name: ChannelOrAll) -> Result<Option<String>, Problem> {
    name.transpose().map(in_path).transpose()
}

/// Refuses a name that no channel can have, and a channel that the caller does not have.
pub(super) fn known(who: &Who, name: &str) -> Result<ChannelName, Problem> {
    let channel = ChannelName::new(name).ok().filter(|_| who.has_channel(name));
    channel.ok_or_else(|| no_such_channel(name))
}

pub(super) fn no_such_channel(name: &str) -> Problem {
    let name: String = name.chars().take(63).collect();
    let detail = format!("no node ever ran a channel `{name}`, or this caller does not have it");
    Problem::new(StatusCode::NOT_FOUND, "no-such-channel", "No such channel", detail)
}
