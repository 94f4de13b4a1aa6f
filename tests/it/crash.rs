//! A node that dies between any two steps of the money path: by the bank's ledger nothing is lost and nothing is
//! paid twice.

mod cut;

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use playground::bank::Step;
use refundd::bucket::Purpose;
use refundd::crash;
use refundd::refund::State;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::{NodeProcess, Scratch, depth, within};

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

/// How a bank is reached, and what is done about a refund that may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In the clear; a person decides.
    PlainAndShown,
    /// By TLS; sent again under the same key.
    SecureAndResent,
}

impl Way {
    const ALL: [Way; 2] = [Way::PlainAndShown, Way::SecureAndResent];
    /// Longer than any of these tests.
    const RETENTION: Duration = Duration::from_mins(10);
}

/// With a bank that can be asked, a limit that is always counted, or no limit, for the points on that way.
fn channels(point: &str, way: Way) -> String {
    let text = match point {
        "counting" => CHANNELS.replace("per = ", "algorithm = \"sliding_log\"\nper = "),
        "prefetched" => CHANNELS.replace("limits = [\"acme\"]", "limits = []"),
        _ => CHANNELS.to_owned(),
    };
    match (point, way) {
        ("inquiring" | "inquired" | "inquiry_answered" | "resolved", _) => format!(
            "{text}on_unknown = \"inquire\"\ninquiry = {{ url = \"http://{{bank}}/acme/refunds/{{request_id}}\" }}\n"
        ),
        (_, Way::PlainAndShown) => text,
        (_, Way::SecureAndResent) => {
            format!("{text}on_unknown = \"resend\"\nkey_retention = \"{}s\"\n", Way::RETENTION.as_secs())
        }
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
        // Until one is granted; 503 while the ledger is asked what Redis does not know.
        "spending" | "spent" => {
            while let Some(status) = post("/v1/limits/acme/acquire", "{}".to_owned()).await {
                assert!([429, 503].contains(&status.as_u16()), "a node that died has answered {status}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        "taken_more" => {
            // All stand in line. Half of them cannot be claimed for a moment, behind the line's back; until the node meets it.
            let acme = refundd::refund::ChannelName::new("acme").unwrap();
            within(Duration::from_secs(20), "there is a line", async || {
                depth(&scratch.bucket(), Purpose::Send, &acme).await > 0
            })
            .await;
            let later = "update refundd.refunds set due_at = now() + interval '2 seconds' where state = 'ready' and id % 2 = 0";
            let health: hyper::Uri = format!("http://{address}/health/live").parse().unwrap();
            for _ in 0..300 {
                if client.get(health.clone()).await.is_err() {
                    break;
                }
                scratch.sql(later).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        "bringing_back" | "brought_back" => {
            // They become due earlier than everything in line, and stand in no line.
            let acme = refundd::refund::ChannelName::new("acme").unwrap();
            within(Duration::from_secs(20), "there is a line", async || {
                depth(&scratch.bucket(), Purpose::Send, &acme).await > 0
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
        "suspending" | "suspended" => {
            scratch.bank.next("acme", (0..20).map(|_| Step::pays()));
            scratch.bank.next("acme", [Step::too_many(1)]);
        }
        "inquiring" | "inquired" | "inquiry_answered" | "resolved" => {
            scratch.bank.next("acme", (0..8).map(|_| Step::pays_but_says_500()));
        }
        _ => {}
    }
    // Enough that the line is still long when it comes to that.
    let count = match point {
        "bringing_back" | "brought_back" | "taken_more" => 400,
        _ => 40,
    };
    scratch.insert("acme", "R-", count).await;
}

async fn dies_at(point: &'static str, way: Way) {
    let scratch = Scratch::over(way == Way::SecureAndResent).await;
    let channels = channels(point, way);
    let may_repeat = channels.contains("\"resend\"");
    if may_repeat {
        scratch.bank.remembers("acme", Way::RETENTION);
    }
    prepare(point, &scratch).await;
    // Of what happens often, not the first time: some refunds are on every part of the way.
    let nth = match point {
        "sending" | "sent" | "answered" | "judged" => 7,
        "taking" | "taken" | "counting" | "claimed" | "settling" | "settled" | "inquiry_answered"
        | "resolved" => 2,
        _ => 1,
    };
    let mut first = NodeProcess::spawn(&scratch, "a", &channels, Some(&format!("{point}:{nth}")));
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
        assert!(
            began.elapsed() < Duration::from_mins(2),
            "{point}, {way:?}: it never came by; {:#?}",
            first.log()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(ended.signal(), Some(9), "{point}, {way:?}: {:#?}", first.log());
    scratch.sql("drop trigger if exists dawdles on refundd.refunds").await;
    let what = format!("{point}, {way:?}");
    let death = Death::look(&scratch).await;
    let mut second = NodeProcess::start(&scratch, "b", &channels);
    within(Duration::from_mins(3), &what, async || {
        scratch
            .number("select count(*) from refundd.refunds where state in ('ready', 'sending', 'unknown')")
            .await
            == 0
    })
    .await;
    judge(&what, &scratch, may_repeat, &death).await;
    let span = Duration::from_secs(1);
    let worst = scratch.bank.ledger().worst_aligned_window("acme", span).map_or(0, |worst| worst.count);
    assert!(worst <= PERMITS, "{what}: {worst} in one second");
    second.signal(rustix::process::Signal::TERM);
    second.wait();
}

/// What the dead node left in Postgres, when nothing of it can be committed any more.
#[derive(Default)]
struct Death {
    /// In us since 1970, after the death and before the next node.
    at_us: i64,
    /// The request ids of refunds that nobody has claimed.
    unclaimed: Vec<String>,
    /// The request ids of leased refunds, and the end of each lease.
    leased: Vec<(String, i64)>,
}

impl Death {
    async fn look(scratch: &Scratch) -> Death {
        // A statement that the node sent before its death may still be running, or not yet be read.
        let others = "select count(*) from pg_stat_activity
             where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()";
        within(Duration::from_secs(30), "its end", async || scratch.number(others).await == 0).await;
        let at_us = scratch.now_us().await;
        let mut connection = scratch.connect().await;
        let unclaimed = "select request_id::text from refundd.refunds where state = 'ready' and attempts = 0";
        let unclaimed: Vec<String> = sqlx::query_scalar(unclaimed).fetch_all(&mut connection).await.unwrap();
        let leased = "select request_id::text, (extract(epoch from lease_until) * 1000000)::bigint
                        from refundd.refunds where state = 'sending'";
        let leased: Vec<(String, i64)> = sqlx::query_as(leased).fetch_all(&mut connection).await.unwrap();
        Death { at_us, unclaimed, leased }
    }
}

/// Holds the rows against the bank's own ledger.
async fn judge(what: &str, scratch: &Scratch, may_repeat: bool, death: &Death) {
    let ledger = scratch.bank.ledger();
    assert!(may_repeat || ledger.repeated().is_empty(), "{what}: sent twice: {:?}", ledger.repeated());
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
    for (key, lease_until_us) in &death.leased {
        let again = ledger.sends_under(key).find(|sent| sent.at_us > death.at_us);
        let is_over = again.is_none_or(|sent| sent.at_us >= *lease_until_us);
        assert!(is_over, "{what}: {key} was sent again under the dead node's lease: {again:?}");
    }
    // Only a send without an answer brings one of these to a person.
    let unanswered: Vec<String> = sqlx::query_scalar(
        "select r.request_id::text from refundd.refunds r join refundd.attempts a on a.refund_id = r.id
          where a.kind = 'send' and a.started_at is not null and a.status is null",
    )
    .fetch_all(&mut scratch.connect().await)
    .await
    .unwrap();
    let is_in_vain =
        |key: &&String| rows.contains(&((*key).clone(), "review".to_owned())) && !unanswered.contains(*key);
    let in_vain: Vec<&String> = death.unclaimed.iter().filter(is_in_vain).collect();
    assert!(in_vain.is_empty(), "{what}: nobody had claimed them, and they are shown: {in_vain:?}");
    let known = |key: &&str| rows.iter().any(|(row, _)| row == key);
    assert!(paid.keys().all(known), "{what}: the bank paid what nobody owes");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_step_a_node_dies_at_nothing_is_lost_and_nothing_is_paid_twice() {
    let room = Arc::new(Semaphore::new(10));
    let mut running = JoinSet::new();
    for ((point, _), way) in crash::POINTS.iter().flat_map(|point| Way::ALL.map(|way| (point, way))) {
        let room = Arc::clone(&room);
        let runtime = Handle::current();
        running.spawn_blocking(move || {
            runtime.block_on(async {
                let _room = room.acquire().await.unwrap();
                dies_at(point, way).await;
            });
            *point
        });
    }
    let mut covered = Vec::new();
    while let Some(point) = running.join_next().await {
        covered.push(point.unwrap());
    }
    let ways = Way::ALL.len();
    println!("{} of {} points covered, each in {ways} ways", covered.len() / ways, crash::POINTS.len());
    assert_eq!(covered.len(), ways * crash::POINTS.len());
}
