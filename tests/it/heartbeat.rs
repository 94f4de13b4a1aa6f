//! Which node leads, and when nodes take another node for gone.

use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::BucketKind;
use refundd::heartbeat::Heartbeat;
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::State;
use refundd::store::Liveness;
use sqlx::{Connection, Executor};
use tokio::task::JoinHandle;

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

/// Each of these nodes writes a heartbeat, which says whether Redis is away. Answers the nodes that believe they lead.
async fn leading(scratch: &Scratch, nodes: [(&'static str, bool); 3]) -> Vec<&'static str> {
    let mut leading = Vec::new();
    for (node, redis_is_away) in nodes {
        let liveness = Liveness {
            node,
            channels: None,
            config_digest: "digest",
            redis_is_away,
            bucket: BucketKind::Redis,
            status_report: None,
            settings: None,
        };
        if scratch.store.heartbeat(&liveness).await.unwrap().leads {
            leading.push(node);
        }
    }
    leading
}

/// The names of all nodes, in the order in which they lead.
async fn in_order(scratch: &Scratch) -> Vec<String> {
    scratch.store.nodes().await.unwrap().into_iter().map(|node| node.name).collect()
}

#[tokio::test]
async fn one_node_leads_while_all_have_lost_redis_and_none_of_them_beside_a_node_that_has_it() {
    let scratch = Scratch::new().await;
    for _ in 0..2 {
        let oldest = leading(&scratch, [("c#1", false), ("b#1", false), ("a#1", false)]).await;
        assert_eq!(oldest, ["c#1"]);
    }
    assert_eq!(in_order(&scratch).await, ["c", "b", "a"]);
    let next = leading(&scratch, [("c#1", true), ("b#1", false), ("a#1", false)]).await;
    assert_eq!(next, ["b#1"], "the oldest node that has Redis");
    for _ in 0..3 {
        let first = leading(&scratch, [("c#1", true), ("b#1", true), ("a#1", true)]).await;
        assert_eq!(first, ["a#1"], "the first by name");
    }
    assert_eq!(in_order(&scratch).await, ["a", "b", "c"]);
    let back = leading(&scratch, [("c#1", true), ("b#1", false), ("a#1", true)]).await;
    assert_eq!(back, ["b#1"], "the only node that has Redis");
    let back = leading(&scratch, [("c#1", false), ("b#1", false), ("a#1", true)]).await;
    assert_eq!(back, ["b#1"], "a node that has Redis again does not take the lead");
    assert_eq!(in_order(&scratch).await, ["b", "c", "a"]);
}

/// It died while Postgres's clock was ahead.
#[tokio::test]
async fn a_dead_node_whose_row_is_ahead_of_the_clock_does_not_lead_and_does_not_live() {
    let scratch = Scratch::new().await;
    scratch
        .sql("insert into refundd.nodes (node, version, channels, config_digest, started_at, seen_at)
              values ('dead#1', '0', '{acme,globex}', 'd', now() - interval '1 day', now() + interval '1 hour')")
        .await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    // The due poller of the leading node finds what nobody announced.
    scratch.insert("acme", "R-", 1).await;
    until("the refund is sent", async || scratch.count(State::Succeeded).await == 1).await;
    let nodes = scratch.store.nodes().await.unwrap();
    let living: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.lives)).collect();
    assert_eq!(living, [("a", true), ("dead", false)]);
    assert!(scratch.store.is_run(Some("acme")).await.unwrap());
    assert!(!scratch.store.is_run(Some("globex")).await.unwrap());
    let census = scratch.store.census().await.unwrap();
    assert!(!census[0].run_by.iter().any(|node| node.starts_with("dead")), "{census:?}");
    node.stop().await;
}

const LOOKS_DEAD: &str = "4 seconds";

/// A node of which only the heartbeat runs.
struct BareNode {
    node: Node,
    heartbeat: JoinHandle<()>,
}

impl BareNode {
    fn start(scratch: &Scratch, name: &str) -> BareNode {
        let node = Node::new(name, scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
        let heartbeat = tokio::spawn(Heartbeat::new(node.clone(), BucketKind::Redis).run());
        BareNode { node, heartbeat }
    }

    /// How often the node told its loops that another node has left.
    fn departures(&self) -> u64 {
        *self.node.departures.borrow()
    }

    /// Stops the heartbeat as a crash does: the row stays.
    async fn die(self) {
        self.node.stop.cancel();
        self.heartbeat.await.unwrap();
    }
}

/// Two nodes, each of which has seen the other.
async fn two_nodes(scratch: &Scratch) -> (BareNode, BareNode) {
    let nodes = (BareNode::start(scratch, "a"), BareNode::start(scratch, "b"));
    until("each has seen the other", async || {
        let seen =
            "select count(*) from refundd.nodes where seen_at > (select max(started_at) from refundd.nodes)";
        scratch.number("select count(*) from refundd.nodes").await == 2 && scratch.number(seen).await == 2
    })
    .await;
    nodes
}

/// Postgres takes no heartbeat until the rows of all nodes are so old. Answers when that ended.
async fn outage(scratch: &Scratch, age: &str) -> String {
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.nodes in exclusive mode").await.unwrap();
    until("all rows are old", async || {
        let young = format!("select count(*) from refundd.nodes where seen_at > now() - interval '{age}'");
        scratch.number(&young).await == 0
    })
    .await;
    let end = scratch.text("select now()::text").await;
    lock.rollback().await.unwrap();
    end
}

#[tokio::test]
async fn nodes_take_no_living_node_for_gone_after_postgres_stood_still() {
    let scratch = Scratch::new().await;
    let (a, b) = two_nodes(&scratch).await;
    let end = outage(&scratch, LOOKS_DEAD).await;
    // Six seconds after its first heartbeat each node compares again.
    let later = format!(
        "select count(*) from refundd.nodes where seen_at > '{end}'::timestamptz + interval '12 seconds'"
    );
    until("both have compared again", async || scratch.number(&later).await == 2).await;
    assert_eq!((a.departures(), b.departures()), (0, 0));
    let left = Arc::clone(&b.node.name);
    b.die().await;
    scratch.store.leave(&left).await.unwrap();
    until("the other node sees that one has left", async || a.departures() > 0).await;
    a.die().await;
}

#[tokio::test]
async fn a_node_that_died_while_postgres_stood_still_is_noticed_soon_after() {
    let scratch = Scratch::new().await;
    let (a, b) = two_nodes(&scratch).await;
    b.die().await;
    outage(&scratch, LOOKS_DEAD).await;
    until("the other node sees that one has left", async || a.departures() == 1).await;
    a.die().await;
}

/// While it counts anew, a node neither publishes its limits again nor retires channels.
#[tokio::test]
async fn a_node_whose_heartbeat_was_late_counts_anew_for_how_long_it_has_led() {
    let scratch = Scratch::new().await;
    let a = BareNode::start(&scratch, "a");
    let has_led = |least: Duration| a.node.leads_for().is_some_and(|led| led >= least);
    until("it leads", async || has_led(Duration::from_secs(2))).await;
    // The statement does not fail: it may take 3.5 s.
    outage(&scratch, "2.5 seconds").await;
    until("it counts anew", async || a.node.leads() && !has_led(Duration::from_secs(2))).await;
    a.die().await;
}
