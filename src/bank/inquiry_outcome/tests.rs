//! The answers to inquiries of docs/answers.md as a table.

use std::time::Duration;

use hyper::header::{CONTENT_LENGTH, RETRY_AFTER};

use super::*;
use crate::channel::StatusTexts;
use crate::refund::ExpectedEcho;
use crate::refund::inquiry::Trust;

const AT: ReferenceAt<'_> = ReferenceAt { pointer: "/id", accepts_card_numbers: false };

fn inquiry(status: &str) -> Inquiry {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Inquiry {
        url: "http://b/{request_id}".to_owned(),
        authorization: None,
        trust: Trust { not_found_is_final: true, grace: Duration::from_secs(1) },
        limits: None,
        status: status.to_owned(),
        status_texts: StatusTexts {
            succeeded: texts(&["succeeded", "BOOKED"]),
            pending: texts(&["pending"]),
            rejected: texts(&["rejected"]),
        },
        not_found: None,
    }
}

fn expected(bank_ref: Option<&str>) -> ExpectedEcho {
    ExpectedEcho { bank_ref: bank_ref.map(str::to_owned), ..ExpectedEcho::sample() }
}

fn read(status: u16, body: &str) -> InquiryOutcome {
    let (inquiry, headers) = (inquiry("/status"), HeaderMap::new());
    read_inquiry_answer(&inquiry, &[], None, &expected(None), status, &headers, body.as_bytes()).outcome
}

