//! Access: which caller a request comes from, and whether it may use the route.
//!
//! A caller proves its name by a token, by a client certificate, or by both. While the configuration has no caller, every
//! program that reaches the node may do everything. Each handler gets [`Who`] and limits itself to what exists for the
//! caller.
//!
//! Every request passes here, so this file also logs why requests were answered 503 while a server is away.

mod lines;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use self::lines::Lines;
use super::problem::seconds;
use super::{Problem, Who};
use crate::caller::rate::RateMeter;
use crate::caller::scope::CallerScope;
use crate::caller::{Caller, Callers, ClientNames, NotKnown};
use crate::lock::SharedLock;
use crate::metrics::Metrics;
use crate::refund::CallerName;

/// Makes a browser ask its user for a password.
const LOGIN: &str = "Basic realm=\"refundd\", charset=\"UTF-8\"";

/// What a route asks of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing, for supervisors and load balancers.
    Nothing,
    Scope(CallerScope),
}

/// Who calls a route, which decides how a token may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// A program: its token is a `Bearer` token.
    Programs,
    /// A person with a browser: the token may also be the password of HTTP Basic. A browser adds a password to requests that
    /// other pages cause, so no other route takes one.
    People,
}

/// The callers in force. A reload replaces them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Access {
    current: Arc<RwLock<Arc<CurrentCallers>>>,
    lines: Arc<Lines>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct CurrentCallers {
    callers: Callers,
    meters: BTreeMap<CallerName, Arc<RateMeter>>,
}

impl Access {
    /// Lets everybody in until callers are set, and counts who is not let in.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Access { metrics, ..Access::default() }
    }

    /// Puts callers in force. A caller whose rate stays keeps its count.
    pub fn set(&self, callers: &Callers) {
        let mut current = self.current.write_locked();
        let meter = |caller: &Arc<Caller>| {
            let rate = caller.rate?;
            let kept = current.meters.get(&caller.name).filter(|meter| meter.rate == rate);
            Some((caller.name.clone(), kept.map_or_else(|| Arc::new(RateMeter::new(rate)), Arc::clone)))
        };
        let meters = callers.0.values().filter_map(meter).collect();
        *current = Arc::new(CurrentCallers { callers: callers.clone(), meters });
    }

    /// Finds out who sent a request, and whether the caller may do what the route needs.
    pub(super) fn admit(
        &self,
        request: &Request,
        needs: Needs,
        audience: Audience,
    ) -> Result<Who, AccessRefusal> {
        let current = Arc::clone(&self.current.read_locked());
        if current.callers.is_empty() {
            return Ok(Who::Anyone);
        }
        let Needs::Scope(scope) = needs else { return Ok(Who::Stranger) };
        let token = token(request, audience)?;
        let caller = current.callers.identify(token.as_deref(), names(request), Timestamp::now())?;
        if let Some(meter) = current.meters.get(&caller.name) {
            meter.take(Instant::now()).map_err(|wait| AccessRefusal::TooMany(caller.name.clone(), wait))?;
        }
        if !caller.may.contains(&scope) {
            return Err(AccessRefusal::MissingScope(caller.name.clone(), scope));
        }
        Ok(Who::Caller(caller))
    }

    /// Counts a refusal for the metrics and the log.
    fn note(&self, refusal: &AccessRefusal) {
        self.metrics.caller_refused(refusal.reason());
        self.lines.refused(refusal);
    }
}

/// The names in the request's client certificate; none without TLS.
fn names(request: &Request) -> &[String] {
    request.extensions().get::<ClientNames>().map_or(&[], |names| &names.0)
}

/// The token in `Authorization`, if the request has that header.
fn token(request: &Request, audience: Audience) -> Result<Option<Cow<'_, str>>, NotKnown> {
    let mut given = request.headers().get_all(AUTHORIZATION).into_iter();
    let Some(header) = given.next() else { return Ok(None) };
    let read = || {
        let (scheme, value) = header.to_str().ok()?.split_once(' ')?;
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(Cow::Borrowed(value.trim()));
        }
        let is_basic = audience == Audience::People && scheme.eq_ignore_ascii_case("basic");
        is_basic.then(|| password(value.trim())).flatten().map(Cow::Owned)
    };
    match (read(), given.next()) {
        (Some(token), None) => Ok(Some(token)),
        _ => Err(NotKnown::WrongToken),
    }
}

/// The password of HTTP Basic. The user name does not count: the token names its caller.
fn password(encoded: &str) -> Option<String> {
    let pair = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (_, password) = pair.split_once(':')?;
    Some(password.to_owned())
}

