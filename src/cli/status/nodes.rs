//! The lines below the table: what a person should know about a channel, and what a node reports.

use std::time::Duration;

use serde_json::Value;

use super::style::span;
use crate::desk::channel::ChannelStatus;
use crate::refund::State;

/// Why a channel is suspended, slowed or late, and who must act.
pub(super) fn of_channel(channel: &ChannelStatus) -> Vec<String> {
    let name = &channel.channel;
    let review = channel.count(State::Review);
    let lines = [
        channel.paused.as_ref().map(|pause| {
            format!("{name} was paused by {} at {:.0}: {}", pause.by, pause.since, pause.reason)
        }),
        channel.breaker.as_ref().map(|breaker| {
            format!("{name} is suspended by its breaker since {:.0}: {}", breaker.since, breaker.reason)
        }),
        channel
            .cooling
            .as_ref()
            .map(|cooling| format!("{name} cools until {:.0}: the bank answered {}", cooling.until, cooling.reason)),
        channel.slowed_to_percent.map(|percent| {
            format!("{name}: sends at {percent} % of its rate, because the bank asked for slower; the rate climbs back while it accepts")
        }),
        channel.late.as_ref().map(|late| {
            let (refunds, from) = (late.refunds, late.from);
            format!("{name}: {refunds} refunds will pass their deadlines at this rate, the first at {from:.0}")
        }),
        (review > 0).then(|| format!("{name}: {review} wait for a person, see `refundd review`")),
        channel.run_by.is_empty().then(|| format!("{name}: no living node runs it")),
    ];
    lines.into_iter().flatten().collect()
}

/// What a node reports about limits and banks: long waits, and stricter rules of other nodes' files. Also channels that
/// are blocked, banks that the node cannot reach, and banks that are too far away for their limits. With `only`, the lines
/// about this channel alone.
pub(super) fn of_node(node: &str, report: &Value, only: Option<&str>) -> Vec<String> {
    let entries = |name: &str| report[name].as_object().into_iter().flatten();
    let is_meant = |(channel, _): &(&String, &Value)| only.is_none_or(|only| only == channel.as_str());
    let waits = entries("waits").filter(is_meant).map(|(channel, wait)| {
        let limit = wait["limit"].as_str().unwrap_or("?");
        let left = Duration::from_secs(wait["seconds"].as_u64().unwrap_or_default());
        format!("{channel} waits for limit `{limit}` on node {node}, for {} yet", span(left))
    });
    let stricter_rules = entries("overruled").map(|(limit, by)| {
        let by = by.as_str().unwrap_or("?");
        format!("node {node}: another node's file is stricter about limit `{limit}` (`{by}`), and that is what counts")
    });
    let banks = entries("banks").filter(is_meant).flat_map(|(channel, bank)| {
        let of = |what: &str| bank[what].as_str().map(ToOwned::to_owned);
        let lines = [
            of("unreachable")
                .map(|why| format!("{channel} is unreachable from node {node}: failed to {why}")),
            of("unreachable_to_ask")
                .map(|why| format!("{channel}: its bank cannot be asked from node {node}: failed to {why}")),
            of("blocked").map(|why| format!("{channel} is blocked on node {node}: {why}")),
            of("permits_lapse").map(|why| format!("{channel}: permits lapse on node {node}: {why}")),
            of("lateness_too_small").map(|why| {
                format!("{channel}: `lateness` is too small for the way to the bank from node {node}: {why}")
            }),
        ];
        lines.into_iter().flatten().collect::<Vec<_>>()
    });
    let redis = report["redis"].as_str();
    let redis =
        redis.map(|why| format!("node {node}: Redis is away or refuses: {why}; refunds are saved and wait"));
    redis.into_iter().chain(waits).chain(stricter_rules).chain(banks).collect()
}
