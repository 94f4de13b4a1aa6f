//! Prefetched ids: a worker takes them while a claim commits, before it has slots for them.

use std::time::Duration;

use playground::bank::Step;
use refundd::bucket::Purpose;
use refundd::refund::{ChannelName, State};

use super::{UNLIMITED, ends_as};
use crate::harness::{Scratch, TestNode, depth, until, within};

#[tokio::test]
async fn prefetched_ids_go_back_to_their_place_when_no_slot_becomes_free() {
    let scratch = Scratch::new().await;
    let answers_after = Duration::from_secs(15);
    scratch.bank.next("acme", (0..8).map(|_| Step::pays().after(answers_after)));
    let channels = UNLIMITED.replace("timeout = \"10s\"", "timeout = \"60s\"");
    let node = TestNode::start(&scratch, "a", &format!("{channels}max_in_flight = 8\n")).await;
    scratch.insert("acme", "A-", 3).await;
    until("three are in flight", async || scratch.bank.look(|ledger| ledger.all().len()) == 3).await;
    // Five slots are free, so three ids are prefetched, and then no slot becomes free.
    scratch.insert("acme", "B-", 30).await;
    let acme = ChannelName::new("acme").unwrap();
    within(answers_after / 2, "the other 25 are in the bucket", async || {
        scratch.bank.look(|ledger| ledger.all().len()) == 8
            && depth(&scratch.bucket(), Purpose::Send, &acme).await == 25
    })
    .await;
    // Ids that are not put back are filled in a second time, 2 s later.
    let metrics = node.get("/metrics").await.text;
    assert!(metrics.contains("refundd_fed_total{channel=\"acme\"} 33\n"), "{metrics}");
    ends_as(&scratch, State::Succeeded, 33).await;
    let ledger = scratch.bank.ledger();
    assert!(ledger.repeated().is_empty() && ledger.all().len() == 33);
    let mut next: Vec<String> =
        ledger.all()[8..16].iter().map(|arrival| arrival.refund_ref.to_string()).collect();
    next.sort_by_key(|name| name.trim_start_matches("B-").parse::<u32>().unwrap());
    let expected: Vec<String> = (6..14).map(|n| format!("B-{n}")).collect();
    assert_eq!(next, expected, "prefetched ids keep their places");
    node.stop().await;
}
