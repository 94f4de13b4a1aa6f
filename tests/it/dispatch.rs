//! One refund's journey through a running node, and what each answer of the bank makes of it.

mod leases;
mod prefetch;
mod rules;

use std::time::Duration;

use playground::bank::Step;
use refundd::bucket::Purpose;
use refundd::refund::State;
use tokio::io::AsyncReadExt;

use crate::harness::{Scratch, TestNode, depth, until, within};

pub const UNLIMITED: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "10s"
connect_timeout = "1s"
"#;

/// The same channel, for a bank that does not answer.
pub fn impatient() -> String {
    UNLIMITED.replace("timeout = \"10s\"", "timeout = \"1s\"")
}

async fn ends_as(scratch: &Scratch, state: State, count: i64) {
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..3000 {
        seen = scratch.counts().await;
        if seen.get(&state) == Some(&count) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("wanted {count} {state}, got {seen:?}");
}

#[tokio::test]
async fn a_plain_insert_reaches_the_bank_once_and_settles() {
    for secure in [false, true] {
        let scratch = Scratch::over(secure).await;
        let node = TestNode::start(&scratch, "a", UNLIMITED).await;
        scratch.insert("acme", "R-", 200).await;
        ends_as(&scratch, State::Succeeded, 200).await;
        let ledger = scratch.bank.ledger();
        assert_eq!(ledger.all().len(), 200);
        assert!(ledger.repeated().is_empty() && ledger.altered().is_empty());
        let refs = scratch.refs().await;
        assert!(ledger.lost(refs.iter().map(String::as_str)).is_empty());
        assert_eq!(scratch.number("select count(*) from refundd.attempts where outcome = 'succeeded' and moved_to = 'succeeded' and started_at is not null").await, 200);
        node.stop().await;
    }
}

#[tokio::test]
async fn the_bank_is_sent_the_contract_and_nothing_else() {
    for secure in [false, true] {
        let scratch = Scratch::over(secure).await;
        let node = TestNode::start(&scratch, "a", UNLIMITED).await;
        scratch.insert("acme", "R-", 1).await;
        ends_as(&scratch, State::Succeeded, 1).await;
        let key = scratch.text("select request_id::text from refundd.refunds").await;
        let ledger = scratch.bank.ledger();
        let arrival = &ledger.all()[0];
        assert_eq!(
            (&*arrival.key, arrival.attempt, &*arrival.refund_ref, arrival.amount_minor),
            (key.as_str(), 1, "R-1", 101)
        );
        node.stop().await;
    }
}

#[tokio::test]
async fn each_answer_moves_the_refund_where_the_table_says() {
    for secure in [false, true] {
        let scratch = Scratch::over(secure).await;
        let mut cases = Vec::new();
        for (nth, (step, state)) in [
            (Step::pays(), State::Succeeded),
            (Step::pending(), State::Accepted),
            (Step::rejects(), State::Failed),
            (Step::answers(404, "<html>"), State::Review),
            // This channel's bank cannot be asked, so what is unknown is shown to a person.
            (Step::pays_but_says_500(), State::Review),
            (Step::silence(), State::Review),
            (Step::resets().and_pays(), State::Review),
            (Step::garbage(), State::Review),
            (Step::pays().cut_after(20), State::Review),
            (Step::redirects("http://127.0.0.1:9/"), State::Review),
        ]
        .into_iter()
        .enumerate()
        {
            let refund_ref = format!("R-{}", nth + 1);
            scratch.bank.next_for("acme", &refund_ref, [step.clone()]);
            cases.push((refund_ref, step, state));
        }
        let node = TestNode::start(&scratch, "a", &impatient()).await;
        scratch.insert("acme", "R-", 10).await;
        let open = "select count(*) from refundd.refunds where state in ('ready', 'sending', 'unknown')";
        until("all are settled", async || scratch.number(open).await == 0).await;
        for (refund_ref, step, state) in cases {
            let is = format!("select state from refundd.refunds where refund_ref = '{refund_ref}'");
            assert_eq!(scratch.text(&is).await, state.as_str(), "{step:?}");
            let sent = scratch
                .bank
                .look(|l| l.all().iter().filter(|arrival| *arrival.refund_ref == *refund_ref).count());
            assert_eq!(sent, 1, "sent once: {step:?}");
        }
        assert_eq!(scratch.bank.look(|l| l.all().len()), 10, "nothing else is sent");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_2xx_whose_body_was_cut_off_is_never_taken_for_success() {
    let scratch = Scratch::new().await;
    let cut: [&[u8]; 9] = [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"status\":\"succe",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    ];
    let whole: [&[u8]; 5] = [
        b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n{\"status\":\"succeeded\"}",
    ];
    for (nth, bytes) in cut.iter().chain(&whole).enumerate() {
        scratch.bank.next_for("acme", &format!("R-{}", nth + 1), [Step::writes(bytes).and_pays()]);
    }
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 14).await;
    until("all are settled", async || {
        scratch.count(State::Succeeded).await + scratch.count(State::Review).await == 14
    })
    .await;
    let shown = scratch
        .text("select string_agg(substr(refund_ref, 3), ' ' order by id) from refundd.refunds where state = 'review'")
        .await;
    assert_eq!(shown, "1 2 3 4 5 6 7 8 9");
    let codes = scratch
        .text("select string_agg(code, ' ' order by refund_id) from refundd.attempts where moved_to = 'unknown'")
        .await;
    assert_eq!(
        codes,
        "empty_unframed empty_unframed empty_unframed empty_unframed empty_unframed unreadable unreadable answer_cut empty_unframed"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_429_cools_the_channel_on_all_nodes_and_counts_no_attempt() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::too_many(2)]);
    let one_at_a_time = format!("{UNLIMITED}max_in_flight = 1\n");
    let a = TestNode::start(&scratch, "a", &one_at_a_time).await;
    let b = TestNode::start(&scratch, "b", &one_at_a_time).await;
    scratch.insert("acme", "R-", 1).await;
    // No other node can know of it before it is written.
    let cooling = "select count(*) from refundd.channels where cool_until > now()";
    until("the channel cools", async || scratch.number(cooling).await == 1).await;
    scratch.insert("acme", "S-", 40).await;
    ends_as(&scratch, State::Succeeded, 41).await;
    let ledger = scratch.bank.ledger();
    let times: Vec<i64> = ledger.all().iter().map(|a| a.at_us).collect();
    let pause = times[1] - times[0];
    assert!(pause >= 1_950_000, "cooled for {pause} us only");
    assert_eq!(scratch.number("select max(attempts)::bigint from refundd.refunds").await, 1);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_401_pauses_the_channel_and_says_why_until_a_person_resumes_it() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::unauthorised()]);
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}max_in_flight = 1\n")).await;
    scratch.insert("acme", "R-", 20).await;
    until("the channel pauses itself", async || scratch.suspensions().await == 1).await;
    let reason = scratch.text("select reason from refundd.suspended").await;
    assert!(reason.contains("401"), "{reason}");
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1);
    until("nothing is under lease", async || scratch.count(State::Sending).await == 0).await;
    scratch.resume("acme").await;
    ends_as(&scratch, State::Succeeded, 20).await;
    node.stop().await;
}

