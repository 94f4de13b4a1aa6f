//! The bank's token server: OAuth 2.0 with client credentials, at `/token`.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header;

use super::script::Step;
use super::signature::Received;

/// The client that may have tokens, and the tokens that it got.
#[derive(Debug, Default)]
pub(super) struct TokenServer {
    /// The client's id and its secret, coded and joined by `:`.
    pub(super) login: String,
    pub(super) life: Duration,
    /// The start of every token.
    pub(super) prefix: String,
    /// Steps that answer before the server does.
    pub(super) next: VecDeque<Step>,
    /// How many requests came.
    pub(super) asked: usize,
    /// When each good token ends.
    pub(super) good: HashMap<String, i64>,
}

impl TokenServer {
    pub(super) fn answer(&mut self, request: &Received<'_>, now_us: i64) -> Step {
        self.asked += 1;
        if let Some(step) = self.next.pop_front() {
            return step;
        }
        let login = format!("Basic {}", STANDARD.encode(&self.login));
        if authorization(request) != Some(login.as_str()) {
            return Step::answers(401, r#"{"error":"invalid_client"}"#);
        }
        let form = String::from_utf8_lossy(request.body);
        if !form.split('&').any(|pair| pair == "grant_type=client_credentials") {
            return Step::answers(400, r#"{"error":"unsupported_grant_type"}"#);
        }
        let token = format!("{}-{}", self.prefix, self.asked);
        let life_us = i64::try_from(self.life.as_micros()).unwrap_or(i64::MAX);
        self.good.insert(token.clone(), now_us.saturating_add(life_us));
        let body = serde_json::json!({
            "access_token": token, "token_type": "Bearer", "expires_in": self.life.as_secs(),
        });
        Step { body: body.to_string().into(), ..Step::answers(200, "{}") }
    }

    /// Whether a request has a good token.
    pub(super) fn lets_in(&self, request: &Received<'_>, now_us: i64) -> bool {
        let token = authorization(request).and_then(|header| header.strip_prefix("Bearer "));
        token.and_then(|token| self.good.get(token)).is_some_and(|ends| now_us < *ends)
    }
}

fn authorization<'a>(request: &Received<'a>) -> Option<&'a str> {
    request.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok())
}
