//! A bank's answer that was read whole: the status, the headers and the body of an answer to a send, to an inquiry, and of
//! a token server.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::{CONFIG, head_and_rest};
use crate::bank::fuzzing::token_answer;
use crate::bank::inquiry_outcome::read_inquiry_answer;
use crate::bank::outcome::read_answer;
use crate::refund::inquiry::InquiryOutcome;
use crate::refund::{ExpectedEcho, Outcome, card, text};

const DAY: Duration = Duration::from_hours(24);

/// Checks the texts that the journal and the row keep of an answer.
pub(super) fn is_fit_for_the_journal(message: &str, bank_ref: Option<&str>) {
    assert!(message.chars().count() <= 500 && !message.contains(text::is_hidden), "{message:?}");
    assert!(!card::is_in(message), "{message:?}");
    if let Some(reference) = bank_ref {
        assert!((1..=200).contains(&reference.chars().count()) && !reference.contains('\0'), "{reference:?}");
        assert!(reference.contains('*') || !card::is_in(reference), "{reference:?}");
    }
}

/// The input is a status, headers, a blank line and a body. The journal's texts are short and clean, no wait is longer than
/// a day, and an answer about another amount settles nothing. Nor does a body that is no JSON where rules look into it.
pub fn target(input: &[u8]) {
    let (lines, body) = head_and_rest(input);
    let Some((status, fields)) = lines.split_first() else { return };
    let Some(status) = status.trim().parse::<u16>().ok().filter(|status| (100..1000).contains(status)) else {
        return;
    };
    let mut headers = HeaderMap::new();
    for field in fields {
        let Some((name, value)) = field.split_once(':') else { continue };
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.trim().as_bytes()), HeaderValue::from_bytes(value.trim().as_bytes()))
        {
            headers.append(name, value);
        }
    }
    let unmarked = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    let json: Option<Value> = serde_json::from_slice(unmarked).ok();
    let amount = json.as_ref().and_then(|json| json.get("amount_minor")?.as_i64());
    let is_about_another = amount.is_some_and(|amount| amount != 1250);
    let is_no_json = json.is_none() && !body.trim_ascii().is_empty();
    let expected = ExpectedEcho::sample();
    for channel in CONFIG.channels.values() {
        let answer = read_answer(channel, &expected, status, &headers, body);
        is_fit_for_the_journal(&answer.message, answer.bank_ref.as_deref());
        if is_no_json && channel.answer_rules.iter().any(|rule| rule.reads_body_of(status)) {
            let settles =
                matches!(answer.outcome, Outcome::Succeeded | Outcome::Accepted | Outcome::Rejected);
            assert!(!settles, "{status} is {answer:?}");
        }
        match answer.outcome {
            Outcome::SlowDown { retry_after } => assert!(retry_after.is_none_or(|wait| wait <= DAY)),
            Outcome::Succeeded | Outcome::Accepted => {
                assert!((200..300).contains(&status) && !is_about_another, "{status} is {answer:?}");
            }
            Outcome::Rejected => assert!(!is_about_another, "{answer:?}"),
            Outcome::HandedBack => panic!("the whole request left, and it is {answer:?}"),
            Outcome::NotExecuted
            | Outcome::Unauthorised
            | Outcome::Unknown
            | Outcome::Conflict
            | Outcome::Review => {}
        }
        let Some(inquiry) = &channel.inquiry else { continue };
        let at = channel.reference_at();
        let answer =
            read_inquiry_answer(inquiry, &channel.answer_rules, at, &expected, status, &headers, body);
        is_fit_for_the_journal(&answer.message, answer.bank_ref.as_deref());
        match answer.outcome {
            InquiryOutcome::SlowDown { retry_after } => assert!(retry_after.is_none_or(|wait| wait <= DAY)),
            InquiryOutcome::Succeeded | InquiryOutcome::Pending | InquiryOutcome::Rejected => {
                assert!(status == 200 && !is_about_another, "{status} is {answer:?}");
            }
            InquiryOutcome::NotFound => {
                assert!((status == 404 || status == 200) && !is_about_another, "{status} is {answer:?}");
            }
            InquiryOutcome::Nothing
            | InquiryOutcome::Review
            | InquiryOutcome::Unauthorised
            | InquiryOutcome::HandedBack => {}
        }
    }
    match token_answer(status, body) {
        Ok((header, life)) => {
            assert!(header.starts_with("Bearer ") && status == 200, "{status}");
            assert!((Duration::from_secs(1)..=DAY).contains(&life), "{life:?}");
        }
        Err(why) => assert!(!why.is_empty() && why.chars().count() <= 500, "{why}"),
    }
}
