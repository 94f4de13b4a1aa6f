//! Learns from the nodes of a cluster which master has which slot.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use redis::{ErrorKind, RedisError, Value};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Cluster;
use super::slots::{self, Range, SLOTS};
use crate::bucket::server::kind;
use crate::bucket::server::link::Link;
use crate::lock::Lock;

impl Cluster {
    /// Asks all known nodes which master has which slot, and believes the node that knows most: it sees the cluster
    /// in order, and it has the highest epoch.
    pub(in crate::bucket::server) async fn learn(&self) -> Result<(), RedisError> {
        let mut learnt = self.0.learning.lock().await;
        if learnt.is_some_and(|at| at.elapsed() < Self::LEARN_AGAIN) {
            return Ok(());
        }
        let masters: BTreeSet<Arc<str>> = self.0.owners.locked().values().cloned().collect();
        let mut nodes: BTreeSet<String> = masters.iter().map(ToString::to_string).collect();
        nodes.extend(self.0.address.seeds.iter().cloned());
        let count = nodes.len();
        let mut views = JoinSet::new();
        for node in nodes {
            let link = self.link(&node)?;
            views.spawn(async move {
                let late =
                    || std::io::Error::new(std::io::ErrorKind::TimedOut, "a node did not answer in time");
                let answer = timeout(Self::ANSWER_WITHIN, view_of(&link, &node)).await;
                answer.unwrap_or_else(|_| Err(late().into()))
            });
        }
        let (mut best, mut trouble, mut sound): (Option<View>, Option<RedisError>, _) = (None, None, 0);
        while let Some(answer) = views.join_next().await {
            match answer {
                Ok(Ok(view)) => {
                    sound += usize::from(view.in_order);
                    if best.as_ref().is_none_or(|best| view.knows_more_than(best)) {
                        best = Some(view);
                    }
                    if sound * 2 > count {
                        break;
                    }
                }
                Ok(Err(error)) => trouble = Some(kind::that_may_pass(trouble, error)),
                Err(_) => {}
            }
        }
        let Some(best) = best else {
            let silent =
                || std::io::Error::new(std::io::ErrorKind::TimedOut, "no node of the cluster answers");
            return Err(trouble.unwrap_or_else(|| silent().into()));
        };
        let mut owners = HashMap::with_capacity(usize::from(SLOTS));
        for Range { first, last, master } in best.ranges {
            let master: Arc<str> = master.into();
            owners.extend((first..=last).map(|slot| (slot, Arc::clone(&master))));
        }
        let masters: BTreeSet<Arc<str>> = owners.values().cloned().collect();
        *self.0.owners.locked() = owners;
        let seeds = &self.0.address.seeds;
        self.0.links.locked().retain(|node, _| masters.contains(node.as_str()) || seeds.contains(node));
        *learnt = Some(Instant::now());
        Ok(())
    }
}

/// The cluster as one node sees it.
struct View {
    in_order: bool,
    epoch: u64,
    ranges: Vec<Range>,
}

impl View {
    fn knows_more_than(&self, other: &View) -> bool {
        (self.in_order, self.epoch) > (other.in_order, other.epoch)
    }
}

async fn view_of(link: &Link, node: &str) -> Result<View, RedisError> {
    let mut question = redis::pipe();
    question.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
    let (info, answer): (String, Value) = link.ask(async |to| question.query_async(to).await).await?;
    let fact = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let ranges = slots::read(&answer, node).ok_or_else(|| -> RedisError {
        (ErrorKind::UnexpectedReturnType, "a node of the cluster does not say where its slots are").into()
    })?;
    Ok(View {
        in_order: fact("cluster_state") == Some("ok"),
        epoch: fact("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
        ranges,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_sees_the_cluster_in_order_is_believed_before_one_that_does_not() {
        let view = |in_order, epoch| View { in_order, epoch, ranges: Vec::new() };
        assert!(view(true, 3).knows_more_than(&view(false, 9)), "a node that sees no order may be cut off");
        assert!(view(true, 4).knows_more_than(&view(true, 3)));
        assert!(!view(true, 3).knows_more_than(&view(true, 3)));
    }
}
