//! How much a worker takes while the stricter rule of another node's file counts.

use std::net::TcpListener;

use super::*;
use crate::bank::Want;
use crate::bucket::Take;
use crate::limiter::LedgerCount;

/// As many slots and open connections as the channel may have in flight.
async fn all_resources<W: Work>(worker: &ChannelWorker<W>) -> Resources {
    let slots = worker.slots.take(50);
    let mut connections = Vec::new();
    while connections.len() < slots.len() {
        let missing = slots.len() - connections.len();
        let want = Want { most: missing, need: missing, until: Instant::now() };
        connections.extend(worker.connections.reserve(want).await.unwrap());
    }
    Resources { slots, connections }
}

#[tokio::test]
async fn under_a_stricter_rule_a_take_wants_no_more_than_the_own_rule_allows_in_its_per() {
    let bucket = Bucket::in_memory(Duration::from_secs(5)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let tables = format!(
        "[limit.acme]\npermits = 20\nper = \"1s\"\n\
         [channel.acme]\nendpoint = \"http://{address}/\"\nlimits = [\"acme\"]\nmax_in_flight = 50\n"
    );
    let (node, channel, bank) = node_and_bank_of(bucket.clone(), &tables);
    let (outbox, _inbox) = mpsc::channel(1);
    let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
    let mut worker = ChannelWorker::sends(node, wake_ups, Arc::clone(&channel), bank, outbox, stop);
    let ids: Vec<RefundId> = (1..=200).map(RefundId).collect();
    bucket.fill(&channel.name, &ids, End::Back, 200).await.unwrap();

    // Another node takes one refund under a rule with a lower rate, of which 50 permits are granted at once.
    let mut strict = channel.limits[0].as_ref().clone();
    (strict.rule.permits, strict.rule.per) = (1_000, Duration::from_hours(1));
    let other = Channel { limits: vec![Arc::new(strict)], ..channel.as_ref().clone() };
    let order = Order { want: 1, low_water: 0, lead_time: Duration::ZERO, until: None };
    let Take::Forgot(forgotten) = bucket.take(&other, order).await.unwrap() else { panic!() };
    let count = LedgerCount { generation: 1, window_start_us: forgotten.window.0, ..LedgerCount::default() };
    assert!(bucket.restore(&forgotten.limit, &count).await.unwrap());
    let taken = bucket.take(&other, order).await.unwrap();
    assert!(matches!(taken, Take::Granted { .. }), "{taken:?}");

    // The first take meets the rule, and the next one knows it. Postgres is away, so no claim brings a refund back.
    for left in [200 - 1 - 50, 200 - 1 - 50 - 20] {
        let resources = all_resources(&worker).await;
        assert!(worker.round(&channel, resources).await.is_err(), "the claim fails");
        assert_eq!(worker.depth, Some(left));
    }
}
