//! A node that dies between any two steps of the money path, and a conversation with the bank that is cut
//! at any byte: by the bank's ledger nothing is lost and nothing is paid twice.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use refundd::crash;
use refundd::playground::bank::Step;
use refundd::refund::State;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::{NodeProcess, Scratch, TestNode, within};

const PERMITS: usize = 60;

const CHANNELS: &str = r#"
[limit.acme]
permits = 60
per = "1s"
lateness = "100ms"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = ["acme"]
max_in_flight = 8
timeout = "1s"
connect_timeout = "1s"
lease = "8s"
"#;

/// With a bank that can be asked, for the points on that way.
fn channels(point: &str) -> String {
    match point {
        "inquiring" | "inquired" | "told" | "resolved" => format!(
            "{CHANNELS}on_unknown = \"inquire\"\ninquiry = {{ url = \"http://{{bank}}/acme/refunds/{{request_id}}\" }}\n"
        ),
        _ => CHANNELS.to_owned(),
    }
}

/// What it takes to come by a point, beside refunds that are saved by SQL and sent.
async fn provoke(point: &str, scratch: &Scratch, address: &str) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let post = async |path: &str, body: String| {
        let request = Request::post(format!("http://{address}{path}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        client.request(request).await.ok().map(|answer| answer.status())
    };
    match point {
        "saving" | "saved" => {
            let body = serde_json::json!({ "refund_ref": "http-1", "channel": "acme", "payment_ref": "P", "amount_minor": 5, "currency": "EUR" });
            assert_eq!(post("/v1/refunds", body.to_string()).await, None, "a node that died has answered");
        }
        // Until one is granted.
        "spending" | "spent" => {
            while let Some(status) = post("/v1/limits/acme/acquire", "{}".to_owned()).await {
                assert_eq!(status, 429, "a node that died has answered");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        "bringing_back" | "brought_back" => {
            // They become due earlier than everything in line, and stand in no line.
            let acme = [refundd::refund::ChannelName::new("acme").unwrap()];
            within(Duration::from_secs(20), "there is a line", async || {
                scratch.bucket().look(&acme).await.unwrap()[0].depth > 0
            })
            .await;
            scratch.sql("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, due_at)
                 select 'stranded-' || n, 'acme', 'P', 1, 'EUR', now() - interval '1 hour' from generate_series(1, 3) n").await;
        }
        _ => {}
    }
}

/// What is in the database before the node starts.
async fn prepare(point: &str, scratch: &Scratch) {
    scratch.publish("acme").await;
    match point {
        "lapsing" | "lapsed" => {
            scratch.insert("acme", "L-", 5).await;
            scratch.sql("update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'dead#1', lease_until = now() - interval '1 second'").await;
        }
        "taking_back" | "taken_back" => {
            // The claim is committed after its node has stopped waiting for it.
            scratch.sql("create function refundd.dawdles() returns trigger language plpgsql as $$ begin perform pg_sleep(5.5); return null; end $$").await;
            scratch.sql("create constraint trigger dawdles after update on refundd.refunds deferrable initially deferred
                 for each row when (new.state = 'sending' and new.id = 30) execute function refundd.dawdles()").await;
        }
        "holding_back" | "held_back" => {
            scratch.bank.next("acme", (0..20).map(|_| Step::pays()));
            scratch.bank.next("acme", [Step::too_many(1)]);
        }
        "inquiring" | "inquired" | "told" | "resolved" => {
            scratch.bank.next("acme", (0..8).map(|_| Step::pays_but_says_500()));
        }
        _ => {}
    }
    // Enough that the line is still long when it comes to that.
    let count = match point {
        "bringing_back" | "brought_back" => 400,
        _ => 40,
    };
    scratch.insert("acme", "R-", count).await;
}

async fn dies_at(point: &'static str) {
    let scratch = Scratch::new().await;
    prepare(point, &scratch).await;
    // Of what happens often, not the first time: some refunds are on every part of the way.
    let nth = match point {
        "sending" | "sent" | "answered" | "judged" => 7,
        "taking" | "taken" | "claimed" | "settling" | "settled" | "told" | "resolved" => 2,
        _ => 1,
    };
    let mut first = NodeProcess::spawn(&scratch, "a", &channels(point), Some(&format!("{point}:{nth}")));
    let began = Instant::now();
    let mut provoked = false;
    let ended = loop {
        if let Some(ended) = first.ended() {
            break ended;
        }
        if let (false, Some(address)) = (provoked, first.address()) {
            provoked = true;
            provoke(point, &scratch, &address).await;
        }
        assert!(began.elapsed() < Duration::from_secs(40), "{point}: it never came by; {:#?}", first.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(ended.signal(), Some(9), "{point}: {:#?}", first.log());
    scratch.sql("drop trigger if exists dawdles on refundd.refunds").await;
    let mut second = NodeProcess::start(&scratch, "b", &channels(point));
    within(Duration::from_secs(50), point, async || {
        scratch
            .number("select count(*) from refundd.refunds where state in ('ready', 'sending', 'unknown')")
            .await
            == 0
    })
    .await;
    judge(point, &scratch).await;
    let span = Duration::from_secs(1);
    let worst = scratch.bank.ledger().worst_aligned_window("acme", span).map_or(0, |worst| worst.count);
    assert!(worst <= PERMITS, "{point}: {worst} in one second");
    second.signal(rustix::process::Signal::TERM);
    second.wait();
}

/// Holds the rows against the bank's own ledger.
async fn judge(what: &str, scratch: &Scratch) {
    let ledger = scratch.bank.ledger();
    assert!(ledger.repeated().is_empty(), "{what}: sent twice: {:?}", ledger.repeated());
    assert!(ledger.altered().is_empty(), "{what}");
    let rows: Vec<(String, String)> = sqlx::query_as("select request_id::text, state from refundd.refunds")
        .fetch_all(&mut scratch.connect().await)
        .await
        .unwrap();
    let paid = ledger.paid_by_key();
    for (key, state) in &rows {
        let times = paid.get(key.as_str()).copied().unwrap_or(0);
        match state.parse::<State>().unwrap() {
            State::Succeeded => assert_eq!(times, 1, "{what}: {key} succeeded"),
            State::Review => assert!(times <= 1, "{what}: {key} is shown and was paid {times} times"),
            other => panic!("{what}: {key} is {other}"),
        }
    }
    let known = |key: &&str| rows.iter().any(|(row, _)| row == key);
    assert!(paid.keys().all(known), "{what}: the bank paid what nobody owes");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_step_a_node_dies_at_nothing_is_lost_and_nothing_is_paid_twice() {
    let room = Arc::new(Semaphore::new(6));
    let mut running = JoinSet::new();
    for (point, _) in crash::POINTS {
        let room = Arc::clone(&room);
        let runtime = Handle::current();
        running.spawn_blocking(move || {
            runtime.block_on(async {
                let _room = room.acquire().await.unwrap();
                dies_at(point).await;
            });
            *point
        });
    }
    let mut covered = Vec::new();
    while let Some(point) = running.join_next().await {
        covered.push(point.unwrap());
    }
    println!("{} of {} points covered", covered.len(), crash::POINTS.len());
    assert_eq!(covered.len(), crash::POINTS.len());
}

const PATIENT: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
max_in_flight = 32
timeout = "5s"
"#;

async fn all_are_over(scratch: &Scratch, count: i64) {
    within(Duration::from_mins(1), "all are over", async || {
        let over = "select count(*) from refundd.refunds where state in ('succeeded', 'review')";
        scratch.number(over).await == count
    })
    .await;
}

/// The rows' states, in the order in which they were saved.
async fn states(scratch: &Scratch) -> Vec<State> {
    let states: Vec<String> = sqlx::query_scalar("select state from refundd.refunds order by id")
        .fetch_all(&mut scratch.connect().await)
        .await
        .unwrap();
    states.iter().map(|state| state.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_cut_at_any_byte_proves_nothing() {
    const MORE_THAN_AN_ANSWER: u32 = 250;
    let scratch = Scratch::new().await;
    for bytes in 0..MORE_THAN_AN_ANSWER {
        let cut = Step::pays().cut_after(bytes as usize);
        scratch.bank.next_for("acme", &format!("R-{}", bytes + 1), [cut]);
    }
    let node = TestNode::start(&scratch, "a", PATIENT).await;
    scratch.insert("acme", "R-", MORE_THAN_AN_ANSWER).await;
    all_are_over(&scratch, i64::from(MORE_THAN_AN_ANSWER)).await;
    let states = states(&scratch).await;
    let whole = states.iter().position(|state| *state == State::Succeeded).expect("a whole answer");
    println!("answers cut at {whole} of {whole} bytes");
    assert!(whole > 60, "an answer has more than {whole} bytes");
    assert!(states[whole..].iter().all(|state| *state == State::Succeeded), "{states:?}");
    judge("answers", &scratch).await;
    node.stop().await;
}

/// Stands before the bank and lets so many bytes of each request through, one more for each connection;
/// then it hangs up. Answers how many bytes each had sent, once `count` have come.
async fn cut_requests(bank: SocketAddr, listener: TcpListener, count: usize) -> Vec<usize> {
    let mut seen = JoinSet::new();
    let mut allowed = 0;
    while allowed < count {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut first = [0];
        // One that is opened ahead and never used is no request.
        if stream.peek(&mut first).await.unwrap_or(0) == 0 {
            continue;
        }
        let through = allowed;
        allowed += 1;
        seen.spawn(async move {
            let mut request = vec![0; through];
            let mut got = 0;
            while got < through {
                match stream.read(&mut request[got..]).await {
                    Ok(0) | Err(_) => break,
                    Ok(more) => got += more,
                }
                if is_whole(&request[..got]) {
                    break;
                }
            }
            let mut onwards = TcpStream::connect(bank).await.unwrap();
            onwards.write_all(&request[..got]).await.unwrap();
            if is_whole(&request[..got]) {
                // The bank has all of it, and its answer is lost.
                onwards.read_u8().await.unwrap();
            }
            got
        });
    }
    let mut bytes = seen.join_all().await;
    bytes.sort_unstable();
    bytes
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    length == Some(body.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_cut_at_any_byte_is_never_sent_again() {
    const MORE_THAN_A_REQUEST: u32 = 600;
    let scratch = Scratch::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channels = PATIENT.replace("{bank}", &listener.local_addr().unwrap().to_string());
    let cutting = tokio::spawn(cut_requests(scratch.bank.address(), listener, MORE_THAN_A_REQUEST as usize));
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", MORE_THAN_A_REQUEST).await;
    all_are_over(&scratch, i64::from(MORE_THAN_A_REQUEST)).await;
    // Every refund had one connection, and was on none after that.
    let bytes = cutting.await.unwrap();
    let whole = *bytes.last().unwrap();
    println!("requests cut at {whole} of {whole} bytes");
    assert!(whole > 300, "a request has more than {whole} bytes");
    assert!((0..whole).all(|cut| bytes.binary_search(&cut).is_ok()), "{bytes:?}");
    assert!(states(&scratch).await.iter().all(|state| *state == State::Review));
    judge("requests", &scratch).await;
    node.stop().await;
}
