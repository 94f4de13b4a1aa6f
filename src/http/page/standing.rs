//! How a channel stands, in one word: what keeps it from sending, or that it sends.
//!
//! It joins what Postgres says of the channel with what the living nodes say of its bank.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::super::Who;
use super::parts::{Tone, badge, count, foreign, with_times};
use super::watch::Cluster;
use crate::desk::channel::{ChannelStatus, Standing};
use crate::refund::State;
use crate::store::{BankOfNode, ChannelCensus};

/// How the channel stands. One node that cannot reach the bank, or takes nothing, is enough.
fn of(census: &ChannelCensus, cluster: &Cluster) -> Standing {
    let banks = cluster.banks.get(&census.channel).map_or(&[][..], Vec::as_slice);
    let redis_is_away = cluster.nodes.iter().any(|node| node.lives && node.redis_trouble.is_some());
    let trouble = |BankOfNode { report, .. }: &BankOfNode| {
        Standing::of_node(report.status.unreachable.as_deref(), report.status.blocked.as_deref())
    };
    Standing::of(census).with_nodes(Standing::of_nodes(banks.iter().map(trouble), redis_is_away))
}

pub(super) fn standing_badge(census: &ChannelCensus, cluster: &Cluster) -> Markup {
    let standing = of(census, cluster);
    let tone = match standing {
        Standing::Blocked | Standing::Unreachable | Standing::NotRun | Standing::Breaker => Tone::Bad,
        Standing::Paused | Standing::Cooling | Standing::Full | Standing::Slowed => Tone::Warning,
        Standing::Running => Tone::Good,
    };
    badge(tone, standing.as_str())
}

/// The order of the channels on the page: those that need somebody come first, then by name.
pub(super) fn order<'c>(
    census: &'c ChannelCensus,
    cluster: &Cluster,
) -> (bool, Standing, Reverse<bool>, &'c str) {
    let standing = of(census, cluster);
    let has_work = census.counts.iter().any(|(state, count)| !state.is_end() && *count > 0);
    // A channel that nobody runs and that has nothing to do is history.
    let is_history = standing == Standing::NotRun && !has_work;
    (is_history, standing, Reverse(needs_somebody(census)), &census.channel)
}

/// Whether refunds wait for a person or will be late.
fn needs_somebody(census: &ChannelCensus) -> bool {
    census.late.is_some() || census.counts.get(&State::Review).is_some_and(|count| *count > 0)
}

/// Whether the channel needs a look.
pub(super) fn has_trouble(census: &ChannelCensus, cluster: &Cluster) -> bool {
    of(census, cluster) != Standing::Running || needs_somebody(census)
}

/// Why the channel stands so: the sentences of `refundd status`, and what the nodes say. What suspends it is not here: `pausing`
/// shows that with its buttons. What binds it is not here, either: it is the headline of the page.
pub(super) fn reasons(
    who: &Who,
    status: &ChannelStatus,
    banks: &[BankOfNode],
    cluster: &Cluster,
) -> Vec<Markup> {
    let headline = status.binds_sentence();
    // The page of reviews takes the place of the command.
    let review = status.review_sentence();
    let own = status.reasons().into_iter();
    let own = own.filter(|reason| Some(reason) != headline.as_ref() && Some(reason) != review.as_ref());
    let mut reasons: Vec<Markup> = own.map(|reason| with_times(&reason.replace('`', ""))).collect();
    let waiting = status.count(State::Review);
    if waiting > 0 {
        let path = format!("/review?channel={}", status.channel);
        let waits = if waiting == 1 { " waits" } else { " wait" };
        reasons.push(html! { a href=(path) { (count(waiting, "refund")) (waits) " for a person" } });
    }
    for BankOfNode { node, report, .. } in banks {
        let bank = &report.status;
        let texts = [
            ("cannot reach the bank: failed to ", bank.unreachable.as_deref()),
            ("cannot reach the bank for inquiries: failed to ", bank.unreachable_to_ask.as_deref()),
            ("is blocked: ", bank.blocked.as_deref().map(|why| who.server_reason(why))),
            ("loses its permits: ", bank.permits_lapse.as_deref()),
            (
                "has a `lateness` that is too small for the way to the bank: ",
                bank.lateness_too_small.as_deref(),
            ),
        ];
        for (what, why) in texts {
            if let Some(why) = why {
                reasons.push(html! { "Node " (node) " " (what) (foreign(why)) });
            }
        }
    }
    for node in cluster.nodes.iter().filter(|node| node.lives) {
        if let Some(why) = &node.redis_trouble {
            reasons.push(html! { "Node " (node.name) ": Redis is away or refuses: " (foreign(who.server_reason(why))) "; refunds are saved and wait" });
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;
    use crate::store::{BankStatus, NodeReport, NodeRow, ReportedBank, SuspendedBy, Suspension};

    /// What one node sees: each bit is one trouble.
    fn report(bits: u8) -> NodeReport {
        let trouble = |bit: u8| (bits & bit != 0).then(|| "a reason".to_owned());
        let status = BankStatus { unreachable: trouble(1), blocked: trouble(2), ..BankStatus::default() };
        let bank = ReportedBank { status, ..ReportedBank::default() };
        let banks = BTreeMap::from([("acme".to_owned(), bank)]);
        NodeReport { redis: trouble(4), banks, ..NodeReport::default() }
    }

    /// The same as the page reads it.
    fn cluster(reports: &[(String, NodeReport)]) -> Cluster {
        let node = |(name, report): &(String, NodeReport)| NodeRow {
            name: name.clone(),
            lives: true,
            redis_trouble: report.redis.clone(),
            ..NodeRow::default()
        };
        let bank = |(name, report): &(String, NodeReport)| {
            let (node, channel) = (name.clone(), "acme".to_owned());
            BankOfNode { node, channel, report: report.banks["acme"].clone() }
        };
        let banks = HashMap::from([("acme".to_owned(), reports.iter().map(bank).collect())]);
        Cluster { nodes: reports.iter().map(node).collect(), banks }
    }

    fn suspended(by: SuspendedBy) -> ChannelCensus {
        let suspension = Suspension {
            channel: Some("acme".to_owned()),
            by,
            reason: "a reason".to_owned(),
            who: "ann".to_owned(),
            since: None,
            until: None,
            left: None,
            probe_in: None,
        };
        ChannelCensus { suspensions: vec![suspension], ..running() }
    }

    fn running() -> ChannelCensus {
        let run_by = vec!["node-a#1".to_owned(), "node-b#2".to_owned()];
        ChannelCensus { channel: "acme".to_owned(), run_by, ..ChannelCensus::default() }
    }

    #[test]
    fn the_page_and_the_status_say_the_same_state_whatever_two_nodes_see() {
        let censuses = [
            running(),
            ChannelCensus { full: true, ..running() },
            ChannelCensus { slowed: Some(50), ..running() },
            ChannelCensus { run_by: Vec::new(), ..running() },
            suspended(SuspendedBy::Person),
            suspended(SuspendedBy::Breaker),
            suspended(SuspendedBy::Cooling),
        ];
        for bits in 0..64 {
            let (first, second) = (report(bits % 8), report(bits / 8));
            let reports = [("node-a".to_owned(), first), ("node-b".to_owned(), second)];
            let cluster = cluster(&reports);
            for census in &censuses {
                let mut status = ChannelStatus::of(census);
                status.note_reports(&reports);
                assert_eq!(of(census, &cluster), status.state, "{census:?} {reports:?}");
            }
        }
    }
}
