//! Nothing is sent through a channel: its bank is away, or the channel may not send.

use playground::bank::Step;
use playground::forward::{Distance, Forward};
use playground::{Authority, PretendBank};
use refundd::config::Config;
use refundd::refund::State;
use std::time::Duration;

use super::watch::Watch;
use super::{LIMITED, health_says, healthy, status_says};
use crate::harness::servers::SERVERS;
use crate::harness::{NodeProcess, Scratch, TestNode, until};

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
async fn a_channel_that_is_paused() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    // A channel that was retired while it was paused wakes nobody.
    scratch.publish("retired").await;
    scratch.pause("retired", "it is not needed any more", "ann").await;
    until("the metrics have it", async || {
        node.get("/metrics").await.text.contains("refundd_channel_paused{channel=\"retired\"} 1")
    })
    .await;
    watch.is_quiet().await;
    scratch.pause("acme", "bank closes", "ann").await;
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddChannelPaused").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, LIMITED, &["paused", "acme is paused by ann", "bank closes"]).await;
    scratch.resume("acme").await;
    watch.is_quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn a_channel_whose_breaker_tripped() {
    let scratch = Scratch::new().await;
    let channels = format!("{LIMITED}breaker = {{ rejected = 3, probe = \"1h\" }}\n");
    let (node, mut watch) = healthy(&scratch, &channels).await;
    scratch.bank.then("acme", Step::rejects());
    scratch.insert("acme", "R-", 40).await;
    watch.fires("RefunddBreakerOpen").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, &channels, &["breaker", "acme is suspended by its breaker since", "HTTP 422"])
        .await;
    node.stop().await;
}

#[tokio::test]
async fn a_channel_that_cools_again_and_again() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.bank.then("acme", Step::too_many(60));
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddChannelCooling").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, LIMITED, &["cooling", "acme cools until"]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_bank_that_asks_to_wait_for_a_moment_at_every_request() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.bank.then("acme", Step::too_many(1));
    scratch.insert("acme", "R-", 20).await;
    watch.fires("RefunddBankAcceptsNothing").await;
    scratch.bank.then("acme", Step::pays());
    watch.ends("RefunddBankAcceptsNothing").await;
    node.stop().await;
}

#[tokio::test]
async fn a_channel_that_no_node_runs() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let node = TestNode::start(&scratch, "a", &LIMITED.replace("acme", "globex")).await;
    let mut watch = Watch::on([&node]);
    // Nothing waits for it.
    watch.is_quiet().await;
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddChannelNotRun").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, LIMITED, &["not run", "acme: no living node runs it"]).await;
    node.stop().await;
}

/// Claims take longer than permits live.
#[tokio::test]
async fn permits_that_lapse_one_after_the_other() {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let (there, back) = (Duration::from_millis(30), Duration::from_millis(30));
    way.set_distance(Distance { set_up: Duration::ZERO, there, back, jitter: Duration::ZERO });
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let channels = LIMITED
        .replace("permits = 50", "permits = 5\nalgorithm = \"sliding_log\"\nahead = \"1ms\"")
        .replace("100ms", "2ms");
    let text = scratch.file("a", &channels).replace(&scratch.database_url, &around);
    let config = Config::parse(&text, "t.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let node = TestNode::run(config).await;
    let mut watch = Watch::on([&node]);
    watch.is_quiet().await;
    scratch.insert("acme", "R-", 50).await;
    watch.fires("RefunddPermitsLapse").await;
    status_says(&scratch, &channels, &["acme: permits lapse on node a", "claims take"]).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_bank_that_gives_answers_without_a_rule() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    // The first such answer counts: its counter begins at 1.
    scratch.bank.next("acme", [Step::answers(507, "{}")]);
    scratch.insert("acme", "R-", 1).await;
    watch.fires("RefunddUnmappedAnswers").await;
    node.stop().await;
}
