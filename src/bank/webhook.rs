//! Delivers one message to the receiver of webhooks, in the form of Standard Webhooks 1.0: an id that stays the same when the
//! message is sent again, the time of this attempt, and signatures over both and the exact bytes of the body.
//!
//! It does not decide when a message is sent again.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Method, Uri};
use secrecy::{ExposeSecret, SecretSlice};

use super::client::{BankRequest, CallResult, Client, now};
use super::door::SendDeadline;
use super::settings::ConnectionSettings;
use super::signing::mac;
use super::slept::Slept;
use super::{BankError, path_of};
use crate::channel::{Networks, Roots};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Where webhooks go, from `[notify]`.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookTarget {
    /// `http` or `https`, with a host.
    pub url: Uri,
    /// One, or two while the secret is changed.
    pub keys: Arc<[WebhookKey]>,
    /// The only root certificates that are trusted; `None` for the system's roots.
    pub roots: Option<Roots>,
    /// The addresses that may be connected to.
    pub networks: Networks,
}

/// Without the path of its URL, which may have a key.
impl fmt::Debug for WebhookTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookTarget").field("host", &self.url.host()).finish_non_exhaustive()
    }
}

/// A secret that signs webhooks. The `Debug` text hides it.
#[derive(Debug, Clone)]
pub struct WebhookKey(pub Arc<SecretSlice<u8>>);

/// Two values are compared when a file is reloaded, never with what a caller sent.
impl PartialEq for WebhookKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl Eq for WebhookKey {}

/// The client of the receiver.
pub struct Webhook {
    client: Client,
    path: Uri,
    keys: Arc<[WebhookKey]>,
    host: String,
}

/// Without the path, which may have a key.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Why a message was not taken. It may have arrived all the same.
#[derive(Debug, PartialEq, Eq)]
pub struct NotDelivered {
    pub why: String,
    /// Whether a byte of it may have left. If none did, the cause is the way to the receiver and not the message.
    pub reached: bool,
    /// How long the receiver asks to wait.
    pub retry_after: Option<Duration>,
}

impl Webhook {
    /// The most requests at one time.
    pub const IN_FLIGHT: usize = 8;
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    const TIMEOUT: Duration = Duration::from_secs(15);
    const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

    /// Prepares the client.
    ///
    /// # Errors
    /// When TLS cannot be prepared, for example without root certificates.
    pub fn new(target: &WebhookTarget) -> Result<Self, BankError> {
        let bad = || BankError::endpoint(&target.url);
        let client = Client::new(&Self::settings(target), &target.url, None)?.for_the_status();
        let path = path_of(&target.url).ok_or_else(bad)?;
        let host = target.url.host().unwrap_or_default().to_owned();
        Ok(Webhook { client, path, keys: Arc::clone(&target.keys), host })
    }

    /// What connections to the receiver need.
    pub(super) fn settings(target: &WebhookTarget) -> ConnectionSettings {
        ConnectionSettings {
            owner: "[notify]".to_owned(),
            roots: target.roots.clone(),
            client_identity: None,
            networks: target.networks.clone(),
            connect_timeout: Self::CONNECT_TIMEOUT,
            idle_timeout: Self::IDLE_TIMEOUT,
            timeout: Self::TIMEOUT,
            most: Self::IN_FLIGHT,
        }
    }

    /// The host of the receiver, for people.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends a message once. Any status of 2xx says that the receiver has taken it, whatever becomes of the body.
    ///
    /// # Errors
    /// When the receiver has not taken it, or when that is not known.
    pub async fn post(&self, id: &str, body: Bytes) -> Result<(), NotDelivered> {
        let not_delivered = |why| NotDelivered { why, reached: true, retry_after: None };
        let headers = self.headers(id, now(), &body);
        let headers = headers.map_err(|_| not_delivered("its id does not fit into a header".to_owned()))?;
        let request = BankRequest { method: Method::POST, path: self.path.clone(), headers, body };
        let deadline = SendDeadline::at(Instant::now() + Self::CONNECT_TIMEOUT, Slept::now());
        match self.client.call(&request, &deadline, None).await {
            CallResult::Answer { status: 200..=299, .. } => Ok(()),
            CallResult::Answer { status, headers, .. } => {
                let retry_after =
                    headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                let retry_after = retry_after.map(Duration::from_secs);
                Err(NotDelivered { retry_after, ..not_delivered(format!("HTTP {status}")) })
            }
            CallResult::Lost { message, .. } => Err(not_delivered(message)),
            CallResult::Unwritten { message, .. } => {
                Err(NotDelivered { reached: false, ..not_delivered(message) })
            }
            CallResult::TooLate => Err(NotDelivered {
                reached: false,
                ..not_delivered("no connection was open in time".to_owned())
            }),
        }
    }

    fn headers(
        &self,
        id: &str,
        seconds: u64,
        body: &[u8],
    ) -> Result<HeaderMap, hyper::header::InvalidHeaderValue> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ID, HeaderValue::from_str(id)?);
        headers.insert(TIMESTAMP, HeaderValue::from(seconds));
        let signatures: Vec<String> = self.keys.iter().map(|key| signature(key, id, seconds, body)).collect();
        headers.insert(SIGNATURE, HeaderValue::from_str(&signatures.join(" "))?);
        Ok(headers)
    }
}

/// `v1,` and the HMAC-SHA-256 of `id.timestamp.body` in base64.
fn signature(WebhookKey(key): &WebhookKey, id: &str, seconds: u64, body: &[u8]) -> String {
    let signed = [format!("{id}.{seconds}.").as_bytes(), body].concat();
    format!("v1,{}", STANDARD.encode(mac(key, &signed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(base64: &str) -> WebhookKey {
        WebhookKey(Arc::new(STANDARD.decode(base64).unwrap().into()))
    }

    /// The example of the reference libraries of Standard Webhooks.
    #[test]
    fn a_signature_is_that_of_the_standards_own_example() {
        let key = key("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn two_secrets_make_two_signatures_in_one_header_and_no_debug_text_shows_one() {
        let target = WebhookTarget {
            url: "http://localhost:9/hook?key=canary".parse().unwrap(),
            keys: [key("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), key("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")].into(),
            roots: None,
            networks: Networks::default(),
        };
        assert!(!format!("{target:?}").contains("canary"), "{target:?}");
        let webhook = Webhook::new(&target).unwrap();
        let headers = webhook.headers("change-1-2", 7, b"{}").unwrap();
        let signatures = headers[SIGNATURE].to_str().unwrap();
        assert_eq!(signatures.split(' ').filter(|one| one.starts_with("v1,")).count(), 2, "{signatures}");
        assert_eq!((&headers[ID], &headers[TIMESTAMP]), (&HeaderValue::from_static("change-1-2"), &7.into()));
    }
}
