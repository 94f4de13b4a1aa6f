//! Compares this node with the other living nodes: whether one has left, and whether all run the same file.

use std::sync::atomic::Ordering;

use super::Heartbeat;
use crate::node::running::Running;
use crate::refund::LimitName;
use crate::store::Peers;

/// The other living nodes, as this node last compared them.
#[derive(Debug, Default)]
pub(super) struct KnownPeers {
    /// The nodes with other channels or limits, as last logged.
    differing: Vec<String>,
    /// How many other nodes lived.
    others: usize,
    /// A living node that cannot share this node's buckets, as last logged.
    incompatible: Option<String>,
}

impl Heartbeat {
    /// Logs what changed among the other living nodes, and wakes the loops that wait for them.
    pub(super) fn compare_with(&mut self, peers: Peers, running: &Running) {
        if peers.incompatible != self.peers.incompatible {
            if let Some(other) = &peers.incompatible {
                tracing::error!(
                    other,
                    "Node {other} runs beside this one, and a bucket in memory cannot be shared: stop one of them; the ledger keeps the limits meanwhile"
                );
            }
            self.peers.incompatible = peers.incompatible;
        }
        // Loops that wait for a limit ask again when a node has left, and when files begin to differ.
        let differs = !peers.differing.is_empty();
        let began_to_differ = !self.node.differs.swap(differs, Ordering::Relaxed) && differs;
        if peers.others < self.peers.others || began_to_differ {
            self.node.departures.send_modify(|times| *times += 1);
        }
        self.peers.others = peers.others;
        self.end_stricter_rules(differs, running);
        if peers.differing != self.peers.differing {
            if peers.differing.is_empty() {
                tracing::info!("All living nodes run the same channels and limits again");
            } else {
                tracing::warn!(
                    nodes = peers.differing.join(", "),
                    "Other nodes run other channels or limits than this one: reload them all from one file"
                );
            }
            self.peers.differing = peers.differing;
        }
    }

    /// If all nodes have the same file, no stricter rule is another node's. Names with a dot are shares and slowed limits.
    fn end_stricter_rules(&self, differs: bool, running: &Running) {
        let is_run = |limit: &LimitName| {
            running.limits.iter().any(|own| {
                let rest = limit.as_str().strip_prefix(own.name.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let can_rule = |limit: &LimitName| self.without_share.contains_key(limit) || differs && is_run(limit);
        for limit in self.node.status_report.end_stricter_rules(can_rule) {
            self.node.metrics.limit_has_stricter_rule(&limit, false);
        }
    }
}
