//! A proxy before the bank that accepts every connection, and closes it when it cannot reach the bank, as stunnel and `HAProxy` do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use refundd::refund::State;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::{PERMITS, failures};
use crate::harness::{Scratch, TestNode, until, within};

#[tokio::test]
async fn a_bank_away_behind_a_proxy_that_accepts_and_closes_later_is_unreachable_and_spends_few_permits() {
    let scratch = Scratch::new().await;
    let bank = scratch.bank.address();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let up = Arc::clone(&up);
            tokio::spawn(async move {
                if !up.load(Ordering::Relaxed) {
                    return tokio::time::sleep(Duration::from_millis(100)).await;
                }
                let Ok(mut bank) = TcpStream::connect(bank).await else { return };
                copy_bidirectional(&mut stream, &mut bank).await.ok();
            });
        }
    });
    let channels = format!(
        "[limit.acme]\nalgorithm = \"paced\"\npermits = 5\nper = \"1s\"\nlateness = \"50ms\"\n[channel.acme]\nendpoint = \"http://{address}/acme/refunds\"\nlimits = [\"acme\"]\nbreaker = {{ unreachable = 3 }}\n"
    );
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 10).await;
    until("it was tried several times", async || failures(&node).await >= 5).await;
    let spent = scratch.number(PERMITS).await;
    assert!(spent <= 2, "{spent} permits were spent");
    let channel = node.get("/v1/channels").await.json()["channels"][0].clone();
    assert!(channel["bank"]["unreachable"].is_string(), "{channel}");
    let kinds = "select coalesce(string_agg(kind, ', ' order by event_id), '') from refundd.events where kind like 'bank_%'";
    until("it is one event", async || scratch.text(kinds).await == "bank_unreachable").await;
    is_up.store(true, Ordering::Relaxed);
    // A busy machine may have spent another one meanwhile.
    let spent = scratch.number(PERMITS).await;
    let took =
        within(Duration::from_secs(10), "it works again", async || scratch.count(State::Succeeded).await > 0)
            .await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    until("the rest is sent", async || scratch.count(State::Succeeded).await >= 10 - spent).await;
    until("its end is an event", async || scratch.text(kinds).await == "bank_unreachable, bank_reached")
        .await;
    node.stop().await;
}
