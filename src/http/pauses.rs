//! Pauses: a person stops one channel or everything, and resumes. `GET /v1/suspensions` shows what suspends channels.
//!
//! A pause by a person and the suspensions by refundd itself are records of their own. Ending one leaves the others, so
//! each answer lists what still suspends the channel.

mod message;

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use super::named_channel::{in_path, is_known, no_such_channel};
use super::person::unknown_fields;
use super::who::of_a_person;
use super::{Api, Json, Problem, Who, json, to_the_end};
use crate::desk::channel::SuspensionStatus;
use crate::refund::draft::FieldError;
use crate::store::{Pause, Resumed, Store, StoreError, SuspendedBy, Suspension};

const MOST_BYTES: usize = 16 * 1024;
const MOST_SECONDS: u64 = 366 * 86_400;

#[derive(Debug, Serialize)]
pub(super) struct SuspensionListing {
    suspensions: Vec<SuspensionStatus>,
}

/// What became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PauseResult {
    Paused,
    Resumed,
    WasNotSuspended,
}

/// The result of one request, and what suspends the channel now.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    pub result: PauseResult,
    /// For people: what changed, what suspends the channel still, and the request that ends it.
    message: String,
    suspensions: Vec<SuspensionStatus>,
}

impl Done {
    /// Whether nothing suspends the channel, or everything, any more.
    pub(super) fn is_free(&self) -> bool {
        self.suspensions.is_empty()
    }
}

/// `GET /v1/suspensions`.
pub(super) async fn list(State(api): State<Api>, who: Who) -> Result<Json<SuspensionListing>, Problem> {
    let all = api.node.store.suspensions().await?.suspensions;
    let exists = |one: &Suspension| one.channel.as_ref().is_none_or(|channel| who.has_channel(channel));
    Ok(Json(SuspensionListing {
        suspensions: all.into_iter().filter(exists).map(SuspensionStatus::from).collect(),
    }))
}

