//! The lines below the table: what a person should know about a channel, and what a node reports.

use std::time::Duration;

use super::style::span;
use crate::desk::channel::{ChannelStatus, SuspensionStatus};
use crate::store::{NodeReport, SuspendedBy};

/// What stops everything, and then of each channel why it is suspended, slow or late, and who must act.
pub(super) fn of_channels(channels: &[ChannelStatus]) -> Vec<String> {
    let is_of_all = |one: &&SuspensionStatus| one.suspended_by == SuspendedBy::All;
    // A pause of everything suspends each channel, and stands here once.
    let everything = channels.iter().flat_map(|channel| &channel.suspensions).find(is_of_all);
    let of_channel = |channel: &ChannelStatus| {
        let own =
            channel.suspensions.iter().filter(|one| !is_of_all(one)).map(SuspensionStatus::with_way_out);
        own.chain(channel.reasons()).collect::<Vec<_>>()
    };
    let everything = everything.map(SuspensionStatus::with_way_out);
    everything.into_iter().chain(channels.iter().flat_map(of_channel)).collect()
}

/// What a node reports about limits and banks: long waits, and stricter rules of other nodes' files. Also channels that
/// are blocked, banks that the node cannot reach, and banks that are too far away for their limits. With `only`, the lines
/// about this channel alone.
pub(super) fn of_node(node: &str, report: &NodeReport, only: Option<&str>) -> Vec<String> {
    let is_meant = |channel: &str| only.is_none_or(|only| only == channel);
    let waits = report.waits.iter().filter(|(channel, _)| is_meant(channel)).map(|(channel, wait)| {
        let (limit, left) = (&wait.limit, Duration::from_secs(wait.seconds));
        format!("{channel} waits for limit `{limit}` on node {node}, another {}", span(left))
    });
    let stricter_rules = report.stricter_rules.iter().map(|(limit, by)| {
        format!("node {node}: another node's rule is in force for limit `{limit}`, not this one's: {by}")
    });
    let banks = report.banks.iter().filter(|(channel, _)| is_meant(channel)).flat_map(|(channel, bank)| {
        let bank = &bank.status;
        let lines = [
            bank.unreachable
                .as_ref()
                .map(|why| format!("{channel} is unreachable from node {node}: failed to {why}")),
            bank.unreachable_to_ask
                .as_ref()
                .map(|why| format!("{channel}: its bank cannot be asked from node {node}: failed to {why}")),
            bank.blocked.as_ref().map(|why| format!("{channel} is blocked on node {node}: {why}")),
            bank.permits_lapse.as_ref().map(|why| format!("{channel}: permits lapse on node {node}: {why}")),
            bank.lateness_too_small.as_ref().map(|why| {
                format!("{channel}: `lateness` is too small for the way to the bank from node {node}: {why}")
            }),
        ];
        lines.into_iter().flatten().collect::<Vec<_>>()
    });
    let redis = report.redis.as_ref();
    let redis =
        redis.map(|why| format!("node {node}: Redis is away or refuses: {why}; refunds are saved and wait"));
    redis.into_iter().chain(waits).chain(stricter_rules).chain(banks).collect()
}
