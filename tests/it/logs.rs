//! Log lines and metrics say what became of refunds, in the same form everywhere.

use playground::bank::Step;
use refundd::refund::State;
use rustix::process::Signal;
use serde_json::Value;

use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, until};

#[tokio::test]
async fn every_duration_in_the_log_is_a_number() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::too_many(1)]);
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    scratch.insert("acme", "R-", 1).await;
    node.wait_for_line("cools for");
    until("it is paid", async || scratch.count(State::Succeeded).await == 1).await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let mut seen = 0;
    for line in node.log() {
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        for (field, value) in line.as_object().unwrap().iter().filter(|(field, _)| field.ends_with("_ms")) {
            seen += 1;
            assert!(value.is_number(), "{field}: {line}");
        }
    }
    assert!(seen >= 4, "cooling, two attempts and the stop: {:#?}", node.log());
}