#[test]
fn a_status_that_is_a_number_or_a_truth_value_is_the_text_that_writes_it() {
    let mut by_number = inquiry("/status");
    by_number.status_texts.succeeded = vec!["2".to_owned(), "true".to_owned()];
    for (body, wanted, code) in [
        (r#"{"status":2}"#, InquiryOutcome::Succeeded, Code::Succeeded),
        (r#"{"status":"2"}"#, InquiryOutcome::Succeeded, Code::Succeeded),
        (r#"{"status":true}"#, InquiryOutcome::Succeeded, Code::Succeeded),
        (r#"{"status":3}"#, InquiryOutcome::Nothing, Code::Unmapped),
        (r#"{"status":2.0}"#, InquiryOutcome::Nothing, Code::Unmapped),
        (r#"{"status":null}"#, InquiryOutcome::Nothing, Code::NoStatus),
        (r#"{"status":[2]}"#, InquiryOutcome::Nothing, Code::NoStatus),
    ] {
        let headers = HeaderMap::new();
        let answer =
            read_inquiry_answer(&by_number, &[], None, &expected(None), 200, &headers, body.as_bytes());
        assert_eq!((answer.outcome, answer.code), (wanted, code), "{body}");
    }
}

#[test]
fn only_a_known_status_in_a_200_settles_anything() {
    for (status, body, wanted) in [
        (200, r#"{"status":"succeeded"}"#, InquiryOutcome::Succeeded),
        (200, r#"{"status":"BOOKED"}"#, InquiryOutcome::Succeeded),
        (200, r#"{"status":"pending"}"#, InquiryOutcome::Pending),
        (200, r#"{"status":"rejected"}"#, InquiryOutcome::Rejected),
        (200, r#"{"status":"declined"}"#, InquiryOutcome::Nothing),
        (200, r#"{"status":7}"#, InquiryOutcome::Nothing),
        (200, "{}", InquiryOutcome::Nothing),
        (200, "", InquiryOutcome::Nothing),
        (200, "<html>succeeded</html>", InquiryOutcome::Nothing),
        (201, r#"{"status":"succeeded"}"#, InquiryOutcome::Nothing),
        (202, r#"{"status":"succeeded"}"#, InquiryOutcome::Nothing),
        (204, "", InquiryOutcome::Nothing),
        (302, r#"{"status":"succeeded"}"#, InquiryOutcome::Nothing),
        (404, "{}", InquiryOutcome::NotFound),
        (404, r#"{"error":"not found"}"#, InquiryOutcome::NotFound),
        (404, "", InquiryOutcome::Nothing),
        (404, "<html>404 Not Found</html>", InquiryOutcome::Nothing),
        (404, "404", InquiryOutcome::Nothing),
        (404, r#""not found""#, InquiryOutcome::Nothing),
        (404, r#"{"error":"not fou"#, InquiryOutcome::Nothing),
        (404, r#"{"status":"rejected"}"#, InquiryOutcome::NotFound),
        (400, r#"{"status":"rejected"}"#, InquiryOutcome::Nothing),
        (410, "{}", InquiryOutcome::Nothing),
        (429, "", InquiryOutcome::SlowDown { retry_after: None }),
        (401, "", InquiryOutcome::Unauthorised),
        (500, r#"{"status":"rejected"}"#, InquiryOutcome::Nothing),
        (503, "", InquiryOutcome::Nothing),
    ] {
        assert_eq!(read(status, body), wanted, "{status} {body}");
    }
}

/// Varnish sends its page so whenever it has no answer of the bank.
#[test]
fn a_503_with_retry_after_asks_to_wait_only_if_it_is_the_banks_own() {
    let inquiry = inquiry("/status");
    let read = |is_framed: bool, body: &str| {
        let mut headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from(7))]);
        if is_framed {
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        let answer =
            read_inquiry_answer(&inquiry, &[], None, &expected(None), 503, &headers, body.as_bytes());
        (answer.outcome, answer.code)
    };
    let wait = Some(Duration::from_secs(7));
    for (is_framed, body) in [(true, ""), (false, r#"{"error":"busy"}"#), (false, "[]")] {
        let waits = (InquiryOutcome::SlowDown { retry_after: wait }, Code::SlowDown);
        assert_eq!(read(is_framed, body), waits, "{is_framed} {body}");
    }
    let page = "<html><h1>Error 503 Backend fetch failed</h1>";
    for (is_framed, body) in [(false, ""), (true, page), (true, "503"), (true, r#"{"error":"bu"#)] {
        let trouble = (InquiryOutcome::Nothing, Code::BankTrouble);
        assert_eq!(read(is_framed, body), trouble, "{is_framed} {body}");
    }
}

#[test]
fn a_rule_that_asks_to_wait_applies_to_an_inquiry_and_no_other_rule_does() {
    let rule = |status, body: Option<(&str, &str)>, outcome| AnswerRule {
        status,
        body: body.map(|(pointer, text)| (pointer.to_owned(), text.to_owned())),
        outcome,
    };
    let rules = [
        rule(503, Some(("/executed", "true")), RuleOutcome::Succeeded),
        rule(503, None, RuleOutcome::SlowDown),
        rule(404, None, RuleOutcome::Succeeded),
        rule(500, None, RuleOutcome::NotExecuted),
    ];
    let read = |status: u16, headers: &HeaderMap, body: &str| {
        let inquiry = inquiry("/status");
        read_inquiry_answer(&inquiry, &rules, None, &expected(None), status, headers, body.as_bytes())
    };
    let none = HeaderMap::new();
    let waits = read(503, &none, "<html>503 Service Temporarily Unavailable</html>");
    assert_eq!(
        (waits.outcome, waits.code),
        (InquiryOutcome::SlowDown { retry_after: None }, Code::ChannelRule)
    );
    assert!(waits.message.contains("rule 2 of `verdict`"), "{}", waits.message);
    let named = HeaderMap::from_iter([(RETRY_AFTER, "7".parse().unwrap())]);
    let wait = Some(Duration::from_secs(7));
    assert_eq!(read(503, &named, "").outcome, InquiryOutcome::SlowDown { retry_after: wait });
    let first = read(503, &none, r#"{"executed":true}"#);
    assert_eq!(first.outcome, InquiryOutcome::Nothing, "an earlier rule matches, and it is about sends");
    assert_eq!(read(404, &none, "{}").outcome, InquiryOutcome::NotFound);
    assert_eq!(read(500, &none, "{}").outcome, InquiryOutcome::Nothing);
}

#[test]
fn where_the_bank_has_a_text_for_not_found_only_that_text_counts() {
    let asks =
        Inquiry { not_found: Some(("/error/code".to_owned(), "no_refund".to_owned())), ..inquiry("/status") };
    let read = |status: u16, body: &str| {
        let headers = HeaderMap::new();
        let answer =
            read_inquiry_answer(&asks, &[], None, &expected(None), status, &headers, body.as_bytes());
        (answer.outcome, answer.code)
    };
    let (ours, gateways) = (r#"{"error":{"code":"no_refund"}}"#, r#"{"message":"no Route matched"}"#);
    assert_eq!(read(404, ours), (InquiryOutcome::NotFound, Code::NotFound));
    assert_eq!(read(200, ours), (InquiryOutcome::NotFound, Code::NotFound));
    assert_eq!(read(404, gateways), (InquiryOutcome::Nothing, Code::Other404));
    assert_eq!(read(404, "{}"), (InquiryOutcome::Nothing, Code::Other404));
    assert_eq!(read(404, "<html>"), (InquiryOutcome::Nothing, Code::NotJson));
    assert_eq!(read(410, ours), (InquiryOutcome::Nothing, Code::Unmapped));
    let of_another = r#"{"error":{"code":"no_refund","refund_ref":"R-8"}}"#;
    assert_eq!(read(404, of_another), (InquiryOutcome::Review, Code::EchoDiffers));
    let both = r#"{"status":"succeeded","error":{"code":"no_refund"}}"#;
    assert_eq!(read(200, both).0, InquiryOutcome::Succeeded, "the bank's status text comes first");
}

#[test]
fn the_status_is_read_where_the_channel_says() {
    let body = br#"{"status":"rejected","data":[{"state":"BOOKED"}]}"#;
    let (inquiry, headers) = (inquiry("/data/0/state"), HeaderMap::new());
    let answer = read_inquiry_answer(&inquiry, &[], None, &expected(None), 200, &headers, body);
    assert_eq!(answer.outcome, InquiryOutcome::Succeeded);
    let body = br#"{"data":[{"state":"BOOKED","amount_minor":9}]}"#;
    let answer = read_inquiry_answer(&inquiry, &[], None, &expected(None), 200, &headers, body);
    assert_eq!(answer.code, Code::EchoDiffers, "what was sent is compared beside the status");
    let at = ReferenceAt { pointer: "/data/0/refund_id", ..AT };
    let body = br#"{"data":[{"state":"BOOKED","refund_id":"B-1"}]}"#;
    let answer = read_inquiry_answer(&inquiry, &[], Some(at), &expected(None), 200, &headers, body);
    assert_eq!((answer.code, answer.bank_ref.as_deref()), (Code::Succeeded, Some("B-1")));
    // One `bank_ref` serves sends and inquiries, and this bank's answers to sends have no `data`.
    let flat = ReferenceAt { pointer: "/refund_id", ..AT };
    let answer = read_inquiry_answer(&inquiry, &[], Some(flat), &expected(Some("B-1")), 200, &headers, body);
    assert_eq!((answer.code, answer.bank_ref), (Code::Succeeded, None));
}

#[test]
fn an_answer_about_another_refund_goes_to_a_person() {
    let answer = |body: &str, known: Option<&str>| {
        let (inquiry, headers) = (inquiry("/status"), HeaderMap::new());
        read_inquiry_answer(&inquiry, &[], Some(AT), &expected(known), 200, &headers, body.as_bytes())
    };
    let other = answer(r#"{"status":"succeeded","amount_minor":1251}"#, None);
    assert_eq!((other.outcome, other.code), (InquiryOutcome::Review, Code::EchoDiffers));
    assert!(other.message.contains("amount_minor") && other.message.contains("1251"), "{}", other.message);
    let same = answer(r#"{"status":"succeeded","amount_minor":1250,"id":"B-1"}"#, None);
    assert_eq!((same.outcome, same.bank_ref.as_deref()), (InquiryOutcome::Succeeded, Some("B-1")));
    let long = answer(r#"{"status":"succeeded","id":20251130123456789012}"#, None);
    assert_eq!(long.bank_ref.as_deref(), Some("20251130123456789012"), "each digit is kept");
    let changed = answer(r#"{"status":"succeeded","id":"B-2"}"#, Some("B-1"));
    assert_eq!((changed.outcome, changed.code), (InquiryOutcome::Review, Code::BankRefDiffers));
    let masked = answer(r#"{"status":"succeeded","id":"4111111111111111"}"#, Some("4111111111111111"));
    assert_eq!(masked.outcome, InquiryOutcome::Succeeded);
    assert_eq!(masked.bank_ref, None, "the reference of before is the same one, and stays");
    let accepts = ReferenceAt { accepts_card_numbers: true, ..AT };
    let in_full = |known: &str| {
        let (inquiry, headers) = (inquiry("/status"), HeaderMap::new());
        let body = br#"{"status":"succeeded","id":"4111111111111111"}"#;
        read_inquiry_answer(&inquiry, &[], Some(accepts), &expected(Some(known)), 200, &headers, body)
    };
    let was_masked = in_full("411111******1111");
    assert_eq!((was_masked.outcome, was_masked.bank_ref), (InquiryOutcome::Succeeded, None));
    assert_eq!(in_full("4111110000091111").code, Code::BankRefDiffers, "neither of the two is masked");
    let new = answer(r#"{"status":"succeeded","id":"4111111111111111"}"#, None);
    assert_eq!(new.bank_ref.as_deref(), Some("411111******1111"));
    // A 500 proves nothing, whatever its body repeats. But it shows that the connection may be one answer off.
    let (inquiry, headers) = (inquiry("/status"), HeaderMap::new());
    let trouble =
        read_inquiry_answer(&inquiry, &[], None, &expected(None), 500, &headers, br#"{"refund_id":8}"#);
    assert_eq!((trouble.outcome, trouble.names_another), (InquiryOutcome::Nothing, true));
}

proptest::proptest! {
    #[test]
    fn no_answer_makes_it_panic_and_no_message_is_too_long(status in 100u16..1000, body: Vec<u8>) {
        let (inquiry, headers) = (inquiry("/status"), HeaderMap::new());
        let answer = read_inquiry_answer(&inquiry, &[], Some(AT), &expected(None), status, &headers, &body);
        proptest::prop_assert!(answer.message.chars().count() <= 500);
    }
}

#[test]
fn a_not_found_that_a_cache_had_stored_proves_nothing_and_every_other_answer_counts() {
    let asks =
        Inquiry { not_found: Some(("/error".to_owned(), "no_refund".to_owned())), ..inquiry("/status") };
    let read = |status: u16, ages: &[&'static str], body: &str| {
        let headers = ages.iter().map(|age| (AGE, HeaderValue::from_static(age))).collect();
        let answer =
            read_inquiry_answer(&asks, &[], None, &expected(None), status, &headers, body.as_bytes());
        (answer.outcome, answer.code)
    };
    let absent = r#"{"error":"no_refund"}"#;
    for ages in [&["1"] as &[&str], &["25"], &["0", "7"], &["soon"], &["0, 7"]] {
        let stored = (InquiryOutcome::Nothing, Code::StoredAnswer);
        assert_eq!(read(404, ages, absent), stored, "{ages:?}");
        assert_eq!(read(200, ages, absent), stored, "{ages:?}");
    }
    for ages in [&[] as &[&str], &["0"], &[" 0 "]] {
        assert_eq!(read(404, ages, absent), (InquiryOutcome::NotFound, Code::NotFound), "{ages:?}");
    }
    assert_eq!(read(200, &["7"], r#"{"status":"succeeded"}"#).0, InquiryOutcome::Succeeded);
    assert_eq!(read(404, &["7"], "{}"), (InquiryOutcome::Nothing, Code::Other404));
}
