//! Publishes the channels and rules that this node runs, at the start and at each reload. The node that publishes last wins.

use crate::config::Config;
use crate::node::Node;
use crate::node::running::Running;
use crate::store::{Published, StoreError};
use crate::telemetry::chain;

/// Publishes what the node is about to run.
///
/// # Errors
/// When Postgres does not take it. The newest rules are then those that the node runs, unless Postgres refuses these, too.
pub(super) async fn publish_new(node: &Node, new: &Running) -> Result<(), StoreError> {
    let changed = publish_rules(node, new).await?;
    let Err(error) = publish_channels(node, new).await else { return Ok(()) };
    // `prove` judges by the newest rules, and this node goes on with the old ones.
    if changed > 0
        && let Err(error) = publish_rules(node, &node.running()).await
    {
        tracing::warn!(
            error = %chain(&error),
            "Failed to publish the rules that stay in force"
        );
    }
    Err(error)
}

/// Answers how many rules changed.
async fn publish_rules(node: &Node, running: &Running) -> Result<u64, StoreError> {
    let rules = running.limits.iter().map(|limit| (&limit.name, &limit.rule));
    node.store.publish_rules(&node.name, rules).await
}

async fn publish_channels(node: &Node, running: &Running) -> Result<(), StoreError> {
    let channels: Vec<Published> = running
        .channels
        .iter()
        .map(|channel| Published {
            name: channel.name.clone(),
            endpoint: channel.bank_address().endpoint,
            settings: Config::public_settings(channel),
            max_backlog: channel.max_backlog,
            on_unknown: channel.on_unknown.as_str(),
            inquires: channel.inquiry.is_some(),
            resend_within: channel.resend_within(),
            most_sends: channel.retry.sends,
            bank_address: channel.bank_address(),
        })
        .collect();
    node.store.publish(&node.name, &channels).await
}
