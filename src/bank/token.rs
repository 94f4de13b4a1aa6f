//! The access tokens of one channel: OAuth 2.0 with client credentials (RFC 6749, section 4.4).
//!
//! A node keeps one token per channel. It asks for the next one before the present one ends, and never twice at one time.
//! A worker has a token before it takes permits, so trouble with tokens spends none. No token is ever logged.

pub(super) mod answer;
mod refused;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method};
use secrecy::ExposeSecret;

use super::client::{BankRequest, CallResult, Client};
use super::door::SendDeadline;
use super::pool::Unreachable;
use super::settings::ConnectionSettings;
use super::slept::Slept;
use super::{BankError, path_of};
use crate::backoff::Backoff;
use crate::channel::{Authorization, Channel, TokenSource};
use crate::lock::Lock;
use crate::refund::{ChannelName, Code};
use answer::{NewToken, NoToken};
pub use refused::RefusedToken;

/// A token as a request carries it.
#[derive(Debug)]
pub struct BankToken {
    /// `Bearer` and the token; marked as sensitive, so that its `Debug` text hides it.
    pub header: HeaderValue,
    number: u64,
    /// From this moment on the next token is asked for.
    renew_at: Instant,
    /// From this moment on the token is not used.
    ends_at: Instant,
    /// This machine's sleep when the token was asked for. Afterwards nobody here knows how much of its life is left.
    slept: Slept,
    /// The bank has answered a request under the token with something other than 401.
    was_taken: AtomicBool,
}

/// The tokens of one channel. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tokens(Arc<Shared>);

struct Shared {
    channel: ChannelName,
    source: TokenSource,
    client: Client,
    path: hyper::Uri,
    /// The time for one request for a token.
    patience: Duration,
    state: Mutex<State>,
    /// Locked while a token is asked for.
    asking: tokio::sync::Mutex<()>,
}

/// Without the path, whose query may have a key.
impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("source", &self.source).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    token: Option<Arc<BankToken>>,
    /// How many tokens were got.
    count: u64,
    trouble: Option<Trouble>,
    /// A task asks for the next token.
    is_renewing: bool,
    /// The newest token that the bank ended early, and when the bank said so.
    replaced: Option<(u64, Instant)>,
}

/// The last request for a token failed.
#[derive(Debug)]
struct Trouble {
    message: String,
    failures: u32,
    retry_at: Instant,
}

/// Why a request for a token failed, and how long to wait at least before the next.
struct Failure {
    message: String,
    pause: Duration,
}

