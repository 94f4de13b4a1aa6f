//! Reads the bank's answer to an inquiry: status, headers and body in, inquiry outcome out. Pure.
//!
//! In a 200 only the three groups of status texts prove anything by themselves. A 404 means "not found" if the bank
//! itself wrote it. A proxy, or a server that lost its routes, sends a 404 as well, and that 404 proves nothing. Nor does a
//! "not found" with an `Age`: a cache stored it earlier, and the bank may have got the refund since.
//!
//! Of the channel's answer rules only those with "asked to wait" apply: a limiter before the bank refuses inquiries as it
//! refuses sends. The other outcomes speak of an executed or refused send.
//!
//! This file does not decide what "not found" is worth: `refund::inquiry` does.

use std::iter;

use hyper::HeaderMap;
use hyper::header::{AGE, HeaderValue};
use serde_json::Value;

use super::outcome::{
    Contradiction, about_body, asks_to_wait, contradiction, first_match, kept_reference, message, reference,
    retry_after,
};
use super::{Asked, json};
use crate::channel::{AnswerRule, Inquiry, ReferenceAt, RuleOutcome};
use crate::refund::Code;
use crate::refund::inquiry::{InquiryAnswer, InquiryOutcome};

/// Reads one whole answer to an inquiry. `rules` are the channel's; `reference_at` is the place of the bank's own reference.
#[must_use]
pub fn read_inquiry_answer<'r>(
    inquiry: &Inquiry,
    rules: &[AnswerRule],
    reference_at: Option<ReferenceAt<'_>>,
    asked: impl Into<Asked<'r>>,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
) -> InquiryAnswer {
    let asked = asked.into();
    let json = json::read(body).ok();
    let blank = body.iter().all(u8::is_ascii_whitespace);
    let rule =
        first_match(rules, status, json.as_ref()).filter(|(_, rule)| rule.outcome == RuleOutcome::SlowDown);
    let number = rule.map(|(number, _)| number);
    let (outcome, code) = match status {
        _ if rule.is_some() => {
            (InquiryOutcome::SlowDown { retry_after: retry_after(headers) }, Code::ChannelRule)
        }
        200 => match by_status_text(inquiry, json.as_ref()) {
            (InquiryOutcome::Nothing, _) if says_not_found(inquiry, json.as_ref()) => {
                (InquiryOutcome::NotFound, Code::NotFound)
            }
            other => other,
        },
        404 if !json.as_ref().is_some_and(Value::is_object) => (InquiryOutcome::Nothing, Code::NotJson),
        404 if inquiry.not_found.is_none() || says_not_found(inquiry, json.as_ref()) => {
            (InquiryOutcome::NotFound, Code::NotFound)
        }
        404 => (InquiryOutcome::Nothing, Code::Other404),
        429 | 425 => (InquiryOutcome::SlowDown { retry_after: retry_after(headers) }, Code::SlowDown),
        503 if asks_to_wait(status, headers, json.as_ref(), blank) => {
            (InquiryOutcome::SlowDown { retry_after: retry_after(headers) }, Code::SlowDown)
        }
        401 | 403 | 407 => (InquiryOutcome::Unauthorised, Code::Unauthorised),
        408 | 500..=599 => (InquiryOutcome::Nothing, Code::BankTrouble),
        300..=399 => (InquiryOutcome::Nothing, Code::Redirect),
        _ => (InquiryOutcome::Nothing, Code::Unmapped),
    };
    if outcome == InquiryOutcome::NotFound && was_stored(headers) {
        let message = format!(
            "HTTP {status}: a cache on the way to the bank stored this \"not found\" before the inquiry (it has an \
             `Age`), so it proves nothing; let no cache answer inquiries"
        );
        return InquiryAnswer {
            status: Some(status),
            ..InquiryAnswer::new(InquiryOutcome::Nothing, Code::StoredAnswer, message)
        };
    }
    let said = message(status, number, json.as_ref(), asked.secrets);
    let message = said + &about_body(code, headers, body, asked.secrets);
    let answer = InquiryAnswer { status: Some(status), ..InquiryAnswer::new(outcome, code, message) };
    let is_known = matches!(
        answer.outcome,
        InquiryOutcome::Succeeded | InquiryOutcome::Pending | InquiryOutcome::Rejected
    );
    let bank_ref = json.as_ref().filter(|_| is_known).and_then(|json| reference(reference_at, json));
    let not_found_at = inquiry.not_found.as_ref().filter(|_| !is_known).map(|(pointer, _)| pointer.as_str());
    let status_at = iter::once(inquiry.status.as_str()).chain(not_found_at);
    let contradiction = contradiction(asked, json.as_ref(), status_at, reference_at, bank_ref.as_deref());
    let names_another = contradiction.as_ref().is_some_and(|contradiction| contradiction.names_another);
    // An answer that says nothing of the refund is no reason for a review; the bank is asked again.
    let says_something = is_known || answer.outcome == InquiryOutcome::NotFound;
    if let Some(Contradiction { code, message, .. }) = contradiction.filter(|_| says_something) {
        let review = InquiryAnswer::new(InquiryOutcome::Review, code, message);
        return InquiryAnswer { status: Some(status), names_another, ..review };
    }
    InquiryAnswer { bank_ref: kept_reference(asked, bank_ref), names_another, ..answer }
}

/// Whether a cache stored the answer a second ago or earlier. An `Age` that cannot be read counts as well.
fn was_stored(headers: &HeaderMap) -> bool {
    let is_zero = |age: &HeaderValue| age.to_str().is_ok_and(|age| age.trim().parse::<u64>() == Ok(0));
    headers.get_all(AGE).iter().any(|age| !is_zero(age))
}

/// Whether the body holds the channel's text for "not found" at the channel's JSON pointer.
fn says_not_found(inquiry: &Inquiry, json: Option<&Value>) -> bool {
    let Some((pointer, wanted)) = &inquiry.not_found else { return false };
    json.and_then(|json| json.pointer(pointer)).is_some_and(|value| json::is_text(value, wanted))
}

fn by_status_text(inquiry: &Inquiry, json: Option<&Value>) -> (InquiryOutcome, Code) {
    let Some(json) = json else { return (InquiryOutcome::Nothing, Code::Unreadable) };
    let word = |value: &&Value| matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_));
    let Some(status) = json.pointer(&inquiry.status).filter(word) else {
        return (InquiryOutcome::Nothing, Code::NoStatus);
    };
    let is_one_of = |texts: &[String]| texts.iter().any(|known| json::is_text(status, known));
    if is_one_of(&inquiry.status_texts.succeeded) {
        (InquiryOutcome::Succeeded, Code::Succeeded)
    } else if is_one_of(&inquiry.status_texts.pending) {
        (InquiryOutcome::Pending, Code::Pending)
    } else if is_one_of(&inquiry.status_texts.rejected) {
        (InquiryOutcome::Rejected, Code::Rejected)
    } else {
        (InquiryOutcome::Nothing, Code::Unmapped)
    }
}

#[cfg(test)]
mod tests;
