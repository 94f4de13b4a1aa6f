//! Banks that remember keys, answer inquiries, or overlook what came a moment ago.

use super::*;

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
    bank.overlooks("acme", 2 * SECOND);
    let mut stream = connect(&bank);
    post(&mut stream, "R-1");
    let mut ask = || {
        write!(stream, "GET /acme/refunds/key-R-1 HTTP/1.1\r\nhost: bank\r\n\r\n").unwrap();
        answer(&mut stream)
    };
    assert!(ask().starts_with("HTTP/1.1 404"));
    std::thread::park_timeout(Duration::from_millis(2100));
    assert!(ask().contains("succeeded"));
}
