//! The script of a pretend bank: steps that are used up one by one, then one step for all later requests.
//!
//! A step says two independent things: whether the bank pays, and what it answers. So a test can let a bank pay and
//! answer that it failed.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode, header};

use super::signature::Key;

/// What the bank does with one request.
#[derive(Debug, Clone)]
pub struct Step {
    /// Whether money moves.
    pub pays: bool,
    /// How long after the request was read money moves. The answer does not wait for it.
    pub pays_after: Duration,
    /// How long after the arrival an inquiry is answered "pending".
    pub pending_for: Duration,
    /// Whether an inquiry is answered "rejected".
    pub refuses: bool,
    /// How long the bank waits before it answers.
    pub delay: Duration,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub ending: Ending,
}

/// How much of the answer reaches the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Whole,
    /// The connection is closed after this many bytes, the status line and the headers counted.
    CutAfter(usize),
    /// The bank writes these bytes instead of an answer and closes the connection.
    Raw(&'static [u8]),
    /// The connection is reset instead of an answer.
    Reset,
    /// The bank answers nothing for as long as the caller waits.
    Silence,
}

impl Step {
    /// Pays and answers "succeeded".
    #[must_use]
    pub fn pays() -> Step {
        Step { pays: true, ..Step::answers(200, r#"{"status":"succeeded"}"#) }
    }

    /// Pays and answers "pending". Inquiries are answered "pending" too.
    #[must_use]
    pub fn pending() -> Step {
        let for_ever = Duration::from_hours(24 * 365);
        Step { pays: true, pending_for: for_ever, ..Step::answers(202, r#"{"status":"pending"}"#) }
    }

    /// Rejects the refund for good.
    #[must_use]
    pub fn rejects() -> Step {
        let body = r#"{"status":"rejected","message":"the payment was refunded before"}"#;
        Step { refuses: true, ..Step::answers(422, body) }
    }

    /// Answers with this status and body and does not pay. The content type is JSON if the body starts with `{`,
    /// otherwise HTML.
    ///
    /// # Panics
    /// When the number is no HTTP status.
    #[must_use]
    pub fn answers(status: u16, body: &'static str) -> Step {
        let kind = if body.starts_with('{') { "application/json" } else { "text/html" };
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        Step {
            pays: false,
            pays_after: Duration::ZERO,
            pending_for: Duration::ZERO,
            refuses: false,
            delay: Duration::ZERO,
            status: StatusCode::from_u16(status).expect("a script holds HTTP statuses"),
            headers,
            body: Bytes::from_static(body.as_bytes()),
            ending: Ending::Whole,
        }
    }

    /// Pays, and answers 500.
    #[must_use]
    pub fn pays_but_says_500() -> Step {
        Step { pays: true, ..Step::answers(500, r#"{"error":"internal"}"#) }
    }

    /// Answers 429 with `Retry-After` and does not pay.
    #[must_use]
    pub fn too_many(retry_after_s: u32) -> Step {
        Step::answers(429, r#"{"error":"too many requests"}"#)
            .with_header(header::RETRY_AFTER, retry_after_s.into())
    }

    /// Answers 401 and does not pay.
    #[must_use]
    pub fn unauthorised() -> Step {
        Step::answers(401, r#"{"error":"who are you?"}"#)
    }

    /// Does not let the request in, says why, and does not pay.
    #[must_use]
    pub fn refuses_entry(why: &str) -> Step {
        let body = serde_json::json!({ "error": why }).to_string();
        Step { body: body.into(), ..Step::unauthorised() }
    }

    /// Answers 307 with this location and does not pay.
    ///
    /// # Panics
    /// When the address cannot stand in a header.
    #[must_use]
    pub fn redirects(to: &str) -> Step {
        let to = HeaderValue::from_str(to).expect("a script holds plain addresses");
        Step::answers(307, "").with_header(header::LOCATION, to)
    }

    /// A proxy before the bank does not know the way: its own 404 with a page. It says nothing about the refund.
    #[must_use]
    pub fn proxy_404() -> Step {
        Step::answers(404, "<html><h1>404 Not Found</h1></html>")
    }

    /// A gateway before the bank does not know the way: its own 404 in JSON. It says nothing about the refund.
    #[must_use]
    pub fn gateway_404() -> Step {
        Step::answers(404, r#"{"message":"no Route matched with those values"}"#)
    }

    /// Never answers and does not pay.
    #[must_use]
    pub fn silence() -> Step {
        Step { ending: Ending::Silence, ..Step::answers(200, "") }
    }

    /// Resets the connection and does not pay.
    #[must_use]
    pub fn resets() -> Step {
        Step { ending: Ending::Reset, ..Step::answers(200, "") }
    }

    /// Writes bytes that are not HTTP, closes the connection, and does not pay.
    #[must_use]
    pub fn garbage() -> Step {
        Step::writes(b"\x16\x03\x01 452 the line is noisy tonight\r\n\r\n")
    }

    /// Writes just these bytes, closes the connection, and does not pay.
    #[must_use]
    pub fn writes(bytes: &'static [u8]) -> Step {
        Step { ending: Ending::Raw(bytes), ..Step::answers(200, "") }
    }

    /// The status of the answer, also of one that is cut; `None` without an answer.
    pub(super) fn answered(&self) -> Option<u16> {
        match self.ending {
            Ending::Whole | Ending::CutAfter(_) => Some(self.status.as_u16()),
            Ending::Raw(_) | Ending::Reset | Ending::Silence => None,
        }
    }

    /// The same answer, but the bank pays.
    #[must_use]
    pub fn and_pays(self) -> Step {
        Step { pays: true, ..self }
    }

    /// The same answer, but the bank pays only after `span`. Until then an inquiry does not find the refund.
    #[must_use]
    pub fn paying_after(self, span: Duration) -> Step {
        Step { pays: true, pays_after: span, ..self }
    }

    /// The same answer, but inquiries are answered "pending" only for `span`.
    #[must_use]
    pub fn decided_after(self, span: Duration) -> Step {
        Step { pending_for: span, ..self }
    }

    /// The same answer, but the bank does not pay. Inquiries are answered "rejected" when no "pending" applies.
    #[must_use]
    pub fn and_refuses(self) -> Step {
        Step { pays: false, refuses: true, ..self }
    }

    /// The same answer after `delay`. Money moves without the delay.
    #[must_use]
    pub fn after(self, delay: Duration) -> Step {
        Step { delay, ..self }
    }

    /// The same answer, cut after this many bytes.
    #[must_use]
    pub fn cut_after(self, bytes: usize) -> Step {
        Step { ending: Ending::CutAfter(bytes), ..self }
    }

    /// The same answer, and then the bank closes the connection.
    #[must_use]
    pub fn and_hangs_up(self) -> Step {
        self.with_header(header::CONNECTION, HeaderValue::from_static("close"))
    }

    /// The same answer with this header, which replaces one of the same name.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Step {
        self.headers.insert(name, value);
        self
    }
}

/// The steps of one channel.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) next: VecDeque<Step>,
    pub(super) then: Step,
    /// Steps for the sends of one refund, used before all others.
    pub(super) by_ref: HashMap<String, VecDeque<Step>>,
    /// How long the bank recognises a key; `None` if it never does.
    pub(super) remembers: Option<Duration>,
    /// Steps that answer inquiries before the ledger does.
    pub(super) next_inquiries: VecDeque<Step>,
    pub(super) then_inquiries: Option<Step>,
    /// How long after its last send a refund is not found by an inquiry.
    pub(super) overlooks: Duration,
    /// Refuses a send that comes too soon after the last accepted send.
    pub(super) gap: Option<Gap>,
    /// The keys of which one must have signed a request; `None` if the bank demands no signature.
    pub(super) signed_by: Option<Vec<Key>>,
    /// Whether requests need a good token.
    pub(super) demands_tokens: bool,
}

/// A leaky bucket without a burst, like nginx's `limit_req` without `burst`.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) least_us: i64,
    pub(super) status: u16,
    pub(super) last_us: i64,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            next: VecDeque::new(),
            then: Step::pays(),
            by_ref: HashMap::new(),
            remembers: None,
            next_inquiries: VecDeque::new(),
            then_inquiries: None,
            overlooks: Duration::ZERO,
            gap: None,
            signed_by: None,
            demands_tokens: false,
        }
    }
}

impl Script {
    /// The step that answers the next inquiry; `None` when the ledger answers.
    pub(super) fn inquiry_step(&mut self) -> Option<Step> {
        self.next_inquiries.pop_front().or_else(|| self.then_inquiries.clone())
    }

    pub(super) fn step(&mut self, refund_ref: &str, at_us: i64) -> Step {
        if let Some(gap) = &mut self.gap {
            if at_us - gap.last_us < gap.least_us {
                return Step::answers(gap.status, r#"{"error":"too many requests"}"#);
            }
            gap.last_us = at_us;
        }
        let own = self.by_ref.get_mut(refund_ref).and_then(VecDeque::pop_front);
        own.or_else(|| self.next.pop_front()).unwrap_or_else(|| self.then.clone())
    }
}