/// `POST /v1/channels/{name}/pause`.
pub(super) async fn pause(
    State(api): State<Api>,
    who: Who,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<Done>, Problem> {
    let name = in_path(name)?;
    let wanted = read_pause(&body(&api, request).await?, &who).map_err(Problem::invalid)?;
    is_known(&who, &name)?;
    carry_out(api, Some(name), wanted).await.map(Json)
}

/// `POST /v1/pause`: everything.
pub(super) async fn pause_all(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Json<Done>, Problem> {
    let wanted = read_pause(&body(&api, request).await?, &who).map_err(Problem::invalid)?;
    has_all_channels(&who)?;
    carry_out(api, None, wanted).await.map(Json)
}

/// `POST /v1/channels/{name}/resume`. Safe to repeat: a second request changes nothing, and says so.
pub(super) async fn resume(
    State(api): State<Api>,
    who: Who,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<Done>, Problem> {
    let name = in_path(name)?;
    let wanted = read_resume(&body(&api, request).await?, &who, true).map_err(Problem::invalid)?;
    is_known(&who, &name)?;
    carry_out(api, Some(name), wanted).await.map(Json)
}

/// `POST /v1/resume`: ends the pause of everything. Channels that are paused on their own stay so.
pub(super) async fn resume_all(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Json<Done>, Problem> {
    let wanted = read_resume(&body(&api, request).await?, &who, false).map_err(Problem::invalid)?;
    has_all_channels(&who)?;
    carry_out(api, None, wanted).await.map(Json)
}

/// Does what a request wants, also when the caller hangs up, and answers what suspends the channel, or everything, now.
pub(super) async fn carry_out(api: Api, channel: Option<String>, wanted: Wanted) -> Result<Done, Problem> {
    let (about, ends) = (channel.clone(), wanted.verb.ends());
    let done = to_the_end(async move {
        let result = write(&api.node.store, channel.as_deref(), &wanted).await?;
        // This node knows at once, not only at its next heartbeat.
        api.node.read_suspensions().await?;
        Ok::<_, StoreError>((result, api.node.store.suspensions().await?.suspensions))
    });
    let (result, suspended) = done.await??;
    let result = result.ok_or_else(|| no_such_channel(about.as_deref().unwrap_or_default()))?;
    let is_about = |one: &Suspension| one.channel.is_none() || one.channel == about;
    let suspensions: Vec<_> = suspended.into_iter().filter(is_about).map(SuspensionStatus::from).collect();
    let message = message::message(result, about.as_deref(), ends, &suspensions);
    Ok(Done { result, message, suspensions })
}

/// Writes the change; `None` if there is no such channel.
async fn write(
    store: &Store,
    channel: Option<&str>,
    wanted: &Wanted,
) -> Result<Option<PauseResult>, StoreError> {
    let Wanted { reason, by, verb } = wanted;
    let why = Some(reason.as_str()).filter(|reason| !reason.is_empty());
    let resumed = match (verb, channel) {
        (Verb::Pause { lasts }, channel) => {
            let pause = Pause { reason, who: by, lasts: *lasts };
            let is_there = match channel {
                Some(channel) => store.pause(channel, &pause).await?,
                None => store.pause_all(&pause).await.map(|()| true)?,
            };
            return Ok(is_there.then_some(PauseResult::Paused));
        }
        (Verb::Resume, None) => store.resume_all(by, why).await?,
        (Verb::Resume, Some(channel)) => store.resume(channel, by, why).await?,
        (Verb::Release(own), channel) => store.release(channel.unwrap_or_default(), *own, by, why).await?,
    };
    Ok(match resumed {
        Resumed::Now => Some(PauseResult::Resumed),
        Resumed::WasNot => Some(PauseResult::WasNotSuspended),
        Resumed::NoSuchChannel => None,
    })
}

/// Refuses callers that have some channels only.
pub(super) fn has_all_channels(who: &Who) -> Result<(), Problem> {
    if who.has_all_channels() {
        return Ok(());
    }
    let detail =
        "only a caller with `channels = [\"*\"]` may pause or resume everything; name a channel instead";
    Err(Problem::new(StatusCode::FORBIDDEN, "not-all-channels", "Not all channels", detail))
}

/// What a request wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    reason: String,
    by: String,
    verb: Verb,
}

#[derive(Debug, PartialEq, Eq)]
enum Verb {
    Pause {
        lasts: Option<Duration>,
    },
    /// End a person's pause.
    Resume,
    /// End a suspension by refundd itself.
    Release(SuspendedBy),
}

impl Verb {
    /// The suspension that it ends; `None` for a pause.
    fn ends(&self) -> Option<SuspendedBy> {
        match self {
            Verb::Pause { .. } => None,
            Verb::Resume => Some(SuspendedBy::Person),
            Verb::Release(own) => Some(*own),
        }
    }
}

async fn body(api: &Api, request: Request) -> Result<Map<String, Value>, Problem> {
    let law = "must be a JSON object, such as {\"reason\": \"the bank is down\", \"by\": \"ann\"}";
    json::read_object(api, request, MOST_BYTES, law).await
}

pub(super) fn read_pause(object: &Map<String, Value>, who: &Who) -> Result<Wanted, Vec<FieldError>> {
    let mut wrong = unknown_fields(object, &["reason", "for_seconds", "by"]);
    let reason = of_a_person(object, "reason", 400, "why; others will ask", &mut wrong);
    let by = actor(object, who, &mut wrong);
    let lasts = object.get("for_seconds").filter(|value| !value.is_null()).and_then(|value| {
        let seconds = value.as_u64().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
        if seconds.is_none() {
            let expected = format!(
                "must be a whole number of seconds from 1 to {MOST_SECONDS}; leave it out to pause until somebody resumes"
            );
            wrong.push(FieldError::new("for_seconds", Some(value), expected));
        }
        seconds.map(Duration::from_secs)
    });
    if wrong.is_empty() { Ok(Wanted { reason, by, verb: Verb::Pause { lasts } }) } else { Err(wrong) }
}

/// `is_one`: about one channel, and not about everything.
pub(super) fn read_resume(
    object: &Map<String, Value>,
    who: &Who,
    is_one: bool,
) -> Result<Wanted, Vec<FieldError>> {
    let mut wrong =
        unknown_fields(object, if is_one { &["lift", "reason", "by"] } else { &["reason", "by"] });
    let reason = match object.get("reason") {
        None | Some(Value::Null) => String::new(),
        Some(_) => of_a_person(object, "reason", 400, "why", &mut wrong),
    };
    let by = actor(object, who, &mut wrong);
    let verb = match object.get("lift").map(|value| (value, value.as_str())) {
        None | Some((_, Some("pause"))) => Verb::Resume,
        Some((_, Some("credentials"))) => Verb::Release(SuspendedBy::Credentials),
        Some((_, Some("breaker"))) => Verb::Release(SuspendedBy::Breaker),
        Some((value, _)) => {
            wrong.push(FieldError::new("lift", Some(value), "must be pause, credentials or breaker"));
            Verb::Resume
        }
    };
    if wrong.is_empty() { Ok(Wanted { reason, by, verb }) } else { Err(wrong) }
}

/// Who acts: the caller, or, while the configuration has none, the name in the request.
fn actor(object: &Map<String, Value>, who: &Who, wrong: &mut Vec<FieldError>) -> String {
    match who.name() {
        Some(name) => {
            wrong.extend(who.check_name("by", object.get("by")).err());
            name.to_string()
        }
        None => of_a_person(object, "by", 100, "who does it; others will ask", wrong),
    }
}

#[cfg(test)]
mod tests;
