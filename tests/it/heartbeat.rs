//! Which node leads.

use refundd::bucket::BucketKind;
use refundd::store::Liveness;

use crate::harness::Scratch;

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
