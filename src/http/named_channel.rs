//! The channel that the query of a list names.

use super::pauses::no_such_channel;
use super::{Api, Problem, Who};

/// Refuses a channel that no node ever ran, or that the caller does not have. An empty list would look as if nothing had
/// happened there.
pub(super) async fn exists(api: &Api, who: &Who, channel: Option<&str>) -> Result<(), Problem> {
    let Some(name) = channel else { return Ok(()) };
    let is_there = who.has_channel(name)
        && api.node.store.is_channel(name).await.map_err(|error| Problem::store(&error))?;
    if is_there { Ok(()) } else { Err(no_such_channel(name)) }
}
