//! Banks that are far away, closed, or shut the door at once: a permit is asked for only with an open connection.

mod addresses;
mod events;
mod keep_alive;
mod one_answer_off;
mod postgres;
mod resumed;
mod roots;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::header::{CONNECTION, HeaderValue};
use playground::bank::Step;
use playground::forward::{Forward, Target, Weather};
use refundd::refund::State;
use refundd::store::{LookPlace, RecoveryLook};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::harness::{NodeProcess, Scratch, TestNode, one_try_succeeds, until, within};

const PERMITS: &str = "select count(*) from refundd.permits";

/// A door of the bank that speaks TLS and takes its time with each new connection.
struct Door {
    address: SocketAddr,
    /// Of the authority that nodes are to believe.
    certificate: tempfile::NamedTempFile,
    opened: Arc<AtomicU32>,
}

impl Door {
    async fn to(bank: SocketAddr, set_up: Duration) -> Door {
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(certificate.path(), issued.cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let opened = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&opened);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
                stream.set_nodelay(true).unwrap();
                tokio::spawn(async move {
                    tokio::time::sleep(set_up).await;
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    count.fetch_add(1, Ordering::Relaxed);
                    let Ok(mut bank) = TcpStream::connect(bank).await else { return };
                    bank.set_nodelay(true).unwrap();
                    copy_bidirectional(&mut stream, &mut bank).await.ok();
                });
            }
        });
        Door { address, certificate, opened }
    }

    fn node(&self, scratch: &Scratch, name: &str, limit: &str) -> NodeProcess {
        let port = self.address.port();
        let channels = format!(
            "[limit.acme]\n{limit}\nper = \"1s\"\nlateness = \"100ms\"\n[channel.acme]\nendpoint = \"https://localhost:{port}/acme/refunds\"\nlimits = [\"acme\"]\n"
        );
        let file = self.certificate.path().to_str().unwrap();
        NodeProcess::spawn_where(scratch, name, &channels, [("SSL_CERT_FILE", file)])
    }
}

/// How many arrived in so many seconds after the first.
async fn arrived(scratch: &Scratch, seconds: u64) -> usize {
    assert!(scratch.bank.until(Duration::from_secs(20), |l| !l.all().is_empty()).await, "nothing arrived");
    let first = scratch.bank.look(|l| l.all()[0].at_us);
    let over = first + i64::try_from(seconds).unwrap() * 1_000_000;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    scratch.bank.look(|l| l.all().iter().filter(|a| a.at_us < over).count())
}

/// How many of the first seconds' requests arrived, and how many connections that took.
async fn share(names: &[&str], limit: &str, set_up: Duration, closes: bool, seconds: u64) -> (usize, usize) {
    let scratch = Scratch::new().await;
    if closes {
        scratch.bank.then("acme", Step::pays().with_header(CONNECTION, HeaderValue::from_static("close")));
    }
    let door = Door::to(scratch.bank.address(), set_up).await;
    let nodes: Vec<NodeProcess> = names.iter().map(|name| door.node(&scratch, name, limit)).collect();
    for node in &nodes {
        node.wait_for_line("HTTP on");
    }
    scratch.insert("acme", "R-", 200).await;
    let count = arrived(&scratch, seconds).await;
    drop(nodes);
    (count, door.opened.load(Ordering::Relaxed) as usize)
}

