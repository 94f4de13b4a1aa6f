//! Tests of the pretend bank over real sockets.

mod memory;
mod tls;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn request(refund_ref: &str, key: &str) -> String {
    let body = format!(r#"{{"refund_ref":"{refund_ref}","amount_minor":1250,"payload":{{"x":[1]}}}}"#);
    format!(
        "POST /acme/refunds HTTP/1.1\r\nhost: bank\r\nidempotency-key: {key}\r\nrefundd-attempt: 3\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn connect(bank: &PretendBank) -> TcpStream {
    let stream = TcpStream::connect(bank.address()).unwrap();
    stream.set_read_timeout(Some(10 * SECOND)).unwrap();
    stream
}

/// Sends one request and reads one answer, headers and body; the connection stays open.
fn post(stream: &mut TcpStream, refund_ref: &str) -> String {
    stream.write_all(request(refund_ref, &format!("key-{refund_ref}")).as_bytes()).unwrap();
    answer(stream)
}

fn answer(stream: &mut impl Read) -> String {
    let (mut read, mut byte) = (Vec::new(), [0]);
    loop {
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
        let text = String::from_utf8_lossy(&read);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        if body.len() == length.parse::<usize>().unwrap() {
            return text.into_owned();
        }
    }
}

#[test]
fn people_order_over_http_how_the_bank_misbehaves() {
    let bank = PretendBank::start_here().unwrap();
    let order = |path: &str, body: &str| {
        let mut stream = connect(&bank);
        let request =
            format!("PUT {path} HTTP/1.1\r\nhost: bank\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        answer(&mut stream)
    };
    assert!(order("/acme/next", "503 429\npays-500").starts_with("HTTP/1.1 200"));
    assert!(order("/acme/then", "422").starts_with("HTTP/1.1 200"));
    let mut stream = connect(&bank);
    for (nth, status) in ["503", "429", "500", "422", "422"].into_iter().enumerate() {
        let said = post(&mut stream, &format!("R-{nth}"));
        assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{said}");
    }
    assert!(order("/acme/then", "pays").starts_with("HTTP/1.1 200"));
    assert!(post(&mut stream, "R-9").starts_with("HTTP/1.1 200"));
    for (path, body) in [
        ("/acme/then", "500 500"),
        ("/acme/then", ""),
        ("/acme/next", "99"),
        ("/acme/now", "500"),
        ("/", "500"),
    ] {
        let said = order(path, body);
        assert!(said.starts_with("HTTP/1.1 400") && said.contains("hang"), "{path} {body}: {said}");
    }
    // Orders are no arrivals.
    assert_eq!(bank.close().all().len(), 6);
}

#[test]
fn an_arrival_is_entered_with_all_that_the_caller_said() {
    let bank = PretendBank::start_here().unwrap();
    let before = now_us();
    let said = post(&mut connect(&bank), "R-1");
    assert!(said.starts_with("HTTP/1.1 200 OK") && said.ends_with(r#"{"status":"succeeded"}"#), "{said}");
    let ledger = bank.close();
    let [arrival] = ledger.all() else { panic!("{ledger:?}") };
    assert!((before..=now_us()).contains(&arrival.at_us));
    assert_eq!((&*arrival.channel, &*arrival.key, arrival.attempt), ("acme", "key-R-1", 3));
    assert_eq!((&*arrival.refund_ref, arrival.amount_minor), ("R-1", 1250));
    assert_eq!((arrival.paid, arrival.answered), (true, Some(200)));
}

#[test]
fn an_arrival_is_dated_by_its_first_byte_on_every_request_of_a_connection() {
    let bank = PretendBank::start_here().unwrap();
    // The kernel begins to date bytes a moment after the first socket has asked for it.
    post(&mut connect(&bank), "R-0");
    let mut stream = connect(&bank);
    for refund_ref in ["R-1", "R-2"] {
        let whole = request(refund_ref, "key");
        let before = now_us();
        stream.write_all(&whole.as_bytes()[..1]).unwrap();
        let after = now_us();
        std::thread::park_timeout(Duration::from_millis(150));
        stream.write_all(&whole.as_bytes()[1..]).unwrap();
        answer(&mut stream);
        let at_us = bank.look(|ledger| ledger.all().last().unwrap().at_us);
        assert!((before..=after).contains(&at_us), "{} after {}", at_us - before, after - before);
    }
}

#[test]
fn an_arrival_is_dated_when_it_came_and_not_when_a_busy_bank_read_it() {
    let bank = PretendBank::start_here().unwrap();
    let mut stream = connect(&bank);
    post(&mut stream, "R-1");
    let (before, after) = bank.look(|_| {
        // The look blocks the bank's thread while both requests arrive.
        let mut other = connect(&bank);
        other.write_all(request("R-2", "key-2").as_bytes()).unwrap();
        std::thread::park_timeout(Duration::from_millis(100));
        let before = now_us();
        stream.write_all(request("R-3", "key-3").as_bytes()).unwrap();
        let after = now_us();
        std::thread::park_timeout(Duration::from_millis(100));
        (before, after)
    });
    answer(&mut stream);
    let at_us =
        bank.look(|ledger| ledger.all().iter().find(|arrival| &*arrival.key == "key-3").unwrap().at_us);
    assert!((before..=after).contains(&at_us), "{} after {}", at_us - before, after - before);
}

#[test]
fn the_script_is_used_up_step_by_step_and_then_the_default_stays() {
    let bank = PretendBank::start_here().unwrap();
    bank.next(
        "acme",
        [Step::too_many(7), Step::unauthorised(), Step::pending(), Step::redirects("http://x/")],
    );
    bank.then("acme", Step::rejects());
    bank.next_for("acme", "R-special", [Step::pays_but_says_500()]);
    let mut stream = connect(&bank);
    let said = post(&mut stream, "R-1");
    assert!(said.starts_with("HTTP/1.1 429") && said.contains("retry-after: 7\r\n"), "{said}");
    assert!(post(&mut stream, "R-special").starts_with("HTTP/1.1 500"));
    assert!(post(&mut stream, "R-2").starts_with("HTTP/1.1 401"));
    assert!(post(&mut stream, "R-3").contains("pending"));
    assert!(post(&mut stream, "R-4").contains("location: http://x/\r\n"));
    for _ in 0..2 {
        assert!(post(&mut stream, "R-5").contains("rejected"));
    }
    let paid: Vec<_> = bank.ledger().all().iter().map(|arrival| arrival.paid).collect();
    assert_eq!(paid, [false, true, false, true, false, false, false]);
}

#[test]
fn a_naive_bank_pays_twice_and_the_ledger_tells() {
    let bank = PretendBank::start_here().unwrap();
    let mut stream = connect(&bank);
    for refund_ref in ["R-1", "R-2", "R-1"] {
        post(&mut stream, refund_ref);
    }
    stream.write_all(request("R-2", "another key").as_bytes()).unwrap();
    answer(&mut stream);
    bank.then("acme", Step::answers(500, ""));
    post(&mut stream, "R-3");
    let ledger = bank.close();
    assert_eq!(ledger.doubled(), [("R-1", 2), ("R-2", 2)]);
    assert_eq!(ledger.repeated(), [("R-1", 2), ("R-2", 2)]);
    assert_eq!(ledger.altered(), ["R-2"]);
    assert_eq!(ledger.lost(["R-1", "R-2", "R-3", "R-4"]), ["R-3", "R-4"]);
    assert_eq!(ledger.paid_by_key()["key-R-1"], 2);
}

#[test]
fn answers_are_cut_garbled_reset_or_never_come() {
    let bank = PretendBank::start_here().unwrap();
    let said = |step: Step, patience: Duration| {
        bank.next("acme", [step]);
        let mut stream = connect(&bank);
        stream.set_read_timeout(Some(patience)).unwrap();
        stream.write_all(request("R-1", "k").as_bytes()).unwrap();
        let mut read = Vec::new();
        let result = stream.read_to_end(&mut read);
        (String::from_utf8_lossy(&read).into_owned(), result.map_err(|error| error.kind()))
    };
    let (soon, never) = (10 * SECOND, SECOND / 2);
    assert_eq!(said(Step::pays().cut_after(12), soon), ("HTTP/1.1 200".to_owned(), Ok(12)));
    let (text, result) = said(Step::garbage(), soon);
    assert!(!text.starts_with("HTTP") && !text.is_empty() && result.is_ok(), "{text} {result:?}");
    assert_eq!(said(Step::resets().and_pays(), soon), (String::new(), Err(ErrorKind::ConnectionReset)));
    assert_eq!(said(Step::silence(), never), (String::new(), Err(ErrorKind::WouldBlock)));
    assert_eq!(said(Step::pays().after(60 * SECOND), never), (String::new(), Err(ErrorKind::WouldBlock)));
    let paid: Vec<_> = bank.close().all().iter().map(|a| (a.paid, a.answered)).collect();
    assert_eq!(
        paid,
        [(true, Some(200)), (false, None), (true, None), (false, None), (true, Some(200))],
        "money moves, whatever is said about it"
    );
}

#[test]
fn who_knows_a_body_knows_its_hash_in_the_ledger() {
    let bank = PretendBank::start_here().unwrap();
    post(&mut connect(&bank), "R-1");
    let sent = request("R-1", "key-R-1");
    let (_, body) = sent.split_once("\r\n\r\n").unwrap();
    let ledger = bank.close();
    assert_eq!(ledger.all()[0].body_hash, hash_of(body.as_bytes()));
    assert_ne!(ledger.all()[0].body_hash, hash_of(body.replace("1250", "1251").as_bytes()));
}

#[tokio::test]
async fn a_request_that_breaks_off_has_still_arrived() {
    let bank = PretendBank::start_here().unwrap();
    let whole = request("R-1", "k");
    connect(&bank).write_all(&whole.as_bytes()[..20]).unwrap();
    connect(&bank).write_all(&whole.as_bytes()[..whole.len() - 5]).unwrap();
    let seen = |ledger: &Ledger| ledger.unreadable().len() == 1 && ledger.all().len() == 1;
    assert!(bank.until(10 * SECOND, seen).await, "{:?}", bank.ledger());
    let ledger = bank.close();
    assert!(!ledger.all()[0].paid);
    assert_eq!(&*ledger.all()[0].key, "k");
}

#[tokio::test]
async fn a_caller_who_leaves_before_the_answer_is_noted() {
    let bank = PretendBank::start_here().unwrap();
    bank.next("acme", [Step::silence()]);
    let mut stream = connect(&bank);
    stream.write_all(request("R-1", "k").as_bytes()).unwrap();
    assert!(bank.until(10 * SECOND, |ledger| ledger.all().len() == 1).await);
    assert_eq!(bank.ledger().all()[0].left_us, None);
    drop(stream);
    assert!(bank.until(10 * SECOND, |ledger| ledger.all()[0].left_us.is_some()).await);
    post(&mut connect(&bank), "R-2");
    assert_eq!(bank.close().all()[1].left_us, None, "this caller got its answer");
}

#[test]
fn people_read_the_ledger_over_http() {
    let bank = PretendBank::start_here().unwrap();
    let mut stream = connect(&bank);
    post(&mut stream, "R-1");
    write!(stream, "GET /ledger HTTP/1.1\r\nhost: bank\r\n\r\n").unwrap();
    let said = answer(&mut stream);
    let (_, body) = said.split_once("\r\n\r\n").unwrap();
    let accounts: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        accounts,
        serde_json::json!([{
            "channel": "acme", "arrivals": 1, "paid": 1, "doubled": 0, "worst_second": 1, "per_second": null
        }])
    );
    assert_eq!(bank.close().all().len(), 1, "a reader is no arrival");
}

#[test]
fn closing_ends_the_connections_and_frees_the_port() {
    let bank = PretendBank::start_here().unwrap();
    let address = bank.address();
    let mut stream = connect(&bank);
    post(&mut stream, "R-1");
    drop(bank.close());
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    PretendBank::start(address).unwrap();
}
