//! A reload by which other limits count the requests of a channel says what to do about it.

use rustix::process::Signal;

use super::limited;
use crate::harness::{NodeProcess, Scratch};

#[tokio::test]
async fn a_reload_that_renames_a_limit_warns_that_its_budget_is_fresh() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", &limited(100));
    let has_advice =
        |node: &NodeProcess| node.log().iter().any(|line| line.contains("of channel `acme` change"));
    node.rewrite(&scratch.file("a", &limited(50)));
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again and in force");
    assert!(!has_advice(&node), "{:#?}", node.log());
    let renamed = limited(50).replace("limit.acme", "limit.bank").replace("[\"acme\"]", "[\"bank\"]");
    node.rewrite(&scratch.file("a", &renamed));
    node.signal(Signal::HUP);
    node.wait_for_line("Sends of channel `acme` change from `acme` to `bank`");
}

#[tokio::test]
async fn a_reload_to_and_from_an_unlimited_limit_warns_that_its_budget_is_fresh() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", &limited(100));
    node.rewrite(&scratch.file("a", &limited(100).replace("permits = 100", "permits = -1")));
    node.signal(Signal::HUP);
    node.wait_for_line("Sends of channel `acme` change from `acme` to no limit");
    node.rewrite(&scratch.file("a", &limited(100)));
    node.signal(Signal::HUP);
    node.wait_for_line("Sends of channel `acme` change from no limit to `acme`");
}
