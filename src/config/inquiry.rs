//! `inquiry` of a channel: how refundd asks its bank what became of a refund.

use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use serde_json::Value;

use crate::channel::{Authorization, Inquiry, StatusTexts};
use crate::refund::inquiry::Trust;

use super::address::{TO_A_BANK, require_address};
use super::authorization;
use super::duration::say;
use super::field::Field;
use super::granting::granting;
use super::limit::Limits;
use super::mask;
use super::pointer::require_pointer;
use super::section::Section;

pub(super) const KEYS: &[&str] = &[
    "url",
    "authorization_file",
    "authorization_credential",
    "not_found_is_final",
    "grace",
    "limits",
    "status",
    "succeeded",
    "pending",
    "rejected",
    "not_found",
];
const NOT_FOUND_KEYS: &[&str] = &["pointer", "equals"];
pub(super) const STATUS: &str = "/status";
pub(super) const GRACE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);

/// What the requirements of an inquiry need of its channel.
pub(super) struct OfChannel<'a> {
    /// Every limit of the file.
    pub(super) limits: &'a Limits,
    pub(super) endpoint: Option<&'a Uri>,
    /// Whether the channel has an `Authorization` header.
    pub(super) is_authorized: bool,
    pub(super) accepts_plain_http: bool,
    /// The channel's `timeout`; `None` after a complaint about it.
    pub(super) timeout: Option<Duration>,
}

/// Reads the inquiry; `None` after a complaint.
pub(super) fn read(section: &Section<'_>, of_channel: &OfChannel<'_>) -> Option<Arc<Inquiry>> {
    let &OfChannel { limits, endpoint, is_authorized, accepts_plain_http, timeout } = of_channel;
    let source = section.source;
    section.keys(KEYS, &[authorization::REFUSED]);
    let mut url = url(section, endpoint, accepts_plain_http);
    let authorization = authorization::read(section).map(Authorization);
    let not_found_is_final = section.boolean("not_found_is_final", false).value;
    let least = if not_found_is_final { timeout.unwrap_or_default() } else { Duration::ZERO };
    let mut grace = section.duration("grace", GRACE.max(least));
    grace.within(source, &(Duration::from_secs(1)..=DAY));
    grace.require(source, grace.value >= least, || {
        format!(
            "must be at least `timeout`, which is {timeout}, where `not_found_is_final` is true: until then the bank may still \
             execute the first request, and refundd would send the refund again; set `grace` to at least \"{timeout}\", \
             leave it out, or lower `timeout`",
            timeout = say(least)
        )
    });
    let limits = section.has("limits").then(|| granting(section, limits));
    let mut status = section.text("status", STATUS);
    require_pointer(source, &mut status);
    let status_texts = status_texts(section);
    let not_found = section
        .has("not_found")
        .then(|| not_found(&section.section("not_found"), &status.value, &status_texts));
    // A faulty list must not become `None`, which means the limits of the channel.
    let limits = match limits {
        Some(limits) => Some(limits?),
        None => None,
    };
    // A faulty `not_found` must not become `None`, which means any 404 with a JSON object.
    let not_found = match not_found {
        Some(not_found) => Some(not_found?),
        None => None,
    };
    let trust = Trust { not_found_is_final, grace: grace.value };
    let is_elsewhere = |url: &str| endpoint.is_some_and(|endpoint| !Inquiry::is_at(url, endpoint));
    let has_header = section.has("authorization_file") || section.has("authorization_credential");
    if let Some(url) = &mut url {
        let lacks_header = is_authorized && !has_header && is_elsewhere(&url.value);
        url.require(source, !lacks_header, || {
            "is at another host or port than `endpoint`, so it does not get the channel's `Authorization` header; name \
             a file for the inquiry's own header with `authorization_file` in `inquiry`, or a systemd credential with \
             `authorization_credential`"
        });
    }
    let url = url.filter(Field::is_sound)?.value;
    Some(Arc::new(Inquiry {
        url,
        authorization,
        trust,
        limits,
        status: status.value,
        status_texts,
        not_found,
    }))
}

