//! Handles one request: enters it in the ledger, pays or not, and answers or not.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde::Deserialize;

use super::gate::refusal;
use super::ledger::{Arrival, Execution, Kind, hash_of};
use super::orders::obey;
use super::script::{Ending, Script, Step};
use super::signature::Received;
use super::wire::{self, Wire};
use super::{BankSays, Books, House};

/// Closes the connection without an answer.
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
    house: &Arc<House>,
    wire: &Wire,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, HangUp> {
    let (at_us, handled_us) = (wire.take_arrival(), wire::now_us());
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    if path == "/ledger" {
        wire.expect_next();
        return Ok(json(StatusCode::OK, &house.books().ledger.accounts()));
    }
    if path == "/token" {
        let body = body.collect().await.map_err(|_| HangUp)?.to_bytes();
        let step = house.books().tokens.answer(&Received::of(&head, &body), wire::now_us());
        return answer(wire, step).await;
    }
    if head.method == Method::PUT {
        let body = body.collect().await.map_err(|_| HangUp)?.to_bytes();
        wire.expect_next();
        return Ok(obey(&mut house.books(), path, &body));
    }
    let mut parts = path.trim_start_matches('/').split('/');
    let channel = parts.next().unwrap_or_default();
    if head.method == Method::GET {
        let key = parts.next_back().unwrap_or_default();
        let (entry, step) = inquire(&mut house.books(), channel, key, at_us, &Received::of(&head, &[]));
        let _caller = Caller { house, entry };
        return speak(house, wire, entry, step).await;
    }
    // Entered before the body is read. If the caller dies during the body, the request still counts as arrived.
    let entry = {
        let mut books = house.books();
        let arrival = Arrival {
            at_us,
            handled_us,
            channel: books.channel(channel),
            kind: Kind::Send,
            key: header(&head.headers, "idempotency-key").into(),
            attempt: header(&head.headers, "refundd-attempt").parse().unwrap_or(0),
            traceparent: header(&head.headers, "traceparent").into(),
            refund_ref: "".into(),
            amount_minor: 0,
            body_hash: 0,
            paid: false,
            executing: false,
            pending_until_us: 0,
            refused: false,
            answered: None,
            says: BankSays::Nothing,
            ended_us: None,
            left_us: None,
        };
        books.ledger.enter(arrival)
    };
    let _caller = Caller { house, entry };
    let body = body.collect().await.map_err(|_| HangUp)?.to_bytes();
    let step = decide(&mut house.books(), entry, &Received::of(&head, &body));
    if step.pays && !step.pays_after.is_zero() {
        // A separate task pays, even if the caller leaves.
        let (house, after) = (Arc::clone(house), step.pays_after);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let mut books = house.books();
            let arrival = &mut books.ledger.arrivals[entry];
            (arrival.paid, arrival.executing) = (true, false);
        });
    }
    speak(house, wire, entry, step).await
}

/// A caller that waits for an answer. When this is dropped before the answer, the caller has left.
struct Caller<'a> {
    house: &'a House,
    entry: usize,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let mut books = self.house.books();
        let arrival = &mut books.ledger.arrivals[self.entry];
        if arrival.ended_us.is_none() {
            arrival.left_us = Some(wire::now_us());
        }
    }
}

/// Answers as the step says, and enters the time in the ledger.
async fn speak(
    house: &House,
    wire: &Wire,
    entry: usize,
    step: Step,
) -> Result<Response<Full<Bytes>>, HangUp> {
    if !step.delay.is_zero() {
        tokio::time::sleep(step.delay).await;
    }
    if step.ending != Ending::Silence {
        house.books().ledger.arrivals[entry].ended_us = Some(wire::now_us());
    }
    answer(wire, Step { delay: Duration::ZERO, ..step }).await
}

