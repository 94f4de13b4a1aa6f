//! Redis's clock under fast correction, read by nodes that ask often.

use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::{Bucket, End, Order, SimulatedServer, Take};
use refundd::limiter::LedgerCount;
use refundd::refund::RefundId;

use super::clock::Clock;
use super::machine::on_a_runtime;
use super::redis::{Link, Redis};
use super::{plan, world};

/// Between two takes the clock moves too far by less than a reading may be wrong.
#[test]
fn a_fast_slew_of_redis_clock_lets_no_more_permits_out() {
    let file = plan::read(
        "[limit.l]\nalgorithm = \"paced\"\npermits = 20\nper = \"1s\"\nahead = \"0ms\"\n[channel.c0]\nendpoint = \"http://127.0.0.1:9/\"\nlimits = [\"l\"]\n",
    );
    let channel = &file[0];
    for nodes in [1, 3] {
        let clock = Clock::new();
        let redis = Arc::new(Redis::new(&clock));
        let nodes: Vec<Bucket> = (0..nodes)
            .map(|_| {
                let link: Arc<dyn SimulatedServer> = Arc::new(Link::new(&redis, false, 0));
                Bucket::simulated(link, world::node::TOLERANCE).unwrap()
            })
            .collect();
        on_a_runtime(async {
            let ids: Vec<_> = (1..=200).map(RefundId).collect();
            let order = Order { want: 1, low_water: 0, lead_time: Duration::ZERO, until: None };
            nodes[0].fill(&channel.name, &ids, End::Back, 1_000).await.unwrap();
            assert!(matches!(nodes[0].take(channel, order).await.unwrap(), Take::Forgot(_)));
            let none = LedgerCount { generation: 1, ..LedgerCount::default() };
            nodes[0].restore(&channel.limits[0], &none).await.unwrap();
            let mut granted: Vec<i64> = Vec::new();
            for tick in 0..2_000 {
                if (400..1_600).contains(&tick) {
                    redis.step_clock(417); // a twelfth of 5 ms
                }
                let node = &nodes[tick % nodes.len()];
                if let Take::Granted { taken, .. } = node.take(channel, order).await.unwrap() {
                    granted.extend(taken.iter().map(|_| clock.now()));
                }
                clock.pass(5_000);
            }
            let most = granted
                .iter()
                .map(|from| granted.iter().filter(|at| (*from..from + 1_000_000).contains(at)).count())
                .max();
            assert!(most <= Some(20), "{most:?} of 20 within a second, with {} nodes", nodes.len());
            let after = granted.iter().filter(|at| **at >= 9_000_000).count();
            assert!(after >= 19, "{after} in the second after the slew");
        });
    }
}