/// Whether one of five tries reaches nine tenths of `near` with few connections.
async fn reaches(near: usize, mut tried: impl AsyncFnMut() -> (usize, usize)) {
    one_try_succeeds(5, async || {
        let (count, opened) = tried().await;
        let is_good = count * 10 >= near * 9 && opened <= count * 3 + 20;
        if is_good { Ok(()) } else { Err(format!("{count} of {near}, and {opened} connections")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_with_a_slow_set_up_that_closes_after_each_answer_gets_its_rate() {
    // One in each 220 ms or, for the others, five in each 1.1 s or 1 s.
    for (limit, near) in [
        ("algorithm = \"paced\"\npermits = 5", 36),
        ("algorithm = \"sliding_log\"\npermits = 5", 36),
        ("permits = 5", 40),
    ] {
        let set_up = Duration::from_millis(150);
        reaches(near, async || share(&["a", "b", "c"], limit, set_up, true, 8).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_a_second_on_six_nodes_is_kept_at_a_bank_with_a_slow_set_up() {
    let (limit, set_up) = ("algorithm = \"paced\"\npermits = 1", Duration::from_millis(120));
    // One in each 1.1 s.
    reaches(15, async || share(&["a", "b", "c", "d", "e", "f"], limit, set_up, false, 16).await).await;
}

fn at(address: &str, more: &str) -> String {
    format!(
        "[limit.acme]\npermits = 100\nper = \"1d\"\n[channel.acme]\nendpoint = \"http://{address}/acme/refunds\"\nlimits = [\"acme\"]\n{more}"
    )
}

async fn failures(node: &TestNode) -> u32 {
    let page = node.get("/metrics").await.text;
    let lines = page.lines().filter(|line| line.starts_with("refundd_bank_connect_failures_total"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok()).sum()
}

#[tokio::test]
async fn a_closed_port_spends_no_permits_and_counts_no_attempts() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &at("127.0.0.1:1", "")).await;
    scratch.insert("acme", "R-", 5).await;
    until("it was tried several times", async || failures(&node).await >= 4).await;
    assert_eq!(scratch.number(PERMITS).await, 0);
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 0);
    assert_eq!(scratch.count(State::Ready).await, 5);
    let channel = node.get("/v1/channels").await.json()["channels"][0].clone();
    let why = channel["bank"]["unreachable"].as_str().unwrap_or_else(|| panic!("{channel}"));
    assert!(why.contains("connect to 127.0.0.1") && why.contains("refused"), "{why}");
    assert!(
        node.get("/metrics")
            .await
            .text
            .contains("refundd_bank_connected{channel=\"acme\",purpose=\"send\"} 0")
    );
    until("the other nodes know of it", async || {
        scratch
            .store
            .status_reports()
            .await
            .unwrap()
            .iter()
            .filter_map(|(_, report)| report.banks.get("acme"))
            .any(|bank| bank.status.unreachable.is_some())
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn an_outage_of_the_bank_sends_nothing_to_review_and_counts_no_attempts() {
    let scratch = Scratch::new().await;
    let way = Forward::to(Target::Tcp(scratch.bank.address())).unwrap();
    let retry = "max_in_flight = 2\nretry = { base = \"50ms\", cap = \"100ms\", sends = 3 }\n";
    let node = TestNode::start(&scratch, "a", &at(&way.address().to_string(), retry)).await;
    scratch.insert("acme", "R-", 1).await;
    until("one is paid", async || scratch.count(State::Succeeded).await == 1).await;
    way.set(Weather::Closed);
    scratch.insert("acme", "S-", 5).await;
    until("it was tried several times", async || failures(&node).await >= 4).await;
    assert_eq!(scratch.number("select sum(attempts)::bigint from refundd.refunds").await, 1);
    // The connection that lay idle may have been taken for an open one.
    assert!(scratch.number(PERMITS).await <= 2);
    assert_eq!(scratch.count(State::Ready).await, 5);
    way.set(Weather::Fair);
    let took = within(Duration::from_secs(10), "it works again", async || {
        scratch.count(State::Succeeded).await == 6
    })
    .await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(scratch.number("select max(attempts)::bigint from refundd.refunds").await, 1);
    assert_eq!(scratch.bank.look(|l| l.all().len()), 6);
    node.stop().await;
}

#[tokio::test]
async fn a_bank_that_accepts_and_hangs_up_is_unreachable_and_not_dialled_without_end() {
    let scratch = Scratch::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepted = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let node = TestNode::start(&scratch, "a", &at(&address, "")).await;
    scratch.insert("acme", "R-", 5).await;
    until("it was tried several times", async || failures(&node).await >= 4).await;
    assert_eq!(scratch.number(PERMITS).await, 0);
    assert!(accepted.load(Ordering::Relaxed) <= 6, "{accepted:?}");
    let channel = node.get("/v1/channels").await.json()["channels"][0].clone();
    assert!(channel["bank"]["unreachable"].is_string(), "{channel}");
    node.stop().await;
}

#[tokio::test]
async fn an_inquiry_address_that_is_away_uses_up_no_permit_and_no_schedule() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let asks =
        "on_unknown = \"inquire\"\ninquiry = { url = \"http://127.0.0.1:1/acme/refunds/{request_id}\" }\n";
    let node = TestNode::start(&scratch, "a", &at("{bank}", asks)).await;
    scratch.insert("acme", "R-", 1).await;
    until("it is unknown", async || scratch.count(State::Unknown).await == 1).await;
    let spent = scratch.number(PERMITS).await;
    scratch.sql("update refundd.refunds set inquire_at = now() - interval '1 second'").await;
    until("the address was tried several times", async || failures(&node).await >= 4).await;
    assert_eq!(scratch.number(PERMITS).await, spent);
    assert_eq!(scratch.number("select count(*) from refundd.refunds where inquire_at < now()").await, 1);
    assert_eq!(scratch.count(State::Unknown).await, 1);
    let channel = node.get("/v1/channels").await.json()["channels"][0].clone();
    assert!(channel["bank"]["unreachable_to_ask"].is_string(), "{channel}");
    node.stop().await;
}

/// The schedule of inquiries ends after a week; then a person sees what nothing settled, whatever became of the address.
#[tokio::test]
async fn what_cannot_be_asked_about_is_shown_to_a_person_when_its_week_is_over() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let asks =
        "on_unknown = \"inquire\"\ninquiry = { url = \"http://127.0.0.1:1/acme/refunds/{request_id}\" }\n";
    let node = TestNode::start(&scratch, "a", &at("{bank}", asks)).await;
    scratch.insert("acme", "R-", 3).await;
    until("all are unknown", async || scratch.count(State::Unknown).await == 3).await;
    // Of one the bank said once that it has it. Nobody waits for a channel that is paused for good either.
    scratch.pause("acme", "for good", "test").await;
    let aged = async |span: &str| {
        scratch
            .sql(&format!(
                "update refundd.refunds
                    set state = case when id = 3 then 'accepted' else state end, inquire_at = now(),
                        uncertain_at = now() - interval '{span}', due_at = now() + interval '7 days' - interval '{span}'
                  where id > 1"
            ))
            .await;
    };
    aged("7 days").await;
    let store = &scratch.store;
    let shown =
        store.look_for(RecoveryLook::Overdue, 10, 20_000, &LookPlace::default(), &[]).await.unwrap().shown;
    assert_eq!(shown, [], "the last inquiry has its time");
    aged("7 days 11 minutes").await;
    until("two are shown", async || scratch.count(State::Review).await == 2).await;
    assert_eq!(scratch.count(State::Unknown).await, 1, "the young one is still asked about");
    let reason = scratch.text("select reason from refundd.refunds where id = 2").await;
    assert!(
        reason.starts_with(
            "inquiries_used_up: nothing settled it in 7 days, in which the bank was asked 0 times; before: "
        ),
        "{reason}"
    );
    node.stop().await;
}
