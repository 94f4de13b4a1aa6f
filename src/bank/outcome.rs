//! Reads the bank's answer to a send: status, headers and body in, outcome out. Pure, and tested as a table.
//!
//! A channel's own rules come first, in order; then the built-in table. An answer that neither maps is `unknown`. The
//! bank may have executed such a refund, so refundd never takes it for executed or for not executed. Where rules read the
//! body of a 2xx and none matches, the table decides only by a `status`: the bank's verdict stands in another place.
//!
//! An answer without a body is whole only if its headers say so. Without such headers the body ends with the
//! connection, and then an answer that was cut off looks like an empty answer.

mod contradiction;
mod errors;
mod retry_after;
mod texts;

use hyper::HeaderMap;
use hyper::header::{CONTENT_LENGTH, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING};

use super::Asked;
use super::json::{self, UnreadBody};
use crate::channel::{AnswerRule, Channel, ReferenceAt, RuleOutcome};
use crate::refund::{Answer, Code, Outcome, card, text};
pub(super) use contradiction::{Contradiction, contradiction};
use errors::{must_not_take, names_an_error, spells_status_otherwise};
pub(super) use retry_after::retry_after;
pub(super) use texts::{about_body, message};

/// Reads one whole answer to a send.
#[must_use]
pub fn read_answer<'r>(
    channel: &Channel,
    asked: impl Into<Asked<'r>>,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
) -> Answer {
    let asked = asked.into();
    let json = json::read(body);
    let says_two_things = json == Err(UnreadBody::SaysTwoThings);
    let json = json.ok();
    let blank = body.iter().all(u8::is_ascii_whitespace);
    let rules = &channel.answer_rules;
    let is_unread = is_unread(status, headers, json.as_ref(), blank)
        || json.as_ref().is_some_and(|json| holds_no_verdict(rules, status, json));
    let by_rule = by_rule(rules, status, headers, json.as_ref());
    let found = json.as_ref().and_then(|json| reference(channel.reference_at(), json));
    let lacks_reference = channel.bank_ref.is_some() && found.is_none();
    let rule = by_rule.as_ref().map(|(number, _)| *number);
    let (outcome, code) = match by_rule {
        _ if (says_two_things || is_unread && takes_an_unread_verdict(rules, status, by_rule.as_ref()))
            && is_in_doubt(rules, status, by_rule.as_ref()) =>
        {
            (Outcome::Unknown, Code::Unreadable)
        }
        Some((_, outcome)) => (outcome, Code::ChannelRule),
        None => by_default(rules, status, headers, json.as_ref(), blank, lacks_reference),
    };
    let said = message(status, rule.filter(|_| code == Code::ChannelRule), json.as_ref(), asked.secrets);
    let message = text::first(said + &about_body(code, headers, body, asked.secrets), 500);
    let answer = Answer { status: Some(status), ..Answer::new(outcome, code, message) };
    let settles = matches!(answer.outcome, Outcome::Succeeded | Outcome::Accepted);
    let bank_ref = found.filter(|_| settles);
    let of_status = rules.iter().filter(|rule| rule.status == status);
    let status_at = of_status.filter_map(|rule| Some(rule.body.as_ref()?.0.as_str()));
    let reference_at = channel.reference_at();
    let contradiction = contradiction(asked, json.as_ref(), status_at, reference_at, bank_ref.as_deref());
    // Some answers are about the channel, or say that this request was not executed. They count whatever else they repeat, but
    // not if they name another refund.
    let executed_nothing = answer.outcome.executed_nothing();
    if let Some(Contradiction { code, message, names_another }) =
        contradiction.filter(|contradiction| contradiction.names_another || !executed_nothing)
    {
        return Answer { status: Some(status), names_another, ..Answer::new(Outcome::Review, code, message) };
    }
    Answer { bank_ref: kept_reference(asked, bank_ref), ..answer }
}

/// The reference that the row and the journal keep of an answer without a [`contradiction`]. A reference of before stays
/// where only one of the two is masked: it names the same refund.
pub(super) fn kept_reference(Asked { expected, .. }: Asked<'_>, bank_ref: Option<String>) -> Option<String> {
    let before = expected.bank_ref.as_ref();
    bank_ref.filter(|now| before.is_none_or(|before| before == now))
}

/// Whether the rule that decided takes a body in which a rule before it could not look for the verdict. `unknown` and
/// `review` may take it.
fn takes_an_unread_verdict(rules: &[AnswerRule], status: u16, by_rule: Option<&(usize, Outcome)>) -> bool {
    by_rule.is_some_and(|(_, outcome)| !matches!(outcome, Outcome::Unknown | Outcome::Review))
        && rules.iter().any(|rule| rule.reads_body_of(status))
}