/// The layer of one route: admits a request and tells the handler who sent it, or refuses it.
pub(super) async fn admitted(
    State((access, needs, audience)): State<(Access, Needs, Audience)>,
    mut request: Request,
    next: Next,
) -> Response {
    match access.admit(&request, needs, audience) {
        Ok(who) => {
            // Nothing behind this layer needs the token.
            request.headers_mut().remove(AUTHORIZATION);
            request.extensions_mut().insert(who.clone());
            let mut response = next.run(request).await;
            if let Some(away) = response.extensions().get::<Problem>().and_then(Problem::away) {
                access.lines.away(away);
            }
            // For `guard`: a large answer takes of this caller's share.
            response.extensions_mut().insert(who);
            response
        }
        Err(refusal) => {
            access.note(&refusal);
            let mut response = refusal.into_response();
            if audience == Audience::People && response.status() == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(LOGIN));
            }
            response
        }
    }
}

/// Why a request is not let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccessRefusal {
    #[error(transparent)]
    NotKnown(#[from] NotKnown),
    #[error("caller `{0}` may not `{1}`: its `may` does not have that scope")]
    MissingScope(CallerName, CallerScope),
    #[error("caller `{0}` sends more requests than its `requests` allow")]
    TooMany(CallerName, Duration),
}

impl AccessRefusal {
    /// The reason in the metrics.
    fn reason(&self) -> &'static str {
        match self {
            AccessRefusal::NotKnown(NotKnown::NoToken) => "no_token",
            AccessRefusal::NotKnown(NotKnown::WrongToken) => "wrong_token",
            AccessRefusal::NotKnown(NotKnown::ExpiredToken(_)) => "expired_token",
            AccessRefusal::NotKnown(NotKnown::NoCertificate(_)) => "no_certificate",
            AccessRefusal::MissingScope(..) => "missing_scope",
            AccessRefusal::TooMany(..) => "too_fast",
        }
    }
}

impl IntoResponse for AccessRefusal {
    fn into_response(self) -> Response {
        let detail = self.to_string();
        let (challenge, problem) = match self {
            AccessRefusal::NotKnown(not_known) => {
                let challenge = match not_known {
                    NotKnown::NoToken => "Bearer realm=\"refundd\"",
                    NotKnown::WrongToken | NotKnown::NoCertificate(_) => {
                        "Bearer realm=\"refundd\", error=\"invalid_token\""
                    }
                    NotKnown::ExpiredToken(_) => {
                        "Bearer realm=\"refundd\", error=\"invalid_token\", error_description=\"the token has expired\""
                    }
                };
                let problem =
                    Problem::new(StatusCode::UNAUTHORIZED, "caller-unknown", "Caller unknown", detail);
                (Some(challenge.to_owned()), problem)
            }
            AccessRefusal::MissingScope(_, scope) => {
                let challenge =
                    format!("Bearer realm=\"refundd\", error=\"insufficient_scope\", scope=\"{scope}\"");
                let problem = Problem::new(StatusCode::FORBIDDEN, "scope-missing", "Scope missing", detail);
                (Some(challenge), problem.with("scope", scope.as_str()))
            }
            AccessRefusal::TooMany(_, wait) => {
                let problem =
                    Problem::new(StatusCode::TOO_MANY_REQUESTS, "caller-too-fast", "Caller too fast", detail);
                (None, problem.retry_after(seconds(wait)))
            }
        };
        let mut response = problem.into_response();
        if let Some(challenge) = challenge.and_then(|text| HeaderValue::try_from(text).ok()) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;
    use crate::caller::Names;
    use crate::refund::AmountBounds;

    /// The status for a request over a connection whose client certificate has this name.
    async fn status(access: &Access, certificate: Option<&str>) -> u16 {
        let state = (access.clone(), Needs::Scope(CallerScope::Look), Audience::Programs);
        let layer = from_fn_with_state(state, admitted);
        let router = Router::new().route("/", get(async || "in").route_layer(layer));
        let mut request = Request::builder().body(Body::empty()).unwrap();
        if let Some(name) = certificate {
            request.extensions_mut().insert(ClientNames(Arc::new([name.to_owned()])));
        }
        router.oneshot(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn the_listener_says_which_client_certificate_a_request_came_with() {
        let access = Access::default();
        assert_eq!(status(&access, None).await, 200);
        let shop = Caller {
            name: CallerName::new("shop").unwrap(),
            tokens: Vec::new(),
            certificate: Some("shop.internal".to_owned()),
            may: BTreeSet::from([CallerScope::Look]),
            channels: Names::All,
            limits: Names::All,
            rate: None,
            most: AmountBounds::default(),
        };
        access.set(&Callers(BTreeMap::from([(shop.name.clone(), Arc::new(shop))])));
        assert_eq!(status(&access, Some("shop.internal")).await, 200);
        assert_eq!(status(&access, Some("desk.internal")).await, 401);
        assert_eq!(status(&access, None).await, 401);
    }
}
