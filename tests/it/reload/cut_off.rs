//! A file that is being written, or that was cut off before its channels, is not taken over.

use refundd::refund::State;
use rustix::process::Signal;

use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, until};

fn has_line(node: &NodeProcess, text: &str) -> bool {
    node.log().iter().any(|line| line.contains(text))
}

#[tokio::test]
async fn a_file_that_is_written_while_it_is_read_is_refused_and_taken_over_afterwards() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    let changed =
        scratch.file("a", &UNLIMITED.replace("timeout = \"10s\"\nconnect", "timeout = \"9s\"\nconnect"));
    let mut nth = 0;
    until("the file is refused", async || {
        nth += 1;
        node.rewrite(&format!("{changed}# {nth}\n"));
        // One signal is not enough: where the writes stop for 100 ms, that reload takes the file over.
        node.signal(Signal::HUP);
        has_line(&node, "changed while it was read")
    })
    .await;
    assert!(has_line(&node, "the old one stays in force"), "{:#?}", node.log());
    node.rewrite(&changed);
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again and in force: channel.acme changed");
}

#[tokio::test]
async fn a_file_without_any_channel_is_refused_and_the_channels_go_on() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    node.rewrite(&scratch.file("a", ""));
    node.signal(Signal::HUP);
    node.wait_for_line("the file has no [channel.NAME] any more");
    scratch.insert("acme", "R-", 3).await;
    until("it still pays", async || scratch.count(State::Succeeded).await == 3).await;
}
