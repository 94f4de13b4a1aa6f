//! Pauses: a person stops one channel or everything, and resumes. `GET /v1/suspensions` shows what suspends channels.
//!
//! A pause by a person and the suspensions by refundd itself are records of their own. Ending one leaves the others, so
//! each answer lists what still suspends the channel.

mod message;
mod pause_request;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use super::named_channel::{ChannelOrAll, known, no_such_channel, one_or_all};
use super::{Api, Json, Problem, Who, json, to_the_end};
use crate::desk::channel::SuspensionStatus;
use crate::logs::chain;
use crate::store::{Pause, Paused, Resumed, Store, StoreError, SuspendedBy, Suspension, SuspensionEnd};
use pause_request::{PauseRequest, PauseVerb};

pub(super) use pause_request::{read_pause, read_resume};

const MOST_BYTES: usize = 16 * 1024;

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
    /// What a resume ended.
    pub ended: Option<SuspensionStatus>,
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

/// `POST /v1/channels/{name}/pause`, and `POST /v1/pause`: everything.
pub(super) async fn pause(
    State(api): State<Api>,
    who: Who,
    name: ChannelOrAll,
    request: Request,
) -> Result<Json<Done>, Problem> {
    let name = one_or_all(name)?;
    let wanted = read_pause(&body(&api, request).await?, &who).map_err(Problem::invalid)?;
    has_channels(&who, name.as_deref())?;
    carry_out(api, name, wanted).await.map(Json)
}

/// `POST /v1/channels/{name}/resume`, safe to repeat if it names the suspension that it saw; and `POST /v1/resume`: ends the pause
/// of everything. Channels that are paused on their own stay so.
pub(super) async fn resume(
    State(api): State<Api>,
    who: Who,
    name: ChannelOrAll,
    request: Request,
) -> Result<Json<Done>, Problem> {
    let name = one_or_all(name)?;
    let is_one = name.is_some();
    let wanted = read_resume(&body(&api, request).await?, &who, is_one).map_err(Problem::invalid)?;
    has_channels(&who, name.as_deref())?;
    carry_out(api, name, wanted).await.map(Json)
}

/// Does what a request wants, also when the caller hangs up, and answers what suspends the channel, or everything, now.
///
/// # Errors
/// Also with 409, and nothing is changed, when the suspension is another one than the request saw; and with `written-unread`
/// when all is changed, and what suspends the channel now cannot be read.
pub(super) async fn carry_out(
    api: Api,
    channel: Option<String>,
    wanted: PauseRequest,
) -> Result<Done, Problem> {
    let (about, cause) = (channel.clone(), wanted.cause(channel.is_some()));
    let ends = matches!(wanted.verb, PauseVerb::End { .. }).then_some(cause);
    let done = to_the_end(async move {
        let wrote = write(&api.node.store, channel.as_deref(), &wanted).await?;
        Ok::<_, StoreError>((wrote, suspended_now(&api).await))
    });
    let (wrote, suspended) = done.await??;
    let (result, ended) = match wrote {
        Wrote::Paused => (PauseResult::Paused, None),
        Wrote::Resumed(ended) => (PauseResult::Resumed, Some(ended)),
        Wrote::WasNot => (PauseResult::WasNotSuspended, None),
        Wrote::Changed(now) => return Err(changed(about.as_deref(), cause, now)),
        Wrote::NoSuchChannel => return Err(no_such_channel(about.as_deref().unwrap_or_default())),
    };
    let suspended = match (suspended, result) {
        (Ok(suspended), _) => suspended,
        (Err(error), PauseResult::WasNotSuspended) => return Err(error.into()),
        (Err(error), PauseResult::Paused | PauseResult::Resumed) => {
            return Err(written_unread(about.as_deref(), ends, result, &error));
        }
    };
    let is_about = |one: &Suspension| one.channel.is_none() || one.channel == about;
    let suspensions: Vec<_> = suspended.into_iter().filter(is_about).map(SuspensionStatus::from).collect();
    let ended = ended.map(|ended| SuspensionStatus::from(ended).ended());
    let message = message::message(about.as_deref(), ends, ended.as_ref(), &suspensions);
    Ok(Done { result, message, ended, suspensions })
}

/// What suspends channels now. So this node knows at once, too, and not only at its next heartbeat.
async fn suspended_now(api: &Api) -> Result<Vec<Suspension>, StoreError> {
    api.node.read_suspensions().await?;
    Ok(api.node.store.suspensions().await?.suspensions)
}

/// The problem of a change that is committed, while nobody can say what suspends the channel now. A caller that takes it for not
/// made would repeat it, and end or replace what somebody else began meanwhile.
fn written_unread(
    channel: Option<&str>,
    ends: Option<SuspendedBy>,
    result: PauseResult,
    error: &StoreError,
) -> Problem {
    let detail = message::written_unread(channel, ends);
    tracing::warn!(error = %chain(error), "Answered a pause or a resume 503: {detail}");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "written-unread", "Written, and not read back", detail)
        .with("result", serde_json::to_value(result).unwrap_or_default())
}

/// The problem of a suspension that is another one than the request saw.
fn changed(channel: Option<&str>, cause: SuspendedBy, now: Option<Suspension>) -> Problem {
    let now = now.map(SuspensionStatus::from);
    let detail = message::changed(channel, cause, now.as_ref());
    Problem::new(StatusCode::CONFLICT, "suspension-changed", "Another suspension", detail)
        .with("suspension", serde_json::to_value(now).unwrap_or_default())
}

/// What a request changed.
#[derive(Debug)]
enum Wrote {
    Paused,
    Resumed(Suspension),
    WasNot,
    /// Nothing: this suspension is there instead of the one that the request saw.
    Changed(Option<Suspension>),
    NoSuchChannel,
}

async fn write(store: &Store, channel: Option<&str>, wanted: &PauseRequest) -> Result<Wrote, StoreError> {
    let PauseRequest { reason, by: who, verb } = wanted;
    Ok(match *verb {
        PauseVerb::Pause { lasts, seen } => {
            match store.pause_seen(channel, &Pause { reason, who, lasts }, seen).await? {
                Paused::Now => Wrote::Paused,
                Paused::Changed(now) => Wrote::Changed(now),
                Paused::NoSuchChannel => Wrote::NoSuchChannel,
            }
        }
        PauseVerb::End { by, seen } => {
            let reason = Some(reason.as_str()).filter(|reason| !reason.is_empty());
            match store.end(&SuspensionEnd { channel, by, who, reason, seen }).await? {
                Resumed::Now(ended) => Wrote::Resumed(ended),
                Resumed::Changed(now) => Wrote::Changed(Some(now)),
                Resumed::WasNot => Wrote::WasNot,
                Resumed::NoSuchChannel => Wrote::NoSuchChannel,
            }
        }
    })
}

/// Refuses a channel that the caller does not have; and everything, `None`, to callers that have some channels only.
pub(super) fn has_channels(who: &Who, channel: Option<&str>) -> Result<(), Problem> {
    if let Some(name) = channel {
        return known(who, name).map(drop);
    }
    if who.has_all_channels() {
        return Ok(());
    }
    let detail =
        "only a caller with `channels = [\"*\"]` may pause or resume everything; name a channel instead";
    Err(Problem::new(StatusCode::FORBIDDEN, "not-all-channels", "Not all channels", detail))
}

async fn body(api: &Api, request: Request) -> Result<Map<String, Value>, Problem> {
    let rule = "must be a JSON object, such as {\"reason\": \"the bank is down\", \"by\": \"ann\"}";
    json::read_object(api, request, MOST_BYTES, rule).await
}