#[tokio::test]
async fn a_pause_is_obeyed_within_a_second_and_a_resume_too() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays().after(Duration::from_millis(5)));
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}max_in_flight = 2\n")).await;
    scratch.insert("acme", "R-", 5000).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() > 50).await);
    scratch.pause("acme", "maintenance at the bank", "ops").await;
    let paused_at = scratch
        .number("select (extract(epoch from paused_at) * 1000000)::bigint from refundd.channels")
        .await;
    within(Duration::from_secs(5), "nothing is under lease", async || {
        scratch.count(State::Sending).await == 0
    })
    .await;
    let last = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).max().unwrap());
    assert!(last - paused_at < 1_000_000, "sent {} us after the pause", last - paused_at);
    let at_rest = scratch.bank.look(|l| l.all().len());
    assert!(at_rest < 5000);
    scratch.resume("acme").await;
    within(Duration::from_secs(10), "it sends again", async || {
        scratch.bank.look(|l| l.all().len()) > at_rest
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn a_stale_connection_is_replaced_without_a_second_request() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}max_in_flight = 1\n")).await;
    for round in 1..=5 {
        // The bank closes the connection after each answer; the next refund meets a stale one.
        scratch.bank.next(
            "acme",
            [Step::pays()
                .with_header(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"))],
        );
        scratch.insert("acme", &format!("R{round}-"), 1).await;
        ends_as(&scratch, State::Succeeded, round).await;
    }
    assert!(scratch.bank.ledger().repeated().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn a_sick_channel_does_not_hold_up_its_neighbour() {
    let scratch = Scratch::new().await;
    scratch.bank.then("sick", Step::silence());
    // The neighbour is done before the first request of the sick channel ends, also where the machine is slow.
    let sick = UNLIMITED.replace("acme", "sick").replace("\"10s\"", "\"30s\"");
    let both = format!("{UNLIMITED}{sick}max_in_flight = 16\n");
    let node = TestNode::start(&scratch, "a", &both).await;
    scratch.insert("sick", "S-", 100).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.arrivals("sick").count() >= 16).await);
    scratch.insert("acme", "R-", 300).await;
    until("the neighbour is done", async || scratch.bank.look(|l| l.arrivals("acme").count()) == 300).await;
    let waiting = scratch.bank.look(|l| l.arrivals("sick").count());
    assert_eq!(waiting, 16, "the neighbour waited until requests of the sick channel ended");
    drop(node);
}

#[tokio::test]
async fn a_bucket_never_has_more_ids_than_its_capacity() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays().after(Duration::from_millis(2)));
    let small = format!("[bucket]\ncapacity = 20\n{UNLIMITED}max_in_flight = 1\n");
    let node = TestNode::start(&scratch, "a", &small).await;
    scratch.insert("acme", "R-", 500).await;
    let bucket = scratch.bucket();
    let acme = refundd::refund::ChannelName::new("acme").unwrap();
    let mut deepest = 0;
    until("all are paid", async || {
        deepest = deepest.max(depth(&bucket, Purpose::Send, &acme).await);
        scratch.bank.look(|l| l.all().len()) == 500
    })
    .await;
    assert!(deepest <= 20, "{deepest}");
    assert!(deepest >= 10, "it was fed: {deepest}");
    assert!(scratch.bank.ledger().repeated().is_empty());
    node.stop().await;
}

/// A body that a proxy compressed could not be read, and an unread 2xx is unknown.
#[tokio::test]
async fn a_bank_is_asked_for_answers_that_are_not_compressed() {
    let scratch = Scratch::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = UNLIMITED.replace("{bank}", &listener.local_addr().unwrap().to_string());
    let node = TestNode::start(&scratch, "a", &channel).await;
    scratch.insert("acme", "R-", 1).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut request).await.unwrap() > 0);
    }
    let request = String::from_utf8_lossy(&request).to_lowercase();
    assert!(request.contains("\r\naccept-encoding: identity\r\n"), "{request}");
    drop(stream);
    node.stop().await;
}
