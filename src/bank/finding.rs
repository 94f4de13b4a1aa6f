//! What an answer to an inquiry proves: status, headers and body in, finding out. Pure.
//!
//! Only three words in a 200 prove anything by themselves. A 404 says "not found" where the bank itself speaks, and what
//! that is worth is `refund::inquiry`'s business. The page of a proxy, or of a server that lost its routes, is a 404 as
//! well and proves nothing.

use hyper::HeaderMap;
use hyper::header::RETRY_AFTER;
use serde_json::Value;

use super::verdict::{contradiction, is_text, message, reference, retry_after};
use crate::channel::Inquiry;
use crate::refund::inquiry::{Finding, Found};
use crate::refund::{Code, Owed};

/// Reads one whole answer. `bank_ref` is where the bank's own reference stands.
#[must_use]
pub fn finding(
    inquiry: &Inquiry,
    bank_ref: Option<&str>,
    owed: &Owed,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
) -> Found {
    let json = serde_json::from_slice::<Value>(body).ok();
    let (finding, code) = match status {
        200 => match by_word(inquiry, json.as_ref()) {
            (Finding::Nothing, _) if says_not_found(inquiry, json.as_ref()) => {
                (Finding::NotFound, Code::NotFound)
            }
            found => found,
        },
        404 if !json.as_ref().is_some_and(Value::is_object) => (Finding::Nothing, Code::NotJson),
        404 if inquiry.not_found.is_none() || says_not_found(inquiry, json.as_ref()) => {
            (Finding::NotFound, Code::NotFound)
        }
        404 => (Finding::Nothing, Code::Other404),
        429 | 425 => (Finding::AskedToWait { retry_after: retry_after(headers) }, Code::AskedToWait),
        503 if headers.contains_key(RETRY_AFTER) => {
            (Finding::AskedToWait { retry_after: retry_after(headers) }, Code::AskedToWait)
        }
        401 | 403 | 407 => (Finding::Unauthorised, Code::Unauthorised),
        408 | 500..=599 => (Finding::Nothing, Code::BankTrouble),
        300..=399 => (Finding::Nothing, Code::Redirect),
        _ => (Finding::Nothing, Code::Unmapped),
    };
    let found = Found { status: Some(status), ..Found::new(finding, code, &message(status, json.as_ref())) };
    let speaks = matches!(found.finding, Finding::Succeeded | Finding::Pending | Finding::Rejected);
    if !speaks && found.finding != Finding::NotFound {
        return found;
    }
    let bank_ref = json.as_ref().filter(|_| speaks).and_then(|json| reference(bank_ref, json));
    if let Some((code, message)) = contradiction(owed, json.as_ref(), bank_ref.as_deref()) {
        return Found { status: Some(status), ..Found::new(Finding::Review, code, &message) };
    }
    Found { bank_ref, ..found }
}

/// Whether the bank's own words for "not found" stand where the channel says.
fn says_not_found(inquiry: &Inquiry, json: Option<&Value>) -> bool {
    let Some((pointer, wanted)) = &inquiry.not_found else { return false };
    json.and_then(|json| json.pointer(pointer)).is_some_and(|found| is_text(found, wanted))
}

