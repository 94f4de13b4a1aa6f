//! How a pretend bank behaves: steps that are used up one by one, then the same step for ever.
//!
//! A step says two things that have nothing to do with each other: whether the bank pays, and what it
//! lets the caller know. Every refund client is built on the hope that they go together.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode, header};

/// What the bank does with one request.
#[derive(Debug, Clone)]
pub struct Step {
    /// Whether money moves.
    pub pays: bool,
    /// How long after the request has been read it does, whatever the caller hears meanwhile.
    pub pays_after: Duration,
    /// How long whoever asks is told that it is pending.
    pub pending_for: Duration,
    /// Whether whoever asks is told that it was refused.
    pub refuses: bool,
    /// How long the caller waits for what follows.
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
    /// These bytes instead of an answer, then the connection is closed.
    Raw(&'static [u8]),
    /// The connection is reset instead of an answer.
    Reset,
    /// Nothing, for as long as the caller waits.
    Silence,
}

impl Step {
    /// Pays and says so.
    #[must_use]
    pub fn pays() -> Step {
        Step { pays: true, ..Step::answers(200, r#"{"status":"succeeded"}"#) }
    }

    /// Takes it and will tell later.
    #[must_use]
    pub fn pending() -> Step {
        let for_ever = Duration::from_hours(24 * 365);
        Step { pays: true, pending_for: for_ever, ..Step::answers(202, r#"{"status":"pending"}"#) }
    }

    /// Refuses this refund for good.
    #[must_use]
    pub fn rejects() -> Step {
        let body = r#"{"status":"rejected","message":"the payment was refunded before"}"#;
        Step { refuses: true, ..Step::answers(422, body) }
    }

    /// Answers this and does not pay. A body that starts with `{` is called JSON, any other HTML.
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

    /// Pays, and then says that it failed.
    #[must_use]
    pub fn pays_but_says_500() -> Step {
        Step { pays: true, ..Step::answers(500, r#"{"error":"internal"}"#) }
    }

    /// Asks the caller to wait.
    #[must_use]
    pub fn too_many(retry_after_s: u32) -> Step {
        Step::answers(429, r#"{"error":"too many requests"}"#)
            .with_header(header::RETRY_AFTER, retry_after_s.into())
    }

    /// Does not let the caller in.
    #[must_use]
    pub fn unauthorised() -> Step {
        Step::answers(401, r#"{"error":"who are you?"}"#)
    }

    /// Sends the caller elsewhere.
    ///
    /// # Panics
    /// When the address cannot stand in a header.
    #[must_use]
    pub fn redirects(to: &str) -> Step {
        let to = HeaderValue::from_str(to).expect("a script holds plain addresses");
        Step::answers(307, "").with_header(header::LOCATION, to)
    }

    /// Says nothing and does not pay.
    #[must_use]
    pub fn silence() -> Step {
        Step { ending: Ending::Silence, ..Step::answers(200, "") }
    }

    /// Resets the connection and does not pay.
    #[must_use]
    pub fn resets() -> Step {
        Step { ending: Ending::Reset, ..Step::answers(200, "") }
    }

    /// Answers something that is not HTTP and does not pay.
    #[must_use]
    pub fn garbage() -> Step {
        Step::writes(b"\x16\x03\x01 452 the line is noisy tonight\r\n\r\n")
    }

    /// Writes just these bytes, closes the connection, and does not pay.
    #[must_use]
    pub fn writes(bytes: &'static [u8]) -> Step {
        Step { ending: Ending::Raw(bytes), ..Step::answers(200, "") }
    }

    /// The same, but money moves.
    #[must_use]
    pub fn and_pays(self) -> Step {
        Step { pays: true, ..self }
    }

    /// The same, but money moves only after a while, and until then nobody finds the refund.
    #[must_use]
    pub fn paying_after(self, span: Duration) -> Step {
        Step { pays: true, pays_after: span, ..self }
    }

    /// The same, but whoever asks is told that it is pending for so long only.
    #[must_use]
    pub fn decided_after(self, span: Duration) -> Step {
        Step { pending_for: span, ..self }
    }

    /// The same, but no money moves, and whoever asks is told so in the end.
    #[must_use]
    pub fn and_refuses(self) -> Step {
        Step { pays: false, refuses: true, ..self }
    }

    /// The same, but later. Money moves at once.
    #[must_use]
    pub fn after(self, delay: Duration) -> Step {
        Step { delay, ..self }
    }

    /// The same, but only so many bytes of it.
    #[must_use]
    pub fn cut_after(self, bytes: usize) -> Step {
        Step { ending: Ending::CutAfter(bytes), ..self }
    }

    /// The same, and the bank closes the connection after it.
    #[must_use]
    pub fn and_hangs_up(self) -> Step {
        self.with_header(header::CONNECTION, HeaderValue::from_static("close"))
    }

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
    /// Used up before the others, for requests that speak of this refund.
    pub(super) by_ref: HashMap<String, VecDeque<Step>>,
    /// How long the bank recognises a key; `None` if it never does.
    pub(super) remembers: Option<Duration>,
    /// What is said to who asks, before the ledger is looked into.
    pub(super) next_asked: VecDeque<Step>,
    pub(super) then_asked: Option<Step>,
    /// How long after its last request a refund is not found.
    pub(super) overlooks: Duration,
    /// What is refused because it comes too soon after the last that was not.
    pub(super) gap: Option<Gap>,
}

/// A leaky bucket without a burst, as nginx's `limit_req` without `burst`.
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
            next_asked: VecDeque::new(),
            then_asked: None,
            overlooks: Duration::ZERO,
            gap: None,
        }
    }
}

impl Script {
    /// What is said to who asks; `None` is the truth.
    pub(super) fn step_asked(&mut self) -> Option<Step> {
        self.next_asked.pop_front().or_else(|| self.then_asked.clone())
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
