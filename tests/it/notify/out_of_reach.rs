//! A node that alone cannot reach the receiver leaves the deliveries to others, and a lone node goes on by itself.

use std::sync::Arc;
use std::time::Duration;

use playground::Authority;
use playground::bank::Step;
use refundd::bank::Webhook;
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::notify::{LeasePatience, Notifier};
use refundd::refund::State;
use tokio::task::JoinHandle;

use super::{are_in_order, changes, delivers};
use crate::dispatch::UNLIMITED;
use crate::harness::{Receiver, Scratch, TestNode, until};

const SOON: LeasePatience = LeasePatience { keeps: Duration::from_secs(2), rests: Duration::from_secs(3) };

/// The loop that delivers, of a node that does nothing else.
fn notifier(scratch: &Scratch, section: &str) -> (Node, JoinHandle<()>) {
    let config = scratch.config("a", &format!("{UNLIMITED}{section}"));
    let webhook = Webhook::new(&config.notify.unwrap()).unwrap();
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    let runs = tokio::spawn(Notifier::new(node.clone(), webhook, SOON).run());
    (node, runs)
}

#[tokio::test]
async fn a_node_that_alone_cannot_reach_the_receiver_gives_the_lease_to_one_that_can() {
    let scratch = Scratch::new().await;
    let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let receiver = Receiver::start(Some(&authority));
    let section = receiver.section();
    let foreign =
        section.replace(&authority.file().display().to_string(), &other.file().display().to_string());
    let (cut_off, runs) = notifier(&scratch, &foreign);
    delivers(&scratch).await;
    let node = TestNode::start(&scratch, "b", &format!("{UNLIMITED}{section}")).await;
    // Each of these has two changes: unknown and review.
    scratch.bank.next("acme", vec![Step::pays_but_says_500(); 10]);
    scratch.insert("acme", "R-", 40).await;
    until("all are sent", async || {
        scratch.count(State::Succeeded).await == 30 && scratch.count(State::Review).await == 10
    })
    .await;
    until("all are delivered", async || receiver.taken() == changes(&scratch).await).await;
    assert!(scratch.text("select delivered_by from refundd.feed").await.starts_with("b#"));
    are_in_order(&receiver.arrivals());
    assert_eq!(receiver.arrivals().len(), 50, "each once");
    cut_off.stop.cancel();
    runs.await.unwrap();
    node.stop().await;
}

#[tokio::test]
async fn a_lone_node_takes_the_lease_again_and_delivers_when_the_receiver_is_back() {
    let scratch = Scratch::new().await;
    let receiver = Receiver::start(None);
    let (alone, runs) = notifier(&scratch, &receiver.section());
    delivers(&scratch).await;
    let node = TestNode::start(&scratch, "b", UNLIMITED).await;
    let given_back = "select count(*) from refundd.feed where leased_until <= now()";
    receiver.answers(503);
    scratch.insert("acme", "R-", 20).await;
    until("it gives the lease back to a receiver that refuses all", async || {
        scratch.number(given_back).await == 1
    })
    .await;
    receiver.kill();
    delivers(&scratch).await;
    until("it gives the lease back as it reaches nobody", async || scratch.number(given_back).await == 1)
        .await;
    receiver.answers(200);
    receiver.revive();
    until("all are delivered", async || receiver.taken() == changes(&scratch).await).await;
    are_in_order(&receiver.arrivals());
    assert_eq!(receiver.taken().len(), 20);
    alone.stop.cancel();
    runs.await.unwrap();
    node.stop().await;
}
