//! Saving many at once: up to 10,000 refunds as a JSON array or as NDJSON, one verdict for each.
//!
//! A refund that is wrong spoils nothing for its neighbours, and the whole batch may be repeated as it
//! is. All that are right are saved in one commit, so either all their verdicts hold or, when the
//! answer is a 503, none is promised.
//!
//! Two refunds of one ref in the same batch are judged in order, as if they had come one by one.

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use super::body::{self, Kind};
use super::{Api, Problem, save};
use crate::refund::draft::{Draft, FieldError};
use crate::refund::{NewRefund, RefundId, State as RefundState};
use crate::store::Saved;

mod items;

/// What became of one refund of a batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Verdict {
    /// Its place in the batch, from 0.
    index: usize,
    /// Null if it could not be read.
    refund_ref: Option<String>,
    /// What a single POST of it would have been answered.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<RefundId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<RefundState>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError>,
}

/// `POST /v1/refunds/batch`.
pub(super) async fn many(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let kind = body::kind(&head.headers, &[Kind::Json, Kind::Ndjson])?;
    // Never closed while the router lives.
    let _turn = api.batches.acquire().await.map_err(|_| Problem::internal())?;
    let bytes = body::read(&head.headers, body, body::MOST_BYTES_BATCH).await?;
    // Tens of MiB take long enough to parse to be noticed by everyone else on this thread.
    let Sorted { refunds, mut verdicts } = tokio::task::spawn_blocking(move || Sorted::read(&bytes, kind))
        .await
        .map_err(|_| Problem::internal())??;
    let (places, refunds): (Vec<usize>, Vec<NewRefund>) = refunds.into_iter().unzip();
    if !refunds.is_empty() {
        let names: Vec<_> = refunds.iter().map(|r| (r.refund_ref.clone(), r.channel.clone())).collect();
        let saved = save::saved(api.saver.batch(refunds).await)?;
        for ((index, (refund_ref, channel)), saved) in places.into_iter().zip(names).zip(saved) {
            verdicts.push(judged(index, refund_ref, channel.as_str(), &saved, &api));
        }
        verdicts.sort_unstable_by_key(|verdict| verdict.index);
    }
    Ok(written(&verdicts, kind)?.into_response())
}

/// A batch after reading: what can be saved, with its place, and what was refused at once.
#[derive(Debug, Default)]
struct Sorted {
    refunds: Vec<(usize, NewRefund)>,
    verdicts: Vec<Verdict>,
}

impl Sorted {
    fn read(bytes: &Bytes, kind: Kind) -> Result<Self, Problem> {
        let items = match kind {
            Kind::Json => items::of_array(bytes)?,
            Kind::Ndjson => items::of_lines(bytes)?,
        };
        let mut sorted = Sorted::default();
        for (index, item) in items.into_iter().enumerate() {
            match checked(item) {
                Ok(refund) => sorted.refunds.push((index, refund)),
                Err((refund_ref, errors)) => {
                    let status = StatusCode::UNPROCESSABLE_ENTITY.as_u16();
                    sorted.verdicts.push(Verdict {
                        index,
                        refund_ref,
                        status,
                        id: None,
                        state: None,
                        errors,
                    });
                }
            }
        }
        Ok(sorted)
    }
}

/// Reads and checks one item; a refused one keeps its ref, if it could be read.
fn checked(item: &[u8]) -> Result<NewRefund, (Option<String>, Vec<FieldError>)> {
    let refused = |message: String| (None, vec![FieldError::new("refund", None, message)]);
    if item.len() > body::MOST_BYTES_ONE {
        let message = format!("has {} bytes; at most {} are allowed", item.len(), body::MOST_BYTES_ONE);
        return Err(refused(message));
    }
    let json: Value =
        serde_json::from_slice(item).map_err(|error| refused(format!("is not JSON: {error}")))?;
    Draft::check(&json).map_err(|errors| {
        let refund_ref = json.get("refund_ref").and_then(Value::as_str);
        (refund_ref.map(|text| text.chars().take(200).collect()), errors)
    })
}

fn judged(index: usize, refund_ref: String, channel: &str, saved: &Saved, api: &Api) -> Verdict {
    let mut verdict =
        Verdict { index, refund_ref: Some(refund_ref), status: 0, id: None, state: None, errors: Vec::new() };
    let status = match saved {
        Saved::Created(refund) | Saved::Same(refund) => {
            (verdict.id, verdict.state) = (Some(refund.id), Some(refund.state));
            if matches!(saved, Saved::Created(_)) { StatusCode::CREATED } else { StatusCode::OK }
        }
        Saved::Conflict { id } => {
            verdict.id = Some(*id);
            let message = format!("already names refund {id}, with other content");
            verdict.errors.push(FieldError::new("refund_ref", None, message));
            StatusCode::CONFLICT
        }
        Saved::NoSuchChannel => {
            verdict.errors.push(save::nobody_runs(api, channel));
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Saved::Full { max_backlog } => {
            verdict.errors.push(FieldError::new("channel", None, save::full(channel, *max_backlog)));
            StatusCode::TOO_MANY_REQUESTS
        }
    };
    verdict.status = status.as_u16();
    verdict
}

/// Verdicts in the form in which the batch came.
fn written(verdicts: &[Verdict], kind: Kind) -> Result<impl IntoResponse, Problem> {
    let text = match kind {
        Kind::Json => serde_json::to_vec(verdicts),
        Kind::Ndjson => verdicts.iter().try_fold(Vec::new(), |mut text, verdict| {
            serde_json::to_writer(&mut text, verdict)?;
            text.push(b'\n');
            Ok(text)
        }),
    };
    let text = text.map_err(|_| Problem::internal())?;
    Ok(([(CONTENT_TYPE, kind.content_type())], text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        r#"{"refund_ref":"R-1","channel":"acme","payment_ref":"P","amount_minor":1,"currency":"EUR"}"#;

    #[test]
    fn a_bad_line_is_refused_alone_and_keeps_its_place() {
        let bytes = Bytes::from(format!("{GOOD}\n{{oops\n\r\n{}\n{GOOD}", GOOD.replace(":1,", ":0,")));
        let sorted = Sorted::read(&bytes, Kind::Ndjson).unwrap();
        assert_eq!(sorted.refunds.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 3]);
        let refused: Vec<_> =
            sorted.verdicts.iter().map(|v| (v.index, v.status, v.refund_ref.as_deref())).collect();
        assert_eq!(refused, [(1, 422, None), (2, 422, Some("R-1"))]);
        assert!(sorted.verdicts[0].errors[0].message.contains("line 1 column 2"), "{:?}", sorted.verdicts[0]);
    }

    #[test]
    fn an_item_larger_than_a_single_post_may_be_is_refused_alone() {
        let large = format!("\"{}\"", "x".repeat(body::MOST_BYTES_ONE));
        let sorted = Sorted::read(&Bytes::from(format!("[{large},{GOOD}]")), Kind::Json).unwrap();
        assert_eq!(sorted.refunds[0].0, 1);
        assert!(sorted.verdicts[0].errors[0].message.contains("at most 131072"));
    }

    #[test]
    fn a_verdict_leaves_out_what_it_does_not_know() {
        let verdict = Verdict {
            index: 3,
            refund_ref: None,
            status: 422,
            id: None,
            state: None,
            errors: vec![FieldError::new("refund", None, "is not JSON")],
        };
        assert_eq!(
            serde_json::to_string(&verdict).unwrap(),
            r#"{"index":3,"refund_ref":null,"status":422,"errors":[{"field":"refund","message":"is not JSON"}]}"#
        );
    }
}
