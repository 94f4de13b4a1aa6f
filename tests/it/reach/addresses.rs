//! The addresses to which a bank's name may lead.

use refundd::refund::State;

use super::{PERMITS, at, failures};
use crate::harness::{Scratch, TestNode, until};

/// `127.1` is a name for Rust and an address for DNS: people write it so to get past a check of the text.
#[tokio::test]
async fn a_name_that_leads_to_an_address_that_is_not_public_and_not_named_is_sent_nothing() {
    let scratch = Scratch::new().await;
    let port = scratch.bank.address().port();
    let acme = |more: &str| at(&format!("127.1:{port}"), &format!("plain_http = \"accepted\"\n{more}"));
    let node = TestNode::start(&scratch, "a", &acme("")).await;
    scratch.insert("acme", "R-", 3).await;
    until("the channel says which address it does not use", async || {
        node.get("/v1/channels")
            .await
            .text
            .contains("its address 127.0.0.1 is this host; name its range in `addresses`")
    })
    .await;
    assert!(failures(&node).await > 0);
    assert_eq!(scratch.number(PERMITS).await, 0);
    let reload = async |more: &str| node.daemon.reload(scratch.config("a", &acme(more))).await.unwrap();
    reload("addresses = [\"10.0.0.0/8\"]\n").await;
    until("the file names other addresses", async || {
        node.get("/v1/channels").await.text.contains("its address 127.0.0.1 is not in `addresses`")
    })
    .await;
    assert!(scratch.bank.ledger().all().is_empty());
    reload("addresses = [\"10.0.0.0/8\", \"127.0.0.0/8\"]\n").await;
    until("all are paid", async || scratch.count(State::Succeeded).await == 3).await;
    node.stop().await;
}
