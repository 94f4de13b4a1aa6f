//! No connection to a bank can be opened, to send or to ask.

use std::time::Duration;

use playground::bank::Step;
use playground::forward::Forward;
use playground::{Authority, PretendBank};
use refundd::refund::State;

use super::watch::Watch;
use super::{LIMITED, health_says, healthy, status_says};
use crate::harness::{NodeProcess, Scratch, TestNode, until};
use crate::tokens::{acme, desk};

/// One bank that cannot be reached: where it is, and what `status` says of it.
async fn is_unreachable(scratch: &Scratch, channels: &str, said: &str) {
    let node = TestNode::start(scratch, "a", channels).await;
    let mut watch = Watch::on([&node]);
    watch.is_quiet().await;
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddBankUnreachable").await;
    // The node can do its work: it saves refunds, and sends those of other channels.
    health_says(&node, 200, "\"ready\"").await;
    status_says(scratch, channels, &["unreachable", "acme is unreachable from node a: failed to", said])
        .await;
    assert_eq!(scratch.count(State::Ready).await, 5);
    node.stop().await;
}

#[tokio::test]
async fn a_dead_bank() {
    let scratch = Scratch::new().await;
    is_unreachable(&scratch, &LIMITED.replace("{bank}", "127.0.0.1:1"), "Connection refused").await;
}

#[tokio::test]
async fn a_bank_whose_certificate_is_over() {
    let mut scratch = Scratch::over(true).await;
    let identity = scratch.authority.as_ref().unwrap().expired_identity().unwrap();
    scratch.bank =
        PretendBank::start_secure(std::net::SocketAddr::from(([127, 0, 0, 1], 0)), identity).unwrap();
    is_unreachable(&scratch, LIMITED, "certificate expired").await;
}

#[tokio::test]
async fn a_bank_whose_certificate_is_of_an_unknown_authority() {
    let mut scratch = Scratch::over(true).await;
    let identity = Authority::new().unwrap().identity().unwrap();
    scratch.bank =
        PretendBank::start_secure(std::net::SocketAddr::from(([127, 0, 0, 1], 0)), identity).unwrap();
    is_unreachable(&scratch, LIMITED, "agree on TLS").await;
}

#[tokio::test]
async fn the_beginning_and_the_end_of_an_unreachable_bank_are_logged_once_with_the_reason() {
    let scratch = Scratch::new().await;
    let way = Forward::to(playground::forward::Target::Tcp(scratch.bank.address())).unwrap();
    way.set(playground::Weather::Closed);
    let node = NodeProcess::start(&scratch, "a", &LIMITED.replace("{bank}", &way.address().to_string()));
    scratch.insert("acme", "R-", 1).await;
    node.wait_for_line("is unreachable from this node");
    let page = async || {
        let address = node.address().unwrap().parse().unwrap();
        crate::harness::http::get(address, "/metrics").await.map_or_else(String::new, |(_, page)| page)
    };
    until("it was tried several times", async || {
        let failures = |line: &&str| line.starts_with("refundd_bank_connect_failures_total{");
        let page = page().await;
        let found = page.lines().find(failures).and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok());
        found.is_some_and(|failures| failures >= 3)
    })
    .await;
    way.set(playground::Weather::Fair);
    node.wait_for_line("can be reached again");
    let log = node.log();
    let of_bank: Vec<&String> =
        log.iter().filter(|line| line.contains("unreachable from this node")).collect();
    assert_eq!(of_bank.len(), 1, "{of_bank:?}");
    assert!(of_bank[0].contains("\"WARN\"") && of_bank[0].contains("refused"), "{}", of_bank[0]);
}

#[tokio::test]
async fn a_bank_whose_name_leads_nowhere() {
    let scratch = Scratch::new().await;
    let channels = format!("{LIMITED}plain_http = \"accepted\"\n");
    is_unreachable(&scratch, &channels.replace("{bank}", "bank.invalid"), "bank.invalid").await;
}

#[tokio::test]
async fn a_bank_at_an_address_that_the_file_does_not_name() {
    let scratch = Scratch::new().await;
    let channels = format!("{LIMITED}plain_http = \"accepted\"\naddresses = [\"10.0.0.0/8\"]\n");
    // `127.1` is a name for Rust and an address for DNS.
    let at = format!("127.1:{}", scratch.bank.address().port());
    is_unreachable(&scratch, &channels.replace("{bank}", &at), "is not in `addresses`").await;
}

#[tokio::test]
async fn a_bank_whose_token_server_is_down() {
    let (scratch, folder) = desk(Duration::from_mins(5)).await;
    scratch.bank.next_tokens(vec![Step::answers(503, ""); 1000]);
    is_unreachable(&scratch, &acme(&folder, 50), "get a token from").await;
}

/// Refunds are sent, and nobody can be asked about those whose outcome is unknown.
#[tokio::test]
async fn a_bank_whose_inquiry_address_is_dead() {
    let scratch = Scratch::new().await;
    let asks = "on_unknown = \"inquire\"\ninquiry = { url = \"http://127.0.0.1:1/{request_id}\" }\n";
    let channels = format!("{LIMITED}{asks}");
    let (node, mut watch) = healthy(&scratch, &channels).await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.insert("acme", "R-", 1).await;
    until("it is unknown", async || scratch.count(State::Unknown).await == 1).await;
    scratch.sql("update refundd.refunds set inquire_at = now() where inquire_at is not null").await;
    watch.fires("RefunddBankUnreachable").await;
    let page = node.get("/metrics").await.text;
    for (purpose, connected) in [("send", 1), ("inquire", 0)] {
        let line = format!("refundd_bank_connected{{channel=\"acme\",purpose=\"{purpose}\"}} {connected}\n");
        assert!(page.contains(&line), "{line} is missing: {page}");
    }
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, &channels, &["acme: its bank cannot be asked from node a", "Connection refused"])
        .await;
    node.stop().await;
}
