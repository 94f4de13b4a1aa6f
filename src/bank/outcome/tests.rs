//! The answers of docs/answers.md as a table, and the texts for people.

mod rules;

use std::time::Duration;

use super::*;
use crate::bank::secrets::ClientSecrets;
use crate::refund::ExpectedEcho;

fn read(status: u16, headers: &[(&'static str, &str)], body: &str) -> Outcome {
    let headers = headers.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
    let channel = Channel { bank_ref: None, ..channel(Vec::new()) };
    read_answer(&channel, &expected(), status, &headers, body.as_bytes()).outcome
}

fn channel(rules: Vec<AnswerRule>) -> Channel {
    let tables = "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\nbank_ref = \"/id\"\n";
    let config = crate::config::Config::of_tables(tables);
    let channel = config.channels.values().next().unwrap();
    Channel { answer_rules: rules, ..channel.as_ref().clone() }
}

fn expected() -> ExpectedEcho {
    ExpectedEcho::sample()
}

fn wait(seconds: u64) -> Outcome {
    Outcome::SlowDown { retry_after: Some(Duration::from_secs(seconds)) }
}

#[test]
fn every_answer_of_the_table_means_what_it_says() {
    type Headers = &'static [(&'static str, &'static str)];
    type Row = (u16, Headers, &'static str, Outcome);
    const EMPTY: Headers = &[("content-length", "0")];
    const CHUNKED: Headers = &[("transfer-encoding", "chunked")];
    let table: &[Row] = &[
        (200, EMPTY, "", Outcome::Succeeded),
        (200, CHUNKED, "", Outcome::Succeeded),
        (200, &[], "", Outcome::Unknown),
        (202, &[], "", Outcome::Unknown),
        (200, &[], "\r\n", Outcome::Unknown),
        (200, &[("transfer-encoding", "chunked, gzip")], "", Outcome::Unknown),
        (200, &[("transfer-encoding", "gzip"), ("content-length", "0")], "", Outcome::Unknown),
        (200, &[], "1", Outcome::Unknown),
        (200, &[("content-length", "1")], "1", Outcome::Unknown),
        (200, &[], "{}", Outcome::Succeeded),
        (201, &[], r#"{"status":"succeeded"}"#, Outcome::Succeeded),
        (204, &[], "", Outcome::Succeeded),
        (200, &[("content-length", "2")], " \n", Outcome::Succeeded),
        (200, &[], "<html>log in</html>", Outcome::Unknown),
        (202, &[], "OK", Outcome::Unknown),
        (200, &[], r#"{"status":"pending"}"#, Outcome::Accepted),
        (202, EMPTY, "", Outcome::Accepted),
        (202, &[], r#"{"status":"rejected"}"#, Outcome::Rejected),
        (200, &[], "\u{feff}{\"status\":\"rejected\"}", Outcome::Rejected),
        (200, &[], "\u{feff}", Outcome::Unknown),
        (200, &[], r#"{"status":"rejected"}"#, Outcome::Rejected),
        (200, &[], r#"{"status":"declined"}"#, Outcome::Unknown),
        (200, &[], r#"{"status":7}"#, Outcome::Unknown),
        (200, &[], r#"{"errorMessage":"Task timed out","errorType":"Runtime.ExitError"}"#, Outcome::Unknown),
        (200, &[], r#"{"id":"B-1","error":{"code":"51"}}"#, Outcome::Unknown),
        (201, &[], r#"{"errors":[{"code":"51"}]}"#, Outcome::Unknown),
        (202, &[], r#"{"fault":"no target"}"#, Outcome::Unknown),
        (200, &[], r#"{"success":false,"message":"no funds"}"#, Outcome::Unknown),
        (202, &[], r#"{"Status":"DECLINED"}"#, Outcome::Unknown),
        (200, &[], r#"{"id":"B-1","error":null,"errors":[]}"#, Outcome::Succeeded),
        (200, &[], r#"{"id":"B-1","errorCode":"00","errorMessage":"Approved"}"#, Outcome::Succeeded),
        (202, &[], r#"{"errorCode":0}"#, Outcome::Accepted),
        // With a `status`, the bank's own word decides.
        (200, &[], r#"{"status":"succeeded","error":"late"}"#, Outcome::Succeeded),
        (200, &[], r#"{"status":"rejected","error":{"code":"51"}}"#, Outcome::Rejected),
        (200, &[], r#"{"status":"rejected","status":"succeeded"}"#, Outcome::Unknown),
        (200, &[], r#"{"status":"succeeded","error":{"code":1,"code":2}}"#, Outcome::Unknown),
        (200, &[("content-length", "10")], r#""declined""#, Outcome::Unknown),
        (200, &[("content-length", "5")], "false", Outcome::Unknown),
        (202, &[], "[]", Outcome::Unknown),
        (429, &[], "", Outcome::SlowDown { retry_after: None }),
        (429, &[("retry-after", "7")], "", wait(7)),
        (425, &[], "", Outcome::SlowDown { retry_after: None }),
        (503, &[("retry-after", "30"), ("content-length", "0")], "", wait(30)),
        (503, &[("retry-after", "99999999999"), ("content-length", "0")], "", wait(86_400)),
        (503, &[("retry-after", "30")], r#"{"error":"busy"}"#, wait(30)),
        (503, &[("retry-after", "30")], "[]", wait(30)),
        // A page that was cut off looks like no body.
        (503, &[("retry-after", "30")], "", Outcome::Unknown),
        (503, &[("retry-after", "5")], "<html><h1>Error 503 Backend fetch failed</h1>", Outcome::Unknown),
        (503, &[("retry-after", "5")], "503", Outcome::Unknown),
        (503, &[("retry-after", "5")], r#"{"error":"bu"#, Outcome::Unknown),
        (429, &[("retry-after", "7")], "<html>429</html>", wait(7)),
        (
            429,
            &[("retry-after", "Sat, 21 Nov 2026 10:00:30 GMT"), ("date", "Sat, 21 Nov 2026 10:00:00 GMT")],
            "",
            wait(30),
        ),
        (
            429,
            &[("retry-after", "Sat, 21 Nov 2026 10:00:30 GMT")],
            "",
            Outcome::SlowDown { retry_after: None },
        ),
        (429, &[("retry-after", "soon")], "", Outcome::SlowDown { retry_after: None }),
        (503, &[], "", Outcome::Unknown),
        (401, &[], "", Outcome::Unauthorised),
        (403, &[], "{}", Outcome::Unauthorised),
        (407, &[], "", Outcome::Unauthorised),
        (400, &[], r#"{"error":"bad amount"}"#, Outcome::Rejected),
        (404, &[], r#"{"error":"no such payment"}"#, Outcome::Rejected),
        (410, &[], "{}", Outcome::Rejected),
        (413, &[], "{}", Outcome::Rejected),
        (415, &[], "{}", Outcome::Rejected),
        (422, &[], "{}", Outcome::Rejected),
        (400, &[], "<html>nginx</html>", Outcome::Review),
        (404, &[], "", Outcome::Review),
        (404, &[], "404", Outcome::Review),
        (422, &[], r#"{"error":"bad amount","error":"none"}"#, Outcome::Review),
        (422, &[], r#"[{"code":"17"}]"#, Outcome::Rejected),
        (408, &[], "{}", Outcome::Unknown),
        (409, &[], "{}", Outcome::Conflict),
        (500, &[], "{}", Outcome::Unknown),
        (502, &[], "", Outcome::Unknown),
        (504, &[], "", Outcome::Unknown),
        (302, &[("location", "http://elsewhere/")], "", Outcome::Unknown),
        (304, &[], "", Outcome::Unknown),
        (418, &[], "{}", Outcome::Unknown),
        (402, &[], "{}", Outcome::Unknown),
        (599, &[], "", Outcome::Unknown),
    ];
    for (status, headers, body, wanted) in table {
        assert_eq!(&read(*status, headers, body), wanted, "{status} {headers:?} {body}");
    }
}

#[test]
fn account_numbers_do_not_reach_the_journal() {
    let body = r#"{"error":"account DE89 3704 0044 0532 0130 00 is closed","status":"rejected"}"#;
    let answer = read_answer(&channel(Vec::new()), &expected(), 422, &HeaderMap::new(), body.as_bytes());
    assert_eq!(answer.message, r#"HTTP 422, status "rejected", error "account DE[digits]is closed""#);
}

#[test]
fn of_a_body_that_cannot_be_read_the_message_says_what_the_headers_say_and_how_long_it_is() {
    let headers = [("content-type", "text/html; id=123456789"), ("content-encoding", "br")];
    let headers: HeaderMap =
        headers.into_iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
    for (status, code) in [(200, Code::Unreadable), (422, Code::NoJson)] {
        let answer = read_answer(&channel(Vec::new()), &expected(), status, &headers, b"<html>");
        let shown = r#"Content-Type "text/html; id=[digits]", Content-Encoding "br", body length 6"#;
        assert_eq!((answer.code, answer.message), (code, format!("HTTP {status}, {shown}")));
        let bare = read_answer(&channel(Vec::new()), &expected(), status, &HeaderMap::new(), b"<html>");
        assert_eq!(bare.message, format!("HTTP {status}, body length 6"));
    }
    let paid = read_answer(&channel(Vec::new()), &expected(), 200, &headers, br#"{"id":"B-1"}"#);
    assert_eq!(paid.message, "HTTP 200");
}

#[test]
fn what_the_request_carried_is_hidden_before_digits_and_before_the_text_is_cut() {
    let address = "https://bank/refunds?key=key-123456789".parse().unwrap();
    let header = format!("Bearer sk_live_{}", "ab12".repeat(40));
    let client = ClientSecrets::of(&address, Some(&crate::channel::Authorization(header.clone().into())));
    let secrets = client.with(None, "0f8fad5b-d9cb-469f-a165-70867728950e");
    let body = serde_json::json!({
        "error": format!("bad header {header}"),
        "message": "POST /refunds?key=key-123456789",
        "detail": "0f8fad5b-d9cb-469f-a165-70867728950e is used",
    });
    let body = body.to_string();
    let expected = expected();
    let asked = Asked { expected: &expected, secrets };
    let answer = read_answer(&channel(Vec::new()), asked, 401, &HeaderMap::new(), body.as_bytes());
    let shown = r#", error "bad header ****", message "POST /refunds?key=****", detail "**** is used""#;
    assert_eq!(answer.message, format!("HTTP 401{shown}"));
    let body = br#"{"refund_ref":"0f8fad5b-d9cb-469f-a165-70867728950e"}"#;
    let other = read_answer(&channel(Vec::new()), asked, 200, &HeaderMap::new(), body);
    assert_eq!(other.code, Code::EchoDiffers);
    assert!(other.message.contains("\"****\"") && other.message.contains("\"R-7\""), "{}", other.message);
}

#[test]
fn a_card_number_of_the_bank_reaches_neither_the_journal_nor_the_reference() {
    for (number, masked) in [
        (r#""4111111111111111""#, "411111******1111"),
        (r#""4111-1111.1111/1111""#, "411111******1111"),
        ("4111111111111111", "411111******1111"),
    ] {
        let body = format!(
            r#"{{"id":{number},"message":"refunded to card",
            "reason":{number},"code":"4111_1111_1111_1111","detail":"to 4111.1111.1111.1111!"}}"#
        );
        let answer = read_answer(&channel(Vec::new()), &expected(), 200, &HeaderMap::new(), body.as_bytes());
        assert_eq!(answer.bank_ref.as_deref(), Some(masked));
        assert!(!answer.message.contains("1111"), "{}", answer.message);
        let accepts = Channel { accepts_card_numbers: true, ..channel(Vec::new()) };
        let answer = read_answer(&accepts, &expected(), 200, &HeaderMap::new(), body.as_bytes());
        assert_eq!(answer.bank_ref.as_deref(), Some(number.trim_matches('"')));
        assert!(!answer.message.contains("1111"), "{}", answer.message);
    }
    let before = ExpectedEcho { bank_ref: Some("4111111111111111".to_owned()), ..expected() };
    let body = br#"{"id":"4111111111111111"}"#;
    let answer = read_answer(&channel(Vec::new()), &before, 200, &HeaderMap::new(), body);
    assert_eq!(
        (answer.outcome, answer.bank_ref),
        (Outcome::Succeeded, None),
        "the reference is the same one"
    );
}

/// `serde_json` reads both numbers as 20251130123456790000.
#[test]
fn a_number_that_64_bits_do_not_hold_keeps_each_digit_as_a_reference_and_as_an_echo() {
    let answer = |refund_ref: &str, body: &str| {
        let expected = ExpectedEcho { refund_ref: refund_ref.to_owned(), ..expected() };
        read_answer(&channel(Vec::new()), &expected, 200, &HeaderMap::new(), body.as_bytes())
    };
    for id in ["20251130123456789012", "20251130123456789013", "-9223372036854775809", "18446744073709551615"]
    {
        let body = format!(r#" {{"data":[1.5,null,"\u00e9"],"id": {id} ,"amount_minor":1250.0}} "#);
        let paid = answer("R-7", &body);
        assert_eq!((paid.outcome, paid.bank_ref.as_deref()), (Outcome::Succeeded, Some(id)), "{body}");
    }
    let repeats = |number: &str| {
        let body = format!(r#"{{"refund_ref":{number},"id":20251130123456789012}}"#);
        answer("20251130123456789012", &body).code
    };
    assert_eq!(repeats("20251130123456789012"), Code::Succeeded);
    assert_eq!(repeats("20251130123456789013"), Code::EchoDiffers);
}

#[test]
fn an_answer_about_another_refund_goes_to_a_person() {
    let answer = |known: Option<&str>, status: u16, body: &str| {
        let expected = ExpectedEcho { bank_ref: known.map(str::to_owned), ..expected() };
        read_answer(&channel(Vec::new()), &expected, status, &HeaderMap::new(), body.as_bytes())
    };
    for (status, body) in [
        (200, r#"{"status":"succeeded","amount_minor":12500}"#),
        (202, r#"{"refund_ref":"R-8"}"#),
        (422, r#"{"currency":"USD"}"#),
        (500, r#"{"refund_id":8}"#),
        (429, r#"{"refund_id":8}"#),
        (401, r#"{"refund_ref":"R-8"}"#),
    ] {
        let answer = answer(None, status, body);
        assert_eq!((&answer.outcome, answer.code), (&Outcome::Review, Code::EchoDiffers), "{body}");
        assert_eq!(answer.status, Some(status));
        let logged = for_the_log(answer.code, &answer.message);
        let fields = ["amount_minor", "refund_ref", "currency", "refund_id"];
        let field = body.split('"').find(|part| fields.contains(part)).unwrap();
        assert_eq!(answer.names_another, field.starts_with("refund"), "{body}");
        assert_eq!(logged, format!("the answer repeats another {field}"));
        assert!(answer.message.starts_with(logged) && answer.message.ends_with(" was sent"), "{answer:?}");
    }
    // These say that the request was not executed, or are about the channel, whatever amount they repeat.
    assert!(matches!(answer(None, 429, r#"{"amount_minor":8}"#).outcome, Outcome::SlowDown { .. }));
    assert_eq!(answer(None, 401, r#"{"refund_id":"","currency":"USD"}"#).outcome, Outcome::Unauthorised);
    let paid = answer(None, 200, r#"{"amount_minor":1250,"currency":"EUR","id":77}"#);
    assert_eq!((paid.outcome, paid.bank_ref.as_deref()), (Outcome::Succeeded, Some("77")));
    let same = answer(Some("B-1"), 200, r#"{"id":"B-1"}"#);
    assert_eq!(same.outcome, Outcome::Succeeded);
    let other = answer(Some("B-1"), 200, r#"{"id":"B-2"}"#);
    assert_eq!((other.outcome, other.code), (Outcome::Review, Code::BankRefDiffers));
    for unfit in [r#"{"id":""}"#, r#"{"id":["B-1"]}"#, "{}"] {
        assert_eq!(answer(None, 200, unfit).bank_ref, None, "{unfit}");
    }
}

#[test]
fn a_success_without_the_reference_that_the_bank_names_in_each_one_proves_nothing() {
    let headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("0"))]);
    let read = |status, body: &str| {
        read_answer(&channel(Vec::new()), &expected(), status, &headers, body.as_bytes())
    };
    for (status, body) in
        [(200, ""), (204, ""), (200, "{}"), (201, r#"{"message":"maintenance"}"#), (200, r#"{"id":""}"#)]
    {
        let answer = read(status, body);
        assert_eq!((&answer.outcome, answer.code), (&Outcome::Unknown, Code::NoBankRef), "{status} {body}");
    }
    // The bank's own word, or a rule, needs no reference. Of an accepted refund an inquiry may tell it.
    assert_eq!(read(200, r#"{"status":"succeeded"}"#).outcome, Outcome::Succeeded);
    assert_eq!(read(202, "").outcome, Outcome::Accepted);
    let paid = AnswerRule { status: 200, body: None, outcome: RuleOutcome::Succeeded };
    let by_rule = read_answer(&channel(vec![paid]), &expected(), 200, &headers, b"{}");
    assert_eq!(by_rule.outcome, Outcome::Succeeded);
}

proptest::proptest! {
    #[test]
    fn no_answer_makes_it_panic_and_no_message_is_too_long(status in 100u16..1000, body: Vec<u8>) {
        let answer = read_answer(&channel(Vec::new()), &expected(), status, &HeaderMap::new(), &body);
        proptest::prop_assert!(answer.message.chars().count() <= 500);
    }
}
