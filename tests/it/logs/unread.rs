//! A standard output that nobody reads stops no refund.

use std::net::SocketAddr;
use std::time::Duration;

use refundd::refund::State;
use rustix::process::Signal;
use serde_json::Value;

use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, http, until, within};

/// The lines that the node counts as lost.
async fn lost(address: SocketAddr) -> u64 {
    let (_, page) = http::get(address, "/metrics").await.unwrap();
    let sample = page.lines().find_map(|line| line.strip_prefix("refundd_log_lines_lost_total "));
    sample.unwrap_or_else(|| panic!("the metric is missing: {page}")).parse().unwrap()
}

#[tokio::test]
async fn a_node_whose_output_nobody_reads_sends_every_refund_and_stops() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    let address = node.address().unwrap().parse().unwrap();
    node.leave_unread(true);
    // The lines of their outcomes are several times what a pipe holds.
    scratch.insert("acme", "R-", 2000).await;
    until("they are paid", async || scratch.count(State::Succeeded).await == 2000).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 2000);
    assert_eq!(lost(address).await, 0);
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

#[tokio::test]
async fn lines_that_find_no_room_are_counted_and_the_log_says_how_many_when_it_is_read_again() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    let address = node.address().unwrap().parse().unwrap();
    node.leave_unread(true);
    // A reload that is refused logs every fault: more than a megabyte.
    let faulty = (0..10_000).fold("[node]\n".to_owned(), |text, n| text + &format!("fault_{n} = 1\n"));
    node.rewrite(&faulty);
    within(Duration::from_mins(3), "lines are lost", async || {
        node.signal(Signal::HUP);
        lost(address).await > 0
    })
    .await;
    scratch.insert("acme", "R-", 100).await;
    until("the node sends all the same", async || scratch.count(State::Succeeded).await == 100).await;
    node.leave_unread(false);
    node.wait_for_line("lines of the log were lost");
    let lost = lost(address).await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let is_whole =
        |line: &String| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let log: Vec<Value> = node.log().iter().map(is_whole).collect();
    let said: u64 = log.iter().filter_map(|line| line["lost"].as_u64()).sum();
    assert_eq!(said, lost);
    assert_eq!(log.last().unwrap()["message"], "Stopped");
}