fn by_word(inquiry: &Inquiry, json: Option<&Value>) -> (Finding, Code) {
    let Some(json) = json else { return (Finding::Nothing, Code::Unreadable) };
    let Some(word) = json.pointer(&inquiry.status).and_then(Value::as_str) else {
        return (Finding::Nothing, Code::NoWord);
    };
    let says = |words: &[String]| words.iter().any(|known| known == word);
    if says(&inquiry.words.succeeded) {
        (Finding::Succeeded, Code::Succeeded)
    } else if says(&inquiry.words.pending) {
        (Finding::Pending, Code::Pending)
    } else if says(&inquiry.words.rejected) {
        (Finding::Rejected, Code::Rejected)
    } else {
        (Finding::Nothing, Code::Unmapped)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::channel::Words;
    use crate::refund::RefundId;
    use crate::refund::inquiry::Trust;

    fn inquiry(status: &str) -> Inquiry {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Inquiry {
            url: "http://b/{request_id}".to_owned(),
            trust: Trust { not_found_is_final: true, grace: Duration::from_secs(1) },
            limits: None,
            status: status.to_owned(),
            words: Words {
                succeeded: words(&["succeeded", "BOOKED"]),
                pending: words(&["pending"]),
                rejected: words(&["rejected"]),
            },
            not_found: None,
        }
    }

    fn owed(bank_ref: Option<&str>) -> Owed {
        Owed {
            refund_id: RefundId(7),
            refund_ref: "R-7".to_owned(),
            amount_minor: 1250,
            currency: "EUR".to_owned(),
            bank_ref: bank_ref.map(str::to_owned),
        }
    }

    fn read(status: u16, body: &str) -> Finding {
        finding(&inquiry("/status"), None, &owed(None), status, &HeaderMap::new(), body.as_bytes()).finding
    }

    #[test]
    fn only_a_known_word_in_a_200_settles_anything() {
        for (status, body, wanted) in [
            (200, r#"{"status":"succeeded"}"#, Finding::Succeeded),
            (200, r#"{"status":"BOOKED"}"#, Finding::Succeeded),
            (200, r#"{"status":"pending"}"#, Finding::Pending),
            (200, r#"{"status":"rejected"}"#, Finding::Rejected),
            (200, r#"{"status":"declined"}"#, Finding::Nothing),
            (200, r#"{"status":7}"#, Finding::Nothing),
            (200, "{}", Finding::Nothing),
            (200, "", Finding::Nothing),
            (200, "<html>succeeded</html>", Finding::Nothing),
            (201, r#"{"status":"succeeded"}"#, Finding::Nothing),
            (202, r#"{"status":"succeeded"}"#, Finding::Nothing),
            (204, "", Finding::Nothing),
            (302, r#"{"status":"succeeded"}"#, Finding::Nothing),
            (404, "{}", Finding::NotFound),
            (404, r#"{"error":"not found"}"#, Finding::NotFound),
            (404, "", Finding::Nothing),
            (404, "<html>404 Not Found</html>", Finding::Nothing),
            (404, "404", Finding::Nothing),
            (404, r#""not found""#, Finding::Nothing),
            (404, r#"{"error":"not fou"#, Finding::Nothing),
            (404, r#"{"status":"rejected"}"#, Finding::NotFound),
            (400, r#"{"status":"rejected"}"#, Finding::Nothing),
            (410, "{}", Finding::Nothing),
            (429, "", Finding::AskedToWait { retry_after: None }),
            (401, "", Finding::Unauthorised),
            (500, r#"{"status":"rejected"}"#, Finding::Nothing),
            (503, "", Finding::Nothing),
        ] {
            assert_eq!(read(status, body), wanted, "{status} {body}");
        }
    }

    #[test]
    fn where_the_bank_has_words_for_not_found_only_those_count() {
        let asks = Inquiry {
            not_found: Some(("/error/code".to_owned(), "no_refund".to_owned())),
            ..inquiry("/status")
        };
        let read = |status: u16, body: &str| {
            let found = finding(&asks, None, &owed(None), status, &HeaderMap::new(), body.as_bytes());
            (found.finding, found.code)
        };
        let (ours, gateways) = (r#"{"error":{"code":"no_refund"}}"#, r#"{"message":"no Route matched"}"#);
        assert_eq!(read(404, ours), (Finding::NotFound, Code::NotFound));
        assert_eq!(read(200, ours), (Finding::NotFound, Code::NotFound));
        assert_eq!(read(404, gateways), (Finding::Nothing, Code::Other404));
        assert_eq!(read(404, "{}"), (Finding::Nothing, Code::Other404));
        assert_eq!(read(404, "<html>"), (Finding::Nothing, Code::NotJson));
        assert_eq!(read(410, ours), (Finding::Nothing, Code::Unmapped));
        let both = r#"{"status":"succeeded","error":{"code":"no_refund"}}"#;
        assert_eq!(read(200, both).0, Finding::Succeeded, "its word for paid comes first");
    }

    #[test]
    fn the_word_is_found_where_the_channel_says() {
        let body = br#"{"status":"rejected","data":[{"state":"BOOKED"}]}"#;
        let found = finding(&inquiry("/data/0/state"), None, &owed(None), 200, &HeaderMap::new(), body);
        assert_eq!(found.finding, Finding::Succeeded);
    }

    #[test]
    fn an_answer_about_another_refund_goes_to_a_person() {
        let found = |body: &str, known: Option<&str>| {
            finding(&inquiry("/status"), Some("/id"), &owed(known), 200, &HeaderMap::new(), body.as_bytes())
        };
        let other = found(r#"{"status":"succeeded","amount_minor":1251}"#, None);
        assert_eq!((other.finding, other.code), (Finding::Review, Code::EchoDiffers));
        assert!(
            other.message.contains("amount_minor") && other.message.contains("1251"),
            "{}",
            other.message
        );
        let same = found(r#"{"status":"succeeded","amount_minor":1250,"id":"B-1"}"#, None);
        assert_eq!((same.finding, same.bank_ref.as_deref()), (Finding::Succeeded, Some("B-1")));
        let changed = found(r#"{"status":"succeeded","id":"B-2"}"#, Some("B-1"));
        assert_eq!((changed.finding, changed.code), (Finding::Review, Code::BankRefDiffers));
        // Nothing is proved by trouble, whatever it repeats.
        let trouble =
            finding(&inquiry("/status"), None, &owed(None), 500, &HeaderMap::new(), br#"{"refund_id":8}"#);
        assert_eq!(trouble.finding, Finding::Nothing);
    }

    proptest::proptest! {
        #[test]
        fn no_answer_makes_it_panic_and_no_message_is_too_long(status in 100u16..1000, body: Vec<u8>) {
            let found = finding(&inquiry("/status"), Some("/id"), &owed(None), status, &HeaderMap::new(), &body);
            proptest::prop_assert!(found.message.chars().count() <= 500);
        }
    }
}