/// Whether the body is JSON in which no rule for this status can look: no object, such as `null` or a text, and no list into
/// which a pointer leads. Where a pointer ends at an object, that only lacks the field, and a list only lacks the place.
fn holds_no_verdict(rules: &[AnswerRule], status: u16, json: &serde_json::Value) -> bool {
    let can_look = |pointer: &str| {
        // As far as it leads, and the next name behind that.
        let mut ends = pointer.rmatch_indices('/').map(|(at, _)| (&pointer[..at], &pointer[at + 1..]));
        let last = ends.find_map(|(path, rest)| Some((json.pointer(path)?, rest.split('/').next()?)));
        json.pointer(pointer).is_some()
            || last.is_some_and(|(value, name)| {
                value.is_object() || value.is_array() && name.parse::<usize>().is_ok()
            })
    };
    let mut pointers =
        rules.iter().filter(|rule| rule.status == status).filter_map(|rule| rule.body.as_ref());
    !json.is_object() && !pointers.any(|(pointer, _)| can_look(pointer))
}

/// Whether a refund whose answer cannot be read may be executed: by the rule that decided, or by one about the body.
fn is_in_doubt(rules: &[AnswerRule], status: u16, by_rule: Option<&(usize, Outcome)>) -> bool {
    match by_rule.map(|(_, outcome)| outcome) {
        Some(Outcome::Succeeded | Outcome::Accepted | Outcome::Rejected) => true,
        // By a 409 the bank says that it knows the key.
        None | Some(Outcome::Conflict) if status == 409 => false,
        _ => rules.iter().any(|rule| rule.may_find_executed(status)),
    }
}

/// The meaning of an answer that no rule matches.
fn by_default(
    rules: &[AnswerRule],
    status: u16,
    headers: &HeaderMap,
    json: Option<&serde_json::Value>,
    blank: bool,
    lacks_reference: bool,
) -> (Outcome, Code) {
    let has_status = json.is_some_and(|json| json.get("status").is_some());
    match status {
        // A proxy's page, or an unknown format, may mean anything.
        200..=299 if is_unread(status, headers, json, blank) => {
            (Outcome::Unknown, if blank { Code::EmptyUnframed } else { Code::Unreadable })
        }
        // The bank's verdict stands where the rules look, whichever 2xx it comes with. One that they do not list may mean
        // "declined".
        200..=299 if !has_status && rules.iter().any(AnswerRule::reads_body_of_2xx) => {
            (Outcome::Unknown, Code::Unmapped)
        }
        _ => match by_table(status, headers, json, blank) {
            // The bank names its reference in each success, so this answer may be of a program before the bank.
            (Outcome::Succeeded, _) if !has_status && lacks_reference => (Outcome::Unknown, Code::NoBankRef),
            read => read,
        },
    }
}

/// Whether a body is no JSON, or may have been cut off. A number that was cut off is still a number. An answer without a
/// body is read where the headers say that it has none.
fn is_unread(status: u16, headers: &HeaderMap, json: Option<&serde_json::Value>, blank: bool) -> bool {
    let is_framed = is_framed(status, headers);
    json.map_or(!(blank && is_framed), |json| json.is_number() && !is_framed)
}

/// Whether the headers say where the body ends; otherwise the body ends with the connection. The HTTP client reads by
/// these rules too: RFC 9112, section 6.3.
fn is_framed(status: u16, headers: &HeaderMap) -> bool {
    let is_chunked = |coding: &HeaderValue| {
        let last = coding.to_str().ok().and_then(|codings| codings.rsplit(',').next());
        last.is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"))
    };
    match headers.get_all(TRANSFER_ENCODING).iter().next_back() {
        _ if status == 204 => true,
        Some(coding) => is_chunked(coding),
        None => headers.contains_key(CONTENT_LENGTH),
    }
}

/// The part of an answer's message that may be logged: of an echo mismatch the field alone, because the values are
/// amounts and references. The journal keeps the whole message.
#[must_use]
pub fn for_the_log(code: Code, message: &str) -> &str {
    let field_ends = if code == Code::EchoDiffers { message.find(':') } else { None };
    &message[..field_ends.unwrap_or(message.len())]
}

