//! What the pretend bank does with one request: enter it in the ledger, pay or not, answer or not.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;

use super::ledger::{Arrival, Kind};
use super::script::{Ending, Step};
use super::wire::Wire;
use super::{Books, House};

/// The connection is closed without a word.
#[derive(Debug, thiserror::Error)]
#[error("hang up")]
pub(super) struct HangUp;

/// The part of a refund that the bank reads.
#[derive(Default, Deserialize)]
struct Order<'a> {
    #[serde(borrow, default)]
    refund_ref: Cow<'a, str>,
    #[serde(default)]
    amount_minor: i64,
}

pub(super) async fn handle(
    house: &House,
    wire: &Wire,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, HangUp> {
    let at_us = wire.take_arrival();
    let path = request.uri().path();
    if path == "/ledger" {
        wire.expect_next();
        return Ok(json(StatusCode::OK, &house.books().ledger.accounts()));
    }
    let mut parts = path.trim_start_matches('/').split('/');
    let channel = parts.next().unwrap_or_default();
    if request.method() == Method::GET {
        let answer = asked(&mut house.books(), channel, parts.next_back().unwrap_or_default(), at_us);
        wire.expect_next();
        return Ok(answer);
    }
    // Entered before the body is read: if the caller dies over the body, the request has reached us all the same.
    let entry = {
        let mut books = house.books();
        let arrival = Arrival {
            at_us,
            channel: books.channel(channel),
            kind: Kind::Send,
            key: header(&request, "idempotency-key").into(),
            attempt: header(&request, "refundd-attempt").parse().unwrap_or(0),
            refund_ref: "".into(),
            amount_minor: 0,
            body_hash: 0,
            paid: false,
            answered: None,
            ended_us: None,
        };
        books.ledger.arrivals.push(arrival);
        books.ledger.arrivals.len() - 1
    };
    let body = request.into_body().collect().await.map_err(|_| HangUp)?.to_bytes();
    let step = decide(&mut house.books(), entry, &body);
    if !step.delay.is_zero() {
        tokio::time::sleep(step.delay).await;
    }
    if step.ending != Ending::Silence {
        house.books().ledger.arrivals[entry].ended_us = Some(super::wire::now_us());
    }
    match step.ending {
        Ending::Whole => {}
        Ending::CutAfter(bytes) => wire.cut_after(bytes),
        Ending::Garbage => wire.speak_garbage(),
        Ending::Reset => {
            wire.reset();
            return Err(HangUp);
        }
        Ending::Silence => std::future::pending().await,
    }
    let mut answer = Response::new(Full::new(step.body));
    *answer.status_mut() = step.status;
    *answer.headers_mut() = step.headers;
    wire.expect_next();
    Ok(answer)
}

/// Reads the body, takes the next step of the script, and moves the money if the step says so.
fn decide(books: &mut Books, entry: usize, body: &[u8]) -> Step {
    let order: Order<'_> = serde_json::from_slice(body).unwrap_or_default();
    let mut hash = DefaultHasher::new();
    hash.write(body);
    let Books { ledger, scripts } = books;
    let arrival = &mut ledger.arrivals[entry];
    let step = match scripts.get_mut(&arrival.channel) {
        Some(script) => script.step(&order.refund_ref),
        None => Step::pays(),
    };
    arrival.refund_ref = order.refund_ref.as_ref().into();
    arrival.amount_minor = order.amount_minor;
    arrival.body_hash = hash.finish();
    arrival.paid = step.pays;
    arrival.answered = match step.ending {
        Ending::Whole | Ending::CutAfter(_) => Some(step.status.as_u16()),
        Ending::Garbage | Ending::Reset | Ending::Silence => None,
    };
    step
}

/// Answers an inquiry from the ledger.
fn asked(books: &mut Books, channel: &str, key: &str, at_us: i64) -> Response<Full<Bytes>> {
    let (status, answer) = if books.ledger.knows_paid(key) {
        (StatusCode::OK, serde_json::json!({"status": "succeeded"}))
    } else {
        (StatusCode::NOT_FOUND, serde_json::json!({"error": "not found"}))
    };
    let arrival = Arrival {
        at_us,
        channel: books.channel(channel),
        kind: Kind::Inquiry,
        key: key.into(),
        attempt: 0,
        refund_ref: "".into(),
        amount_minor: 0,
        body_hash: 0,
        paid: false,
        answered: Some(status.as_u16()),
        ended_us: Some(super::wire::now_us()),
    };
    books.ledger.arrivals.push(arrival);
    json(status, &answer)
}

impl Books {
    /// The channel's name, shared by all its arrivals.
    fn channel(&mut self, name: &str) -> Arc<str> {
        if let Some((name, _)) = self.scripts.get_key_value(name) {
            return name.clone();
        }
        let name: Arc<str> = name.into();
        self.scripts.insert(name.clone(), super::Script::default());
        name
    }
}

fn header<'a>(request: &'a Request<Incoming>, name: &str) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