fn url(section: &Section<'_>, endpoint: Option<&Uri>, accepts_plain_http: bool) -> Option<Field<String>> {
    let source = section.source;
    let mut field = section.required_text("url", "it is the address at which refundd asks about a refund")?;
    field.shown_as(&mask::endpoint(&field.value));
    let has_key = field.value.contains(Inquiry::KEY);
    field.require(source, has_key, || {
        "must hold `{request_id}` where the refund's key belongs, such as \"https://gateway.example/acme/refunds/{request_id}\""
    });
    let key = uuid::Uuid::nil().to_string();
    let uri: Option<Uri> = field.value.replace(Inquiry::KEY, &key).parse().ok();
    field.require(
        source,
        uri.is_some(),
        || "is not an address, such as \"https://gateway.example/acme/refunds/{request_id}\"",
    );
    let uri = uri?;
    require_address(source, &mut field, &uri, &TO_A_BANK, accepts_plain_http);
    let is_outside_host = uri.authority().is_none_or(|authority| !authority.as_str().contains(&key));
    field.require(
        source,
        is_outside_host,
        || "must hold `{request_id}` in its path or query, not in the host",
    );
    let is_secure = endpoint.is_some_and(|endpoint| endpoint.scheme_str() == Some("https"));
    field.require(
        source,
        !is_secure || uri.scheme_str() == Some("https"),
        || "must start with `https://` like the `endpoint`: the bank's answers decide about refunds, too",
    );
    field.is_sound().then_some(field)
}

/// The JSON pointer and the text by which this bank says that it does not know a refund.
fn not_found(section: &Section<'_>, status: &str, status_texts: &StatusTexts) -> Option<(String, String)> {
    let source = section.source;
    section.keys(NOT_FOUND_KEYS, &[]);
    let mut pointer = section.required_text("pointer", "it says where the bank's \"not found\" stands");
    let mut equals = section.required_text("equals", "it is the bank's \"not found\", as it stands there");
    if let Some(pointer) = &mut pointer {
        require_pointer(source, pointer);
    }
    if let Some(equals) = &mut equals {
        let blank = equals.value.is_empty();
        equals.require(source, !blank, || "must not be empty");
        let mut known =
            status_texts.succeeded.iter().chain(&status_texts.pending).chain(&status_texts.rejected);
        let same = pointer.as_ref().is_some_and(|pointer| pointer.value == status);
        let twice = same && known.any(|text| is_one_word(text, &equals.value));
        equals.require(source, !twice, || {
            "stands in one of the lists `succeeded`, `pending` and `rejected`, too: a word means one thing"
        });
    }
    Some((pointer?.value, equals?.value))
}

fn status_texts(section: &Section<'_>) -> StatusTexts {
    let list = |key: &str| -> Field<Vec<String>> {
        let mut list = section.texts(key, &[key]);
        let blank = list.value.iter().any(String::is_empty);
        list.require(section.source, !blank, || "must not hold an empty word");
        list
    };
    let mut status_texts = StatusTexts {
        succeeded: list("succeeded").value,
        pending: list("pending").value,
        rejected: Vec::new(),
    };
    let mut rejected = list("rejected");
    let all = || status_texts.succeeded.iter().chain(&status_texts.pending).chain(&rejected.value);
    let twice = all().find(|text| all().filter(|other| is_one_word(text, other)).count() > 1).cloned();
    rejected.require(section.source, twice.is_none(), || {
        format!("and the other lists name `{}` twice: a word means one thing", twice.unwrap_or_default())
    });
    status_texts.rejected = rejected.value;
    status_texts
}

/// Whether no answer can tell one word from the other. The number `1.0` is both `1.0` and `1.00`.
fn is_one_word(text: &str, other: &str) -> bool {
    let value = |text| serde_json::from_str::<Value>(text).ok();
    text == other || value(text).is_some_and(|one| value(other) == Some(one))
}