impl Tokens {
    /// A token is not used in the last part of its life, because a request takes time to arrive.
    const MARGIN: Duration = Duration::from_secs(10);
    /// About how long the pauses between requests are while they fail.
    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), last: Duration::from_secs(3) };
    /// The pause after the server refused the client: many wrong secrets in a row may lock the client out.
    const AFTER_REFUSAL: Duration = Duration::from_secs(30);
    /// A token in place of a refused one must be good for this long.
    const ONE_REPLACEMENT_IN: Duration = Duration::from_mins(1);

    /// Prepares the tokens of a channel; `None` for a channel without a token server.
    pub(super) fn of(channel: &Channel) -> Result<Option<Self>, BankError> {
        let Some(source) = channel.token.clone() else { return Ok(None) };
        let bad = || BankError::endpoint(&source.url);
        let secret = source.client_secret.expose_secret();
        let coded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        // RFC 6749, section 2.3.1: both are coded as in forms.
        let login = format!("{}:{}", coded(&source.client_id), coded(secret));
        let login = Authorization(format!("Basic {}", STANDARD.encode(login)).into());
        let mut client = Client::new(&ConnectionSettings::of(channel), &source.url, Some(&login))?;
        // The header has it coded.
        client.secrets.add(secret);
        let path = path_of(&source.url).ok_or_else(bad)?;
        let patience = channel.connect_timeout;
        let (state, asking) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Some(Tokens(Arc::new(Shared {
            channel: channel.name.clone(),
            source,
            client,
            path,
            patience,
            state,
            asking,
        }))))
    }

    /// A token that is good at `until`: the present one, or a new one.
    ///
    /// # Errors
    /// When no token can be had now.
    pub async fn good_until(&self, until: Instant) -> Result<Arc<BankToken>, Unreachable> {
        let Some(token) = self.present(until) else { return self.ask(until).await };
        if Instant::now() >= token.renew_at && !std::mem::replace(&mut self.state().is_renewing, true) {
            // Requests go on under the present token meanwhile.
            let tokens = self.clone();
            tokio::spawn(async move { tokens.renew().await });
        }
        Ok(token)
    }

    /// Notes the status of the bank's answer to a request under the token. `None` for any other than 401.
    pub fn answered(&self, token: &BankToken, status: u16) -> Option<RefusedToken> {
        if status != 401 {
            token.was_taken.store(true, Ordering::Relaxed);
            return None;
        }
        let mut state = self.state();
        if state.token.as_ref().is_some_and(|present| present.number == token.number) {
            state.token = None;
        }
        let now = Instant::now();
        let is_replaced = match state.replaced {
            // Another request under the token met the 401 first.
            Some((number, _)) if token.number <= number => return Some(RefusedToken::Replaced),
            Some((_, at)) if now.duration_since(at) < Self::ONE_REPLACEMENT_IN => false,
            _ => token.was_taken.load(Ordering::Relaxed),
        };
        if !is_replaced {
            return Some(RefusedToken::Useless);
        }
        state.replaced = Some((token.number, now));
        Some(RefusedToken::Replaced)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.locked()
    }

    fn present(&self, until: Instant) -> Option<Arc<BankToken>> {
        let token = self.state().token.clone();
        token.filter(|token| until.max(Instant::now()) < token.ends_at && !token.slept.has_slept_since())
    }

    async fn ask(&self, until: Instant) -> Result<Arc<BankToken>, Unreachable> {
        let _one = self.0.asking.lock().await;
        // Another task may have got a token, or failed, while this one waited.
        if let Some(token) = self.present(until) {
            return Ok(token);
        }
        if let Some(trouble) = &self.state().trouble
            && Instant::now() < trouble.retry_at
        {
            return Err(trouble.unreachable());
        }
        self.request().await
    }

    async fn renew(&self) {
        let one = self.0.asking.lock().await;
        let now = Instant::now();
        let (is_due, is_first) = {
            let state = self.state();
            let is_old = state.token.as_ref().is_none_or(|token| now >= token.renew_at);
            let may_ask = state.trouble.as_ref().is_none_or(|trouble| now >= trouble.retry_at);
            (is_old && may_ask, state.trouble.is_none())
        };
        if is_due
            && let Err(Unreachable { message, .. }) = self.request().await
            && is_first
        {
            tracing::warn!(channel.name = %self.0.channel, "Failed to {message}; channel `{}` goes on under its present token while that is good", self.0.channel);
        }
        self.state().is_renewing = false;
        drop(one);
    }

    /// Makes one request for a token. The caller has locked `asking`.
    async fn request(&self) -> Result<Arc<BankToken>, Unreachable> {
        let (requested, slept) = (Instant::now(), Slept::now());
        let answered = self.call().await;
        let mut state = self.state();
        match answered {
            Ok(NewToken { header, life }) => {
                state.count += 1;
                state.trouble = None;
                let token = Arc::new(BankToken {
                    header,
                    number: state.count,
                    renew_at: requested + life * 3 / 4,
                    ends_at: requested + life.saturating_sub(Self::MARGIN.min(life / 5)),
                    slept,
                    was_taken: AtomicBool::new(false),
                });
                state.token = Some(Arc::clone(&token));
                Ok(token)
            }
            Err(Failure { message, pause }) => {
                let failures = state.trouble.as_ref().map_or(1, |trouble| trouble.failures.saturating_add(1));
                let wait = Self::BACKOFF.after(failures).mul_f64(0.75 + fastrand::f64() * 0.5);
                let retry_at = Instant::now() + wait.max(pause);
                let trouble = Trouble { message, failures, retry_at };
                let unreachable = trouble.unreachable();
                state.trouble = Some(trouble);
                Err(unreachable)
            }
        }
    }

    async fn call(&self) -> Result<NewToken, Failure> {
        let Shared { source, client, path, patience, .. } = &*self.0;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let form = form_urlencoded::Serializer::new("grant_type=client_credentials".to_owned())
            .extend_pairs(source.scope.iter().map(|scope| ("scope", scope)))
            .finish();
        let request = BankRequest { method: Method::POST, path: path.clone(), headers, body: form.into() };
        let deadline = SendDeadline::at(Instant::now() + *patience, Slept::now());
        match client.call(&request, &deadline, None).await {
            CallResult::Answer { status, body, .. } => {
                let secrets = client.secrets.with(None, "");
                answer::read(status, &body, secrets).map_err(|NoToken { why, is_lasting }| {
                    self.failure(&why, if is_lasting { Self::AFTER_REFUSAL } else { Duration::ZERO })
                })
            }
            CallResult::Lost { message, .. } | CallResult::Unwritten { message, .. } => {
                Err(self.failure(&message, Duration::ZERO))
            }
            CallResult::TooLate => Err(self.failure("no connection was open in time", Duration::ZERO)),
        }
    }

    /// The failure of a request for a token.
    fn failure(&self, why: &str, pause: Duration) -> Failure {
        let Shared { source, .. } = &*self.0;
        let (host, path) =
            (source.url.authority().map_or("", |authority| authority.as_str()), source.url.path());
        Failure { message: format!("get a token from {host}{path}: {why}"), pause }
    }
}

impl Trouble {
    fn unreachable(&self) -> Unreachable {
        Unreachable {
            code: Code::TokenFailed,
            message: self.message.clone(),
            retry_in: self.retry_at.saturating_duration_since(Instant::now()),
        }
    }
}
