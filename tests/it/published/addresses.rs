//! The addresses of banks after a failover that lost them: each refund keeps the place where it was sent.

use std::time::Duration;

use playground::PretendBank;
use refundd::refund::State;

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until, within};

/// As a failover does to a standby that had received none of these addresses.
async fn lose_addresses(scratch: &Scratch, which: &str) {
    scratch
        .sql(&format!(
            "do $$ begin
                 alter table refundd.addresses disable trigger addresses_are_never_changed;
                 delete from refundd.addresses where {which};
                 alter table refundd.addresses enable trigger addresses_are_never_changed;
                 update refundd.channels set address = (select min(address) from refundd.addresses);
             end $$"
        ))
        .await;
}

#[tokio::test]
async fn what_is_sent_after_a_failover_that_lost_a_move_is_known_to_be_at_the_new_address() {
    let (scratch, new) = (Scratch::new().await, PretendBank::start_here().unwrap());
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let moved = UNLIMITED.replace("{bank}", &new.address().to_string());
    node.daemon.reload(scratch.config("a", &moved)).await.unwrap();
    let is_new = format!("endpoint = 'http://{}/acme/refunds'", new.address());
    lose_addresses(&scratch, &is_new).await;
    scratch.insert("acme", "R-", 5).await;
    until("all are paid", async || scratch.count(State::Succeeded).await == 5).await;
    assert_eq!((scratch.bank.ledger().all().len(), new.ledger().all().len()), (0, 5));
    let known = format!(
        "select count(*) from refundd.refunds r join refundd.addresses a on a.address = r.sent_to where a.{is_new}"
    );
    assert_eq!(scratch.number(&known).await, 5, "a null would stand for the old address");
    node.stop().await;
}

#[tokio::test]
async fn a_node_whose_row_went_back_adds_its_addresses_again_before_it_claims() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    lose_addresses(&scratch, "true").await;
    // The leading node would publish everything anew after 20 s. A heartbeat that writes the whole row for another reason does not see
    // that it went back, so it goes back again.
    within(Duration::from_secs(15), "the address is known again", async || {
        scratch.sql("update refundd.nodes set config_digest = 'of an older file'").await;
        scratch.number("select count(*) from refundd.addresses").await == 1
    })
    .await;
    node.stop().await;
}
