//! The texts for people about a bank's answer, without account numbers and without secrets of the request.

use std::fmt::Write as _;

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::bank::Secrets;
use crate::refund::{Code, text};

/// The fields that banks use for explanations.
const FIELDS: [&str; 13] = [
    "status",
    "code",
    "errorCode",
    "errorType",
    "error",
    "fault",
    "faultstring",
    "message",
    "errorMessage",
    "error_description",
    "reason",
    "detail",
    "title",
];

/// Where these fields stand: how the text names the place, and its JSON pointer.
const PLACES: [(&str, &str); 5] = [
    ("", ""),
    ("error.", "/error"),
    ("errors.", "/errors"),
    ("errors[0].", "/errors/0"),
    ("fault.", "/fault"),
];

/// A short text for people. It names the channel's rule that decided, by its number in the file. Of the body it quotes
/// only the fields that banks use for explanations, without the secrets of the request.
pub(in crate::bank) fn message(
    status: u16,
    rule: Option<usize>,
    json: Option<&serde_json::Value>,
    secrets: Secrets<'_>,
) -> String {
    let mut said = format!("HTTP {status}");
    if let Some(number) = rule {
        let _ = write!(said, " (rule {number} of `verdict`)");
    }
    for (place, pointer) in PLACES {
        let Some(object) = json.and_then(|body| body.pointer(pointer)) else { continue };
        for field in FIELDS {
            let Some(value) = object.get(field).filter(|f| f.is_string() || f.is_number()) else { continue };
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let shown = text::first(redact(&secrets.hide(&shown)), 120);
            let _ = write!(said, ", {place}{field} \"{shown}\"");
        }
    }
    text::first(said, 500)
}

/// What helps to find out who wrote a body that cannot be read: what its headers say, and its length. Nothing for other
/// codes.
pub(in crate::bank) fn about_body(
    code: Code,
    headers: &HeaderMap,
    body: &[u8],
    secrets: Secrets<'_>,
) -> String {
    let mut said = String::new();
    if code == Code::NoBankRef {
        said.push_str(", no usable reference where `bank_ref` looks");
    }
    if !matches!(code, Code::Unreadable | Code::NoJson | Code::NotJson) {
        return said;
    }
    for (name, shown_name) in [(CONTENT_TYPE, "Content-Type"), (CONTENT_ENCODING, "Content-Encoding")] {
        let Some(value) = headers.get(name) else { continue };
        let value = String::from_utf8_lossy(value.as_bytes());
        let value = text::first(redact(&secrets.hide(&value)), 120);
        let _ = write!(said, ", {shown_name} \"{value}\"");
    }
    let _ = write!(said, ", body length {}", body.len());
    said
}

/// Hides runs of nine or more digits, because account and card numbers look so. Only a letter ends a run.
pub(super) fn redact(text: &str) -> String {
    if text.bytes().filter(u8::is_ascii_digit).count() < 9 && !text.contains(char::is_control) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut run = String::new();
    let mut digits = 0;
    let flush = |run: &mut String, digits: &mut usize, out: &mut String| {
        if *digits >= 9 {
            out.push_str("[digits]");
        } else {
            out.push_str(run);
        }
        run.clear();
        *digits = 0;
    };
    for character in text.chars().filter(|c| !c.is_control()) {
        if character.is_ascii_digit() {
            digits += 1;
            run.push(character);
        } else if digits > 0 && !character.is_alphanumeric() {
            run.push(character);
        } else {
            flush(&mut run, &mut digits, &mut out);
            out.push(character);
        }
    }
    flush(&mut run, &mut digits, &mut out);
    out
}
