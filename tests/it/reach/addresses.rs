//! The addresses to which a bank's name may lead.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use playground::bank::Step;
use playground::forward::Forward;
use playground::{Authority, PretendBank, PrivateRedis, RedisOptions, Silent};
use refundd::refund::State;

use super::{PERMITS, at, failures};
use crate::harness::servers::SERVERS;
use crate::harness::{NodeProcess, Scratch, TestNode, until, within};

/// With these hosts `localhost` has two addresses.
pub(super) const TWO: &str = "127.0.0.1 localhost\n127.0.0.2 localhost\n";

fn second(first: SocketAddr) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], first.port()))
}

/// A scratch whose Redis has a TCP port.
async fn scratch() -> (Scratch, PrivateRedis) {
    let redis =
        PrivateRedis::start_with(&RedisOptions { tcp: true, ..RedisOptions::default() }).await.unwrap();
    (Scratch::with_redis(redis.tcp_url().unwrap()).await, redis)
}

/// A node for which `localhost` has two addresses, and its way to Postgres.
fn node(scratch: &Scratch, channel: &str) -> (NodeProcess, Forward) {
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let text = scratch.file("a", channel).replace(&scratch.database_url, &around);
    let node = NodeProcess::spawn_with_hosts(&text, TWO, None);
    node.wait_for_line("HTTP on");
    (node, way)
}

async fn all_are_paid(scratch: &Scratch, count: u32) {
    scratch.insert("acme", "R-", count).await;
    within(Duration::from_secs(30), "all are paid", async || {
        scratch.count(State::Succeeded).await == i64::from(count)
    })
    .await;
    assert!(scratch.bank.ledger().repeated().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_whose_names_first_address_is_silent_is_sent_refunds_at_the_second() {
    let silent = Silent::open().await.unwrap();
    let (mut scratch, _redis) = scratch().await;
    scratch.bank = PretendBank::start(second(silent.address)).unwrap();
    let channel = at(&format!("localhost:{}", silent.address.port()), "");
    let (node, _way) = node(&scratch, &channel);
    all_are_paid(&scratch, 60).await;
    drop(node);
}

/// TCP works at the first address, so that it wins each race.
#[tokio::test(flavor = "multi_thread")]
async fn a_bank_whose_names_first_address_hangs_in_tls_is_sent_refunds_at_the_second() {
    let silent = Silent::open().await.unwrap();
    let first = silent.address;
    let (mut scratch, _redis) = scratch().await;
    let authority = Authority::new().unwrap();
    scratch.bank = PretendBank::start_secure(second(first), authority.identity().unwrap()).unwrap();
    let channel = at(&format!("localhost:{}", first.port()), "connect_timeout = \"1s\"\n");
    let ca_file = format!("ca_file = {:?}\nendpoint = \"https://", authority.file());
    let channel = channel.replace("endpoint = \"http://", &ca_file);
    let accepted = silent.accept();
    let (node, _way) = node(&scratch, &channel);
    all_are_paid(&scratch, 20).await;
    assert!(accepted.load(Ordering::Relaxed) > 0, "the first address was tried");
    drop(node);
}

/// The connection opens at the first address, and then no request is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_bank_whose_names_first_address_never_answers_is_sent_the_next_refunds_at_the_second() {
    let silent = Silent::open().await.unwrap();
    let first = silent.address;
    let (mut scratch, _redis) = scratch().await;
    scratch.bank = PretendBank::start(second(first)).unwrap();
    let one_by_one = "timeout = \"1s\"\nmax_in_flight = 1\n";
    let channel = at(&format!("localhost:{}", first.port()), one_by_one);
    let accepted = silent.accept();
    let (node, _way) = node(&scratch, &channel);
    scratch.insert("acme", "R-", 20).await;
    within(Duration::from_mins(1), "all but the first are paid", async || {
        scratch.count(State::Succeeded).await >= 19
    })
    .await;
    assert!(accepted.load(Ordering::Relaxed) > 0, "the first address was tried");
    drop(node);
}

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

/// An inquiry has the refund's ids, and its answer decides about money, so the rules of the endpoint hold for its address.
#[tokio::test]
async fn an_inquiry_at_an_address_that_is_not_public_and_not_named_is_never_made() {
    let scratch = Scratch::new().await;
    let bank = scratch.bank.address();
    let acme = |more: &str| {
        let asks = format!(
            "plain_http = \"accepted\"\non_unknown = \"inquire\"\n\
             inquiry = {{ url = \"http://127.1:{}/acme/refunds/{{request_id}}\" }}\n{more}",
            bank.port()
        );
        at(&bank.to_string(), &asks)
    };
    let node = TestNode::start(&scratch, "a", &acme("")).await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.insert("acme", "R-", 1).await;
    until("it is unknown", async || scratch.count(State::Unknown).await == 1).await;
    let permits = scratch.number(PERMITS).await;
    let is_due = "update refundd.refunds set inquire_at = now() where inquire_at is not null";
    scratch.sql(is_due).await;
    until("the channel says which address it does not use", async || {
        let why = "its address 127.0.0.1 is this host; name its range in `addresses`";
        node.get("/v1/channels").await.text.contains(why)
    })
    .await;
    assert_eq!(scratch.bank.ledger().inquiries("acme").count(), 0);
    assert_eq!(scratch.number(PERMITS).await, permits, "a permit that cannot be used is not spent");
    node.daemon.reload(scratch.config("a", &acme("addresses = [\"127.0.0.0/8\"]\n"))).await.unwrap();
    until("the bank is asked and says that it paid", async || scratch.count(State::Succeeded).await == 1)
        .await;
    assert_eq!(
        (scratch.bank.ledger().inquiries("acme").count(), scratch.bank.ledger().repeated().len()),
        (1, 0)
    );
    node.stop().await;
}