/// The bank's own reference, at the channel's JSON pointer. `None` for a value that cannot be stored: it is no text
/// or number, is empty, is longer than 200 characters or has a zero byte. A card number in it is masked, unless the
/// channel accepts such numbers.
pub(super) fn reference(at: Option<ReferenceAt<'_>>, json: &serde_json::Value) -> Option<String> {
    let ReferenceAt { pointer, accepts_card_numbers } = at?;
    let text = match json.pointer(pointer)? {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let is_storable = (1..=200).contains(&text.chars().count()) && !text.contains('\0');
    let masked = || card::masked(&text).into_owned();
    is_storable.then(|| if accepts_card_numbers { text.clone() } else { masked() })
}

/// The first rule that matches: its number in the file, from 1, and the outcome that it gives.
fn by_rule(
    rules: &[AnswerRule],
    status: u16,
    headers: &HeaderMap,
    json: Option<&serde_json::Value>,
) -> Option<(usize, Outcome)> {
    let (number, rule) = first_match(rules, status, json)?;
    let outcome = match rule.outcome {
        RuleOutcome::Succeeded => Outcome::Succeeded,
        RuleOutcome::Accepted => Outcome::Accepted,
        RuleOutcome::Rejected => Outcome::Rejected,
        RuleOutcome::NotExecuted => Outcome::NotExecuted,
        RuleOutcome::SlowDown => Outcome::SlowDown { retry_after: retry_after(headers) },
        // By a 409 the bank says that it knows the key, also where a rule calls the answer unknown. If a resend gets
        // this answer, a further resend would get it again.
        RuleOutcome::Unknown if status == 409 => Outcome::Conflict,
        RuleOutcome::Unknown => Outcome::Unknown,
        RuleOutcome::Review => Outcome::Review,
    };
    Some((number, outcome))
}

/// The first rule that matches, with its number in the file, from 1.
pub(super) fn first_match<'r>(
    rules: &'r [AnswerRule],
    status: u16,
    json: Option<&serde_json::Value>,
) -> Option<(usize, &'r AnswerRule)> {
    let matches = |rule: &AnswerRule| {
        // Every condition is named, so that a new one does not compile until it is checked here.
        let AnswerRule { status: wanted, body, outcome: _ } = rule;
        *wanted == status
            && !must_not_take(rule, rules, json)
            && body.as_ref().is_none_or(|(pointer, wanted)| {
                json.and_then(|json| json.pointer(pointer)).is_some_and(|value| json::is_text(value, wanted))
            })
    };
    (1..).zip(rules).find(|(_, rule)| matches(rule))
}

fn by_table(
    status: u16,
    headers: &HeaderMap,
    json: Option<&serde_json::Value>,
    blank: bool,
) -> (Outcome, Code) {
    let status_text = json.and_then(|body| body.get("status"));
    match status {
        // `"declined"` and `false` are JSON values as well.
        200..=299 if json.is_some_and(|json| !json.is_object()) => (Outcome::Unknown, Code::Unmapped),
        // A gateway answers so when it gave up, and the bank may have paid.
        200..=299 if json.is_some_and(names_an_error) => (Outcome::Unknown, Code::Unmapped),
        200..=299 if json.is_some_and(spells_status_otherwise) => (Outcome::Unknown, Code::Unmapped),
        200..=299 => match status_text.map(|w| w.as_str().unwrap_or("")) {
            None | Some("succeeded") if status != 202 => (Outcome::Succeeded, Code::Succeeded),
            None | Some("succeeded" | "pending") => (Outcome::Accepted, Code::Accepted),
            Some("rejected") => (Outcome::Rejected, Code::Rejected),
            // A status text that refundd does not know may mean "declined".
            Some(_) => (Outcome::Unknown, Code::Unmapped),
        },
        429 | 425 => (Outcome::SlowDown { retry_after: retry_after(headers) }, Code::SlowDown),
        503 if asks_to_wait(status, headers, json, blank) => {
            (Outcome::SlowDown { retry_after: retry_after(headers) }, Code::SlowDown)
        }
        401 | 403 | 407 => (Outcome::Unauthorised, Code::Unauthorised),
        400 | 404 | 410 | 413 | 415 | 422 if explains(json) => (Outcome::Rejected, Code::Rejected),
        400 | 404 | 410 | 413 | 415 | 422 => (Outcome::Review, Code::NoJson),
        409 => (Outcome::Conflict, Code::BankTrouble),
        408 | 500 | 502 | 503 | 504 => (Outcome::Unknown, Code::BankTrouble),
        300..=399 => (Outcome::Unknown, Code::Redirect),
        _ => (Outcome::Unknown, Code::Unmapped),
    }
}

/// The statuses by which the bank or a gateway refuses a request that it did not execute, whatever the body says. Those to which a
/// rule gives another meaning are not among them.
pub(super) fn refusals(rules: &[AnswerRule]) -> Vec<u16> {
    let asks_to_wait = |rule: &AnswerRule| rule.body.is_none() && rule.outcome == RuleOutcome::SlowDown;
    let is_plain = |status: &u16| rules.iter().all(|rule| rule.status != *status || asks_to_wait(rule));
    [401, 403, 407, 425, 429].into_iter().filter(is_plain).collect()
}

/// Whether the body is the bank's own explanation: an object or an array. A text page may be valid JSON by chance, such as `404`.
fn explains(json: Option<&serde_json::Value>) -> bool {
    json.is_some_and(|json| json.is_object() || json.is_array())
}

/// Whether the bank itself asks to wait by a 503 with `Retry-After`. A proxy such as Varnish sends that header with a page of
/// its own after each failure of the bank. The bank may have executed the refund by then.
pub(super) fn asks_to_wait(
    status: u16,
    headers: &HeaderMap,
    json: Option<&serde_json::Value>,
    blank: bool,
) -> bool {
    headers.contains_key(RETRY_AFTER) && (explains(json) || blank && is_framed(status, headers))
}

#[cfg(test)]
mod tests;
