//! The channels: for each its limits, its counts of refunds, what binds it, and when its backlog will be gone.
//!
//! The counts and the forecasts come from the census, what suspends channels from Postgres at each answer. Limits, waits, depths and banks are as this node sees them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde::Serialize;

use super::named_channel::{in_path, no_such_channel};
use super::{Api, Json, Problem, Who};
use crate::channel::Channel;
use crate::desk::channel::{BindsSeen, ChannelStatus, LimitAwaited, LimitStatus};
use crate::node::Node;
use crate::store::ChannelCensus;

/// How long a person waits for the first count. The store's own time-out ends sooner if Postgres is away.
pub(super) const MOST_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize)]
pub(super) struct ChannelListing {
    channels: Vec<ChannelStatus>,
    redis: Redis,
}

#[derive(Debug, Serialize)]
struct Redis {
    up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

/// `GET /v1/channels`.
pub(super) async fn list(State(api): State<Api>, who: Who) -> Result<Json<ChannelListing>, Problem> {
    let census = api.census.now(&api, MOST_PATIENCE).await?;
    let own = census.iter().filter(|census| who.has_channel(&census.channel));
    let channels = statuses(&api.node, own).into_iter().map(|status| seen_by(&who, status)).collect();
    let trouble = api.node.bucket.trouble();
    let redis =
        Redis { up: trouble.is_none(), trouble: trouble.map(|why| who.server_reason(&why).to_owned()) };
    Ok(Json(ChannelListing { channels, redis }))
}

/// `GET /v1/channels/{name}`.
pub(super) async fn one(
    State(api): State<Api>,
    who: Who,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<ChannelStatus>, Problem> {
    let name = in_path(name)?;
    let census = api.census.now(&api, MOST_PATIENCE).await?;
    let found = census.iter().find(|census| census.channel == name && who.has_channel(&census.channel));
    let found = found.ok_or_else(|| no_such_channel(&name))?;
    let status = statuses(&api.node, std::iter::once(found)).pop().ok_or_else(Problem::internal)?;
    Ok(Json(seen_by(&who, status)))
}

/// A status without what the caller may not see.
fn seen_by(who: &Who, mut status: ChannelStatus) -> ChannelStatus {
    if let Some(bank) = &mut status.bank {
        bank.blocked = bank.blocked.take().map(|why| who.server_reason(&why).to_owned());
    }
    status
}

/// Channels as this node sees them.
pub(super) fn statuses<'c>(
    node: &Node,
    census: impl Iterator<Item = &'c ChannelCensus>,
) -> Vec<ChannelStatus> {
    let running = node.running();
    let running: HashMap<&str, &Arc<Channel>> =
        running.channels.iter().map(|channel| (channel.name.as_str(), channel)).collect();
    let status = |census: &ChannelCensus| {
        let channel = running.get(census.channel.as_str());
        channel.map_or_else(|| ChannelStatus::of(census), |channel| status(node, census, channel))
    };
    census.map(status).collect()
}

/// One channel that this node runs.
fn status(node: &Node, census: &ChannelCensus, channel: &Channel) -> ChannelStatus {
    let mut status = ChannelStatus::of(census);
    let name = &channel.name;
    status.max_backlog = channel.max_backlog;
    status.note_depth(node.depth_seen_within(name, Duration::MAX));
    status.limits = Some(channel.limits.iter().map(|limit| LimitStatus::of(limit)).collect());
    for (shown, limit) in status.limits.iter_mut().flatten().zip(&channel.limits) {
        shown.stricter_rule = node.status_report.stricter_rule(&limit.name);
    }
    status.waits_for = node
        .status_report
        .wait_of(name)
        .map(|(limit, left)| LimitAwaited { limit: limit.to_string(), seconds: left.as_secs_f64() });
    let reading = node.status_report.reading_of(name);
    let bank = node.status_report.bank_of(name).status(&reading);
    status.note_own_node(bank, BindsSeen::new(&reading), node.bucket.trouble().is_some());
    status
}
