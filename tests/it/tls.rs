//! Banks that speak TLS: by whom they are trusted, and that nothing leaves for others.

use playground::{Authority, PretendBank};
use refundd::refund::State;

use crate::harness::{Scratch, TestNode, until};

const ACME: &str = "[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = []\n\
                    retry = { base = \"10ms\", cap = \"20ms\", sends = 3 }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_is_paid_through_if_the_channels_own_roots_vouch_for_it() {
    let scratch = Scratch::over(true).await;
    let node = TestNode::start(&scratch, "a", ACME).await;
    scratch.insert("acme", "R-", 20).await;
    until("all are paid", async || scratch.count(State::Succeeded).await == 20).await;
    let ledger = scratch.bank.ledger();
    assert_eq!(ledger.all().len(), 20);
    assert!(ledger.repeated().is_empty() && ledger.unreadable().is_empty(), "{ledger:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_that_others_vouch_for_is_sent_nothing() {
    let mut scratch = Scratch::over(true).await;
    let stranger = Authority::new().unwrap();
    let here = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    scratch.bank = PretendBank::start_secure(here, stranger.identity().unwrap()).unwrap();
    let node = TestNode::start(&scratch, "a", ACME).await;
    scratch.insert("acme", "R-", 1).await;
    // No permit is asked for and no attempt is made without an open connection; the channel says why.
    until("the channel says that its bank cannot be trusted", async || {
        node.get("/v1/channels").await.text.contains("agree on TLS")
    })
    .await;
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 0);
    let ledger = scratch.bank.ledger();
    assert!(ledger.all().is_empty() && ledger.unreadable().is_empty(), "{ledger:?}");
    node.stop().await;
}