/// Answers as the step says.
async fn answer(wire: &Wire, step: Step) -> Result<Response<Full<Bytes>>, HangUp> {
    if !step.delay.is_zero() {
        tokio::time::sleep(step.delay).await;
    }
    match step.ending {
        Ending::Whole => {}
        Ending::CutAfter(bytes) => wire.cut_after(bytes),
        Ending::Raw(bytes) => wire.write_instead(bytes),
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
fn decide(books: &mut Books, entry: usize, received: &Received<'_>) -> Step {
    let order: Order<'_> = serde_json::from_slice(received.body).unwrap_or_default();
    let Books { ledger, scripts, tokens, .. } = books;
    let Arrival { channel, key, at_us, .. } = ledger.arrivals[entry].clone();
    let script = scripts.get_mut(&channel);
    let remembers = script.as_ref().and_then(|script| script.remembers);
    let refusal = script.as_ref().and_then(|script| refusal(script, received, tokens, wire::now_us()));
    let mut step = match script {
        _ if refusal.is_some() => Step::refuses_entry(&refusal.unwrap_or_default()),
        Some(script) => script.step(&order.refund_ref, at_us),
        None => Step::pays(),
    };
    if let Some((execution, first)) = remembers.and_then(|span| {
        let known = ledger.execution_of(&key, wire::now_us())?;
        let age = at_us - ledger.arrivals[known.1].at_us;
        (age <= micros(span)).then_some(known)
    }) {
        // A known key: nothing is executed. If the step would answer with success, the first result is the answer.
        step.pays = false;
        if step.ending == Ending::Whole && step.status.is_success() {
            let delay = step.delay;
            step = Step { delay, ..step_for(ledger, execution, first, true) };
        }
    } else if remembers.is_some() && ledger.is_executing(&key) {
        step.pays = false;
        if step.ending == Ending::Whole && step.status.is_success() {
            step = Step { delay: step.delay, ..Step::answers(409, r#"{"error":"in progress"}"#) };
        }
    }
    let arrival = &mut ledger.arrivals[entry];
    arrival.refund_ref = order.refund_ref.as_ref().into();
    arrival.amount_minor = order.amount_minor;
    arrival.body_hash = hash_of(received.body);
    arrival.paid = step.pays && step.pays_after.is_zero();
    arrival.executing = step.pays && !step.pays_after.is_zero();
    arrival.refused = step.refuses;
    if !step.pending_for.is_zero() {
        arrival.pending_until_us = arrival.at_us.saturating_add(micros(step.pending_for));
    }
    arrival.answered = step.answered();
    arrival.says = BankSays::to_send(&step, order.amount_minor);
    step
}

/// Enters an inquiry. The script answers it, or else the ledger.
fn inquire(
    books: &mut Books,
    channel: &str,
    key: &str,
    at_us: i64,
    received: &Received<'_>,
) -> (usize, Step) {
    let channel = books.channel(channel);
    let tokens = &books.tokens;
    let script = books.scripts.get_mut(&channel);
    let overlooked_us = script.as_ref().map_or(0, |script| micros(script.overlooks));
    let scripted = script.and_then(|script| match refusal(script, received, tokens, wire::now_us()) {
        Some(why) => Some(Step::refuses_entry(&why)),
        None => script.inquiry_step(),
    });
    let is_overlooked = books.ledger.last_seen_us(key).is_some_and(|seen| at_us - seen < overlooked_us);
    let step = scripted.unwrap_or_else(|| match books.ledger.execution_of(key, wire::now_us()) {
        Some((execution, first)) if !is_overlooked => step_for(&books.ledger, execution, first, false),
        _ => Step::answers(404, r#"{"error":"not found"}"#),
    });
    let sent = books.ledger.sends_under(key).find(|send| !send.refund_ref.is_empty());
    let says = BankSays::to_inquiry(&step, sent.map(|send| send.amount_minor));
    let arrival = Arrival {
        at_us,
        handled_us: wire::now_us(),
        channel,
        kind: Kind::Inquiry,
        key: key.into(),
        attempt: 0,
        traceparent: "".into(),
        refund_ref: "".into(),
        amount_minor: 0,
        body_hash: 0,
        paid: false,
        executing: false,
        pending_until_us: 0,
        refused: false,
        answered: step.answered(),
        says,
        ended_us: None,
        left_us: None,
    };
    (books.ledger.enter(arrival), step)
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// The answer about a refund with a known result, to an inquiry or to a repeated send.
fn step_for(ledger: &super::Ledger, execution: Execution, first: usize, is_repeat: bool) -> Step {
    let (status, status_text) = match execution {
        Execution::Pending => (if is_repeat { 202 } else { 200 }, "pending"),
        Execution::Paid => (200, "succeeded"),
        Execution::Refused => (if is_repeat { 422 } else { 200 }, "rejected"),
    };
    let arrival = &ledger.arrivals[first];
    let body = serde_json::json!({
        "status": status_text,
        "duplicate": is_repeat,
        "refund_ref": &*arrival.refund_ref,
        "amount_minor": arrival.amount_minor,
        "id": format!("B-{first}"),
    });
    Step { body: body.to_string().into(), ..Step::answers(status, "{}") }
}

impl Books {
    /// The channel's name, shared by all its arrivals.
    pub(super) fn channel(&mut self, name: &str) -> Arc<str> {
        if let Some((name, _)) = self.scripts.get_key_value(name) {
            return name.clone();
        }
        let name: Arc<str> = name.into();
        self.scripts.insert(name.clone(), Script::default());
        name
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(serde_json::to_vec(value).unwrap_or_default().into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
