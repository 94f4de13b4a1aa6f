//! Tests of the pretend bank over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

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
fn an_arrival_is_entered_with_all_that_the_caller_said() {
    let bank = PretendBank::start_here().unwrap();
    let before = wire::now_us();
    let said = post(&mut connect(&bank), "R-1");
    assert!(said.starts_with("HTTP/1.1 200 OK") && said.ends_with(r#"{"status":"succeeded"}"#), "{said}");
    let ledger = bank.close();
    let [arrival] = ledger.all() else { panic!("{ledger:?}") };
    assert!((before..=wire::now_us()).contains(&arrival.at_us));
    assert_eq!((&*arrival.channel, &*arrival.key, arrival.attempt), ("acme", "key-R-1", 3));
    assert_eq!((&*arrival.refund_ref, arrival.amount_minor), ("R-1", 1250));
    assert_eq!((arrival.paid, arrival.answered), (true, Some(200)));
}

#[test]
fn an_arrival_is_dated_by_its_first_byte_on_every_request_of_a_connection() {
    let bank = PretendBank::start_here().unwrap();
    let mut stream = connect(&bank);
    for refund_ref in ["R-1", "R-2"] {
        let whole = request(refund_ref, "key");
        let before = wire::now_us();
        stream.write_all(&whole.as_bytes()[..1]).unwrap();
        std::thread::park_timeout(Duration::from_millis(150));
        stream.write_all(&whole.as_bytes()[1..]).unwrap();
        answer(&mut stream);
        let at_us = bank.look(|ledger| ledger.all().last().unwrap().at_us);
        assert!((before..before + 100_000).contains(&at_us), "{}", at_us - before);
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
        let before = wire::now_us();
        stream.write_all(request("R-3", "key-3").as_bytes()).unwrap();
        let after = wire::now_us();
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
    let said = |step: Step| {
        bank.next("acme", [step]);
        let mut stream = connect(&bank);
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream.write_all(request("R-1", "k").as_bytes()).unwrap();
        let mut read = Vec::new();
        let result = stream.read_to_end(&mut read);
        (String::from_utf8_lossy(&read).into_owned(), result.map_err(|error| error.kind()))
    };
    assert_eq!(said(Step::pays().cut_after(12)), ("HTTP/1.1 200".to_owned(), Ok(12)));
    let (text, result) = said(Step::garbage());
    assert!(!text.starts_with("HTTP") && !text.is_empty() && result.is_ok(), "{text} {result:?}");
    assert_eq!(said(Step::resets().and_pays()), (String::new(), Err(ErrorKind::ConnectionReset)));
    assert_eq!(said(Step::silence()), (String::new(), Err(ErrorKind::WouldBlock)));
    assert_eq!(said(Step::pays().after(60 * SECOND)), (String::new(), Err(ErrorKind::WouldBlock)));
    let paid: Vec<_> = bank.close().all().iter().map(|a| (a.paid, a.answered)).collect();
    assert_eq!(
        paid,
        [(true, Some(200)), (false, None), (true, None), (false, None), (true, Some(200))],
        "money moves, whatever is said about it"
    );
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

#[test]
fn an_inquiry_is_answered_from_the_ledger_and_entered_in_it() {
    let bank = PretendBank::start_here().unwrap();
    let mut stream = connect(&bank);
    let mut ask = |key: &str| {
        write!(stream, "GET /acme/refunds/{key} HTTP/1.1\r\nhost: bank\r\n\r\n").unwrap();
        answer(&mut stream)
    };
    assert!(ask("key-R-1").starts_with("HTTP/1.1 404"));
    post(&mut connect(&bank), "R-1");
    assert!(ask("key-R-1").contains("succeeded"));
    let kinds: Vec<_> = bank.close().arrivals("acme").map(|arrival| arrival.kind).collect();
    assert_eq!(kinds, [Kind::Inquiry, Kind::Send, Kind::Inquiry]);
}

#[test]
fn a_bank_that_remembers_a_key_answers_a_repeat_with_the_first_result_until_it_forgets() {
    let bank = PretendBank::start_here().unwrap();
    bank.remembers("acme", 60 * SECOND);
    bank.next_for("acme", "R-1", [Step::pays_but_says_500()]);
    bank.next_for("acme", "R-2", [Step::rejects()]);
    bank.next_for("acme", "R-3", [Step::answers(500, "")]);
    let mut stream = connect(&bank);
    for refund_ref in ["R-1", "R-2", "R-3"] {
        post(&mut stream, refund_ref);
    }
    let said = post(&mut stream, "R-1");
    assert!(said.starts_with("HTTP/1.1 200") && said.contains(r#""duplicate":true"#), "{said}");
    assert!(post(&mut stream, "R-2").starts_with("HTTP/1.1 422"));
    assert!(post(&mut stream, "R-3").ends_with(r#"{"status":"succeeded"}"#), "it was not executed before");
    assert!(bank.ledger().doubled().is_empty());
    bank.remembers("acme", Duration::ZERO);
    post(&mut stream, "R-1");
    assert_eq!(bank.close().doubled(), [("R-1", 2)], "a key it forgot is another refund");
}

#[tokio::test]
async fn an_inquiry_tells_how_a_refund_stands_unless_the_script_says_otherwise() {
    let bank = PretendBank::start_here().unwrap();
    bank.next(
        "acme",
        [Step::pending(), Step::rejects(), Step::answers(504, "").paying_after(Duration::from_millis(300))],
    );
    for refund_ref in ["R-1", "R-2", "R-3"] {
        post(&mut connect(&bank), refund_ref);
    }
    let ask = |refund_ref: &str| {
        let mut stream = connect(&bank);
        write!(stream, "GET /acme/refunds/key-{refund_ref} HTTP/1.1\r\nhost: bank\r\n\r\n").unwrap();
        answer(&mut stream)
    };
    assert!(ask("R-1").contains("pending"));
    assert!(ask("R-2").contains("rejected"));
    assert!(ask("R-3").starts_with("HTTP/1.1 404"), "not executed yet");
    assert!(bank.until(10 * SECOND, |ledger| ledger.paid_by_key().contains_key("key-R-3")).await);
    assert!(ask("R-3").contains("succeeded"));
    bank.next_inquiries("acme", [Step::answers(404, "")]);
    assert!(ask("R-3").starts_with("HTTP/1.1 404"), "a bank may say what is not so");
    assert_eq!(bank.close().inquiries("acme").count(), 5);
}

#[tokio::test]
async fn a_bank_that_remembers_executes_once_though_the_key_comes_again_before_it_has() {
    let bank = PretendBank::start_here().unwrap();
    bank.remembers("acme", 60 * SECOND);
    bank.next("acme", [Step::answers(504, "").paying_after(Duration::from_millis(300))]);
    let mut stream = connect(&bank);
    assert!(post(&mut stream, "R-1").starts_with("HTTP/1.1 504"));
    assert!(post(&mut stream, "R-1").starts_with("HTTP/1.1 409"), "it is still executing");
    assert!(bank.until(10 * SECOND, |ledger| ledger.paid_by_key().len() == 1).await);
    assert!(post(&mut stream, "R-1").contains(r#""duplicate":true"#));
    assert!(bank.close().doubled().is_empty());
}

#[test]
fn a_bank_overlooks_what_came_a_moment_ago() {
    let bank = PretendBank::start_here().unwrap();
    bank.overlooks("acme", Duration::from_millis(200));
    let mut stream = connect(&bank);
    post(&mut stream, "R-1");
    let mut ask = || {
        write!(stream, "GET /acme/refunds/key-R-1 HTTP/1.1\r\nhost: bank\r\n\r\n").unwrap();
        answer(&mut stream)
    };
    assert!(ask().starts_with("HTTP/1.1 404"));
    std::thread::park_timeout(Duration::from_millis(250));
    assert!(ask().contains("succeeded"));
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

/// A bank that speaks TLS, and the settings of a caller that trusts it.
fn secure_bank() -> (PretendBank, Arc<ClientConfig>) {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let identity = Identity { certificates: vec![own.cert.der().clone()], key };
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let bank = PretendBank::start_secure(SocketAddr::from(([127, 0, 0, 1], 0)), identity).unwrap();
    (bank, Arc::new(config))
}

fn shake_hands(bank: &PretendBank, config: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut stream =
        StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), connect(bank));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    stream
}

#[test]
fn over_tls_an_arrival_is_dated_by_the_first_sealed_byte_of_its_request() {
    let (bank, config) = secure_bank();
    let mut stream = shake_hands(&bank, &config);
    // The handshake belongs to no request.
    std::thread::park_timeout(Duration::from_millis(150));
    for refund_ref in ["R-1", "R-2"] {
        let mut sealed = Vec::new();
        stream.conn.writer().write_all(request(refund_ref, refund_ref).as_bytes()).unwrap();
        stream.conn.write_tls(&mut sealed).unwrap();
        let before = wire::now_us();
        stream.sock.write_all(&sealed[..1]).unwrap();
        std::thread::park_timeout(Duration::from_millis(150));
        stream.sock.write_all(&sealed[1..]).unwrap();
        assert!(answer(&mut stream).starts_with("HTTP/1.1 200"));
        let at_us = bank.look(|ledger| ledger.all().last().unwrap().at_us);
        assert!((before..before + 100_000).contains(&at_us), "{}", at_us - before);
    }
}

#[test]
fn a_bank_with_a_certificate_speaks_plainly_with_who_begins_plainly() {
    let (bank, config) = secure_bank();
    assert!(post(&mut connect(&bank), "R-1").starts_with("HTTP/1.1 200"));
    let mut stream = shake_hands(&bank, &config);
    stream.write_all(request("R-2", "key-2").as_bytes()).unwrap();
    answer(&mut stream);
    assert!(bank.endpoint("acme").starts_with("https://127.0.0.1:"));
    let refs: Vec<_> = bank.ledger().all().iter().map(|arrival| arrival.refund_ref.to_string()).collect();
    assert_eq!(refs, ["R-1", "R-2"]);
}

#[test]
fn over_tls_an_answer_is_cut_and_a_connection_reset_as_the_script_says() {
    let (bank, config) = secure_bank();
    let said = |step: Step| {
        bank.next("acme", [step]);
        let mut stream = shake_hands(&bank, &config);
        stream.write_all(request("R-1", "key").as_bytes()).unwrap();
        let mut read = Vec::new();
        let result = stream.read_to_end(&mut read);
        (String::from_utf8_lossy(&read).into_owned(), result.map_err(|error| error.kind()))
    };
    let (cut, end) = said(Step::pays().cut_after(17));
    assert_eq!((cut.as_str(), end), ("HTTP/1.1 200 OK\r\n", Err(ErrorKind::UnexpectedEof)));
    assert_eq!(said(Step::resets().and_pays()), (String::new(), Err(ErrorKind::ConnectionReset)));
    let (hung_up, _) = said(Step::pays().and_hangs_up());
    assert!(hung_up.contains("connection: close") && hung_up.ends_with('}'), "{hung_up}");
}
