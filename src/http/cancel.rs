//! Cancels one refund that was never executed.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use super::body::{self, BodyKind};
use super::look::Named;
use super::person::read_version;
use super::who::of_a_person;
use super::{Api, Json, Problem, Who, json};
use crate::bucket::Bucket;
use crate::caller::scope::CallerScope;
use crate::logs::chain;
use crate::refund::draft::FieldError;
use crate::refund::{ChannelName, Refund, RefundId, State as RefundState};
use crate::store::{Cancelled, Canceller};

/// The most bytes of a body.
const MOST_BYTES: usize = 8192;

/// When a caller should repeat a cancellation that met the refund while it was sending, each time.
const MOVING_RETRY_AFTER_S: u32 = 1;

/// What a request to cancel a refund says.
#[derive(Debug)]
pub(super) struct Cancellation {
    /// The version that the caller saw, if it names one.
    seen: Option<i32>,
    pub canceller: Canceller,
}

/// A cancelled refund, for a caller that may not look at refunds. Otherwise it would read the refunds of others by cancelling one
/// id after the other: a refund that is cancelled already is answered as well.
#[derive(Debug, Serialize)]
struct CancelledRefund {
    id: RefundId,
    state: RefundState,
    version: i32,
}

/// Takes the id of a refund that has ended out of its bucket, in the background. A failure does no harm.
fn withdraw(bucket: Bucket, channel: ChannelName, id: RefundId) {
    tokio::spawn(async move {
        if let Err(error) = bucket.withdraw(&channel, &[id]).await {
            tracing::debug!(refund.id = %id, error = %chain(&error), "Failed to take refund {id} out of the bucket of channel `{channel}`");
        }
    });
}

/// `POST /v1/refunds/{id}/cancel`. It needs no body; a body may name the version that the caller saw,
/// a reason and a person.
pub(super) async fn cancel(
    State(api): State<Api>,
    who: Who,
    Named(id): Named,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    // A form on a web page always has a content type, and never that of JSON.
    if head.headers.contains_key(CONTENT_TYPE) {
        body::kind(&head.headers, &[BodyKind::Json])?;
    }
    let bytes = api.bodies.read(&head, body, MOST_BYTES).await?;
    let cancellation = read(&bytes, &who)?;
    let refund = carry_out(api, &who, id, cancellation).await?;
    if who.may(CallerScope::Look) {
        return Ok(Json(refund).into_response());
    }
    let Refund { id, state, version, .. } = refund;
    Ok(Json(CancelledRefund { id, state, version }).into_response())
}

/// Cancels a refund, and answers it, also when the caller hangs up.
pub(super) async fn carry_out(
    api: Api,
    who: &Who,
    id: RefundId,
    cancellation: Cancellation,
) -> Result<Refund, Problem> {
    let bucket = api.node.bucket.clone();
    let Cancellation { seen, canceller } = cancellation;
    let place = api.place_to_cancel(who).await?;
    let cancelled = place.run(async move { Ok(api.node.store.cancel(id, seen, &canceller).await?) }).await?;
    if let Cancelled::Now(refund) = &cancelled
        && let Ok(channel) = ChannelName::new(&refund.channel)
    {
        withdraw(bucket, channel, refund.id);
    }
    match cancelled {
        Cancelled::Now(refund) | Cancelled::Already(refund) => Ok(refund),
        Cancelled::NoSuchRefund => Err(Problem::no_such_refund(&id.to_string())),
        Cancelled::TooLate(refund) => {
            let detail = match refund.state {
                RefundState::Ready => format!(
                    "refund {id} was sent before: only a refund of which no byte ever left can be cancelled here; POST \
                     /v1/refunds/{id}/cancel withdraws it"
                ),
                state => format!("refund {id} is {state}: only a refund that is ready can be cancelled"),
            };
            Err(Problem::new(StatusCode::CONFLICT, "too-late", "Too late to cancel", detail)
                .with("id", refund.id.0)
                .with("state", refund.state.as_str()))
        }
        Cancelled::Changed(refund) => {
            let detail = format!(
                "refund {id} has moved since that version: it is {} at version {}; look at it again before deciding",
                refund.state, refund.version
            );
            Err(changed(&refund, detail))
        }
        Cancelled::Moving(refund) => {
            let detail = format!(
                "refund {id} changed its state at each try to cancel it, and is ready again at version {}: repeat the request",
                refund.version
            );
            Err(changed(&refund, detail).retry_after(MOVING_RETRY_AFTER_S))
        }
    }
}

fn changed(refund: &Refund, detail: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, "changed", "Changed since", detail)
        .with("id", refund.id.0)
        .with("state", refund.state.as_str())
        .with("version", refund.version)
}

/// Reads the body of a request. Every field may be missing.
fn read(bytes: &[u8], who: &Who) -> Result<Cancellation, Problem> {
    if bytes.is_empty() {
        return read_fields(&Map::new(), who);
    }
    let rule = "must be {\"version\": 7, \"reason\": \"…\", \"by\": \"…\"}, some of these fields, or nothing";
    read_fields(&json::object(bytes, rule)?, who)
}

/// Reads the fields of a cancellation. Every field may be missing.
pub(super) fn read_fields(object: &Map<String, Value>, who: &Who) -> Result<Cancellation, Problem> {
    let mut cancellation = Cancellation {
        seen: None,
        canceller: Canceller {
            channels: who.channels(),
            name: who.name().map(ToString::to_string),
            why: None,
            never_sent: false,
        },
    };
    let mut wrong = Vec::new();
    wrong.extend(who.check_name("by", object.get("by")).err());
    for (name, value) in object {
        match name.as_str() {
            "version" => {
                cancellation.seen = read_version(value);
                if cancellation.seen.is_none() {
                    let expected = "must be the version that you saw, such as 7";
                    wrong.push(FieldError::new(name, Some(value), expected));
                }
            }
            "reason" => {
                let what = "why the refund is cancelled; it is kept in the journal";
                cancellation.canceller.why = Some(of_a_person(object, name, 400, what, &mut wrong));
            }
            "by" if who.name().is_some() => {}
            "by" => {
                let what = "who cancels the refund, for the journal";
                cancellation.canceller.name = Some(of_a_person(object, name, 100, what, &mut wrong));
            }
            _ => {
                let expected = "is not known; known here: version, reason, by";
                wrong.push(FieldError::new(name, Some(value), expected));
            }
        }
    }
    if wrong.is_empty() { Ok(cancellation) } else { Err(Problem::invalid(wrong)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancellation_names_a_version_a_reason_and_a_person_or_nothing_at_all() {
        let read = |text: &str| read(text.as_bytes(), &Who::Anyone);
        for nothing in ["", "{}"] {
            let Cancellation { seen, canceller } = read(nothing).unwrap();
            assert_eq!((seen, canceller.name, canceller.why), (None, None, None));
        }
        let Cancellation { seen, canceller } =
            read(r#" {"version": 7, "reason": "twice", "by": "ann"}"#).unwrap();
        assert_eq!(
            (seen, canceller.name.as_deref(), canceller.why.as_deref()),
            (Some(7), Some("ann"), Some("twice"))
        );
        for bad in [
            "[]",
            "7",
            r#"{"version": "7"}"#,
            r#"{"version": null}"#,
            r#"{"version": -1}"#,
            r#"{"verison": 7}"#,
            r#"{"reason": " "}"#,
            r#"{"by": 7}"#,
            "{",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
