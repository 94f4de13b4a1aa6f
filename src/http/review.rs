//! What a person sees of a refund, and what a person decides, for those who build a page of their own.
//!
//! Which refunds wait is `GET /v1/refunds?state=review`. Who decides is whoever the caller says; callers
//! are not authenticated, which is why nodes listen on loopback only.

use axum::Json;
use axum::extract::{Request, State};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::body::{self, Kind};
use super::look::Named;
use super::{Api, Problem};
use crate::refund::draft::FieldError;
use crate::refund::{Refund, RefundId, State as RefundState};
use crate::store::{Decided, Evidence};

const MOST_BYTES: usize = 64 * 1024;
/// Each is a commit of its own.
const MOST_AT_ONCE: usize = 1000;

/// A refund with everything the journal holds about it, oldest first.
#[derive(Debug, Serialize)]
pub(super) struct File {
    refund: Refund,
    attempts: Vec<Evidence>,
    /// What happened before may be missing: the journal goes back no further. Absent where nothing can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    forgotten_before: Option<Timestamp>,
}

/// What a person decided.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    ids: Vec<RefundId>,
    state: RefundState,
    reason: String,
    by: String,
}

/// What became of it, refund by refund.
#[derive(Debug, Serialize)]
pub(super) struct Verdicts {
    decided: usize,
    results: Vec<Verdict>,
}

#[derive(Debug, Serialize)]
struct Verdict {
    id: RefundId,
    result: &'static str,
    /// As it is now; absent where there is no such refund.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<RefundState>,
}

/// `GET /v1/refunds/{id}/attempts`.
pub(super) async fn attempts(State(api): State<Api>, Named(id): Named) -> Result<Json<File>, Problem> {
    let refund = api.store.refund(id).await.map_err(|error| Problem::store(&error))?;
    let refund = refund.ok_or_else(|| Problem::no_such_refund(&id.to_string()))?;
    let attempts = api.store.evidence(id).await.map_err(|error| Problem::store(&error))?;
    let forgotten_before =
        api.store.forgotten_before(&refund).await.map_err(|error| Problem::store(&error))?;
    Ok(Json(File { refund, attempts, forgotten_before }))
}

/// `POST /v1/review`. Safe to repeat: what was decided is refused the second time and stays as it is.
pub(super) async fn decide(State(api): State<Api>, request: Request) -> Result<Json<Verdicts>, Problem> {
    let (head, body) = request.into_parts();
    body::kind(&head.headers, &[Kind::Json])?;
    let bytes = body::read(&head.headers, body, MOST_BYTES).await?;
    let json = serde_json::from_slice(&bytes).map_err(|error| Problem::malformed(&error))?;
    let Decision { ids, state, reason, by } = read(&json).map_err(Problem::invalid)?;
    // Goes on when the caller hangs up, as saving does.
    let task = tokio::spawn(async move {
        let mut results = Vec::with_capacity(ids.len());
        for id in ids {
            let (result, state) = match api.store.decide(id, state, &reason, &by).await? {
                Decided::Done(refund) => ("decided", Some(refund.state)),
                Decided::Illegal(refund) => ("refused", Some(refund.state)),
                Decided::NoSuchRefund => ("no_such_refund", None),
            };
            results.push(Verdict { id, result, state });
        }
        let decided = results.iter().filter(|verdict| verdict.result == "decided").count();
        Ok(Verdicts { decided, results })
    });
    task.await.map_err(|_| Problem::internal())?.map(Json).map_err(|error| Problem::store(&error))
}

fn read(json: &Value) -> Result<Decision, Vec<FieldError>> {
    let Some(object) = json.as_object() else {
        return Err(vec![FieldError::new(
            "body",
            Some(json),
            "must be a JSON object with ids, state, reason and by",
        )]);
    };
    let mut wrong = Vec::new();
    let text = |name: &str, most: usize, what: &str, wrong: &mut Vec<FieldError>| {
        let found = object.get(name);
        match found.and_then(Value::as_str).map(str::trim) {
            Some(text)
                if (1..=most).contains(&text.chars().count()) && !text.chars().any(char::is_control) =>
            {
                text.to_owned()
            }
            _ => {
                wrong.push(FieldError::new(
                    name,
                    found,
                    format!("must be a text of 1 to {most} characters: {what}"),
                ));
                String::new()
            }
        }
    };
    let reason = text("reason", 400, "how you know; it is kept in the journal", &mut wrong);
    let by = text("by", 100, "who decides, for the journal", &mut wrong);
    let state =
        object.get("state").and_then(Value::as_str).and_then(|word| word.parse().ok()).filter(|state| {
            matches!(
                state,
                RefundState::Succeeded | RefundState::Failed | RefundState::Cancelled | RefundState::Ready
            )
        });
    if state.is_none() {
        let law = "must be succeeded, failed, cancelled or ready (which sends again)";
        wrong.push(FieldError::new("state", object.get("state"), law));
    }
    let ids =
        object.get("ids").and_then(Value::as_array).filter(|ids| (1..=MOST_AT_ONCE).contains(&ids.len()));
    let ids: Option<Vec<RefundId>> =
        ids.and_then(|ids| ids.iter().map(|id| id_of(id).filter(|id| id.0 > 0)).collect());
    if ids.is_none() {
        let law = format!("must be a list of 1 to {MOST_AT_ONCE} refunds' ids");
        wrong.push(FieldError::new("ids", object.get("ids"), law));
    }
    for (name, value) in object {
        if !["ids", "state", "reason", "by"].contains(&name.as_str()) {
            wrong.push(FieldError::new(
                name,
                Some(value),
                "is not known; known here: ids, state, reason, by",
            ));
        }
    }
    match (ids, state) {
        (Some(ids), Some(state)) if wrong.is_empty() => Ok(Decision { ids, state, reason, by }),
        _ => Err(wrong),
    }
}

/// Ids are told as texts, and taken as numbers too.
fn id_of(value: &Value) -> Option<RefundId> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).map(RefundId)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_decision_names_refunds_a_state_a_reason_and_a_person() {
        let whole =
            json!({ "ids": ["7", 8], "state": "succeeded", "reason": "on the statement", "by": "ann" });
        let decision = Decision {
            ids: vec![RefundId(7), RefundId(8)],
            state: RefundState::Succeeded,
            reason: "on the statement".to_owned(),
            by: "ann".to_owned(),
        };
        assert_eq!(read(&whole), Ok(decision));
    }

    #[test]
    fn everything_that_is_wrong_with_a_decision_is_named() {
        let wrong = json!({ "ids": [], "state": "sending", "reason": " ", "why": "x" });
        let named: Vec<String> = read(&wrong).unwrap_err().into_iter().map(|error| error.field).collect();
        assert_eq!(named, ["reason", "by", "state", "ids", "why"]);
        assert!(read(&json!([])).is_err());
    }
}
