//! The guard before every route: decides which requests are let in, how long an answer may take, and how many bytes all
//! callers together may leave unread. It also turns every refusal into a problem, even for a route that does not exist.
//!
//! The guard does not authenticate callers: `access` does, for each route.
//!
//! A web page in a browser on this machine can still reach a loopback address, in two ways. It can use a name of its
//! own that points here; then `Host` has that name. Or it can use the address; then the browser adds `Origin`.
//! Programs do neither, so the guard refuses both.
//!
//! A node that speaks TLS is reached by it alone. Somebody on the network path can still give a browser pages of this
//! host in clear text. So over TLS the scheme of `Origin` counts, too, and the answer tells browsers to use nothing else.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, HOST, ORIGIN, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tower_http::catch_panic::CatchPanicLayer;

use super::budget::{Budget, NoRoom};
use super::page::problem::AskedByPerson;
use super::server::OverTls;
use super::{Problem, Who};

/// The longest time for an answer. The store gives up much sooner; this bound is for unexpected causes.
const MOST_TIME: Duration = Duration::from_mins(2);

/// The most bytes of large answers that callers have not read yet.
const MOST_UNREAD: usize = 48 * 1024 * 1024;
/// The most of them that are one caller's.
const MOST_UNREAD_OF_A_CALLER: usize = MOST_UNREAD / 4;
/// An answer of more bytes is large. The kernel takes smaller ones whole.
const LARGE: u64 = 64 * 1024;

/// Marks an answer whose bytes are a part of the program. While nobody reads it, it costs no memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartOfProgram;

/// A browser that was here by TLS uses nothing else for this host, for a year.
const ONLY_BY_TLS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The room for large answers that callers have not read yet.
pub(super) fn unread() -> Budget {
    Budget::new(MOST_UNREAD, MOST_UNREAD_OF_A_CALLER)
}

/// The problem of an answer that has no room beside unread ones. `done` says what became of the request.
pub(super) fn too_much_unread(no_room: NoRoom, done: &str) -> Problem {
    let whose = match no_room {
        NoRoom::InShare => "you have not read your earlier answers",
        NoRoom::AtAll => "other callers do not read their answers",
    };
    Problem::busy(&format!("{whose}; {done}"))
}

#[derive(Debug, Clone)]
struct Guard {
    hosts: Arc<[String]>,
    unread: Budget,
}

/// Adds the guard, and problems for unknown routes and methods.
pub(super) fn guard(routes: Router, hosts: Arc<[String]>, unread: Budget) -> Router {
    routes
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(|_| {
            tracing::error!("A handler panicked, answered 500");
            Problem::internal().into_response()
        }))
        .layer(from_fn_with_state(Guard { hosts, unread }, guarded))
}

async fn guarded(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let person = AskedByPerson::of(&request);
    let is_over_tls = is_over_tls(&request);
    let mut response = match admitted(&request, &guard.hosts) {
        Err(problem) => problem.into_response(),
        Ok(()) => match tokio::time::timeout(MOST_TIME, next.run(request)).await {
            Ok(response) => in_budget(response, &guard.unread).await,
            Err(_) => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too-slow",
                "Took too long",
                "no answer in time; the request may still be carried out, so look before you repeat it",
            )
            .retry_after(5)
            .into_response(),
        },
    };
    if let Some(person) = person {
        response = person.show(response);
    }
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_over_tls {
        headers.insert(STRICT_TRANSPORT_SECURITY, ONLY_BY_TLS);
    }
    response
}

fn is_over_tls(request: &Request) -> bool {
    request.extensions().get::<OverTls>().is_some()
}

/// Reserves the bytes of a large answer until its caller has read them. If too many bytes are unread, the answer is a
/// problem: waiting would keep even more of them.
async fn in_budget(response: Response, unread: &Budget) -> Response {
    let Some(bytes) = response.body().size_hint().exact().filter(|bytes| *bytes > LARGE) else {
        return response;
    };
    if response.extensions().get::<PartOfProgram>().is_some() {
        return response;
    }
    let caller = response.extensions().get::<Who>().and_then(Who::name);
    let reserved = match unread.try_reserve(caller, usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Ok(reserved) => reserved,
        Err(no_room) => {
            let done = "the request may have been carried out, so look before you repeat it";
            return too_much_unread(no_room, done).into_response();
        }
    };
    let (head, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => Response::from_parts(head, Body::from(reserved.keep(body.to_bytes()))),
        Err(_) => Problem::internal().into_response(),
    }
}

fn admitted(request: &Request, hosts: &[String]) -> Result<(), Problem> {
    let header = |name| request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let host = header(HOST);
    // A request may also name a host in its target. Both names must belong to this node.
    for name in [host.as_deref(), request.uri().authority().map(Authority::as_str)].into_iter().flatten() {
        if !is_ours(without_port(name), hosts) {
            let detail = "this node answers to localhost, to plain addresses and to the names in [http] hosts, not to the name in `Host`";
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong-host", "Wrong host", detail));
        }
    }
    // Behind a proxy that speaks TLS for this node, the page's scheme is another than ours.
    let is_own = |(scheme, place): (&str, &str)| {
        Some(place) == host.as_deref() && (scheme == "https" || !is_over_tls(request))
    };
    match header(ORIGIN) {
        Some(origin) if !origin.split_once("://").is_some_and(is_own) => {
            let detail = "requests from web pages of another origin are refused";
            Err(Problem::new(StatusCode::FORBIDDEN, "foreign-origin", "Foreign origin", detail))
        }
        _ => Ok(()),
    }
}

/// Whether a host belongs to this node. Addresses do: a foreign page can make a name of its own point here, but no
/// address. Of the names, `localhost` and the configured ones do.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

async fn no_such_route(uri: Uri) -> Problem {
    let detail = format!("nothing is served at {}; the routes are listed in docs/http.md", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "no-such-route", "No such route", detail)
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}; the `Allow` header lists what it takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", "Wrong method", detail)
}

#[cfg(test)]
mod tests {
    use axum::http::header::{ALLOW, CONTENT_TYPE};
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    fn guarded() -> Router {
        let routes = Router::new()
            .route("/here", get(async || "here"))
            .route("/large", get(async || vec![b'x'; 40 * 1024 * 1024]))
            .route("/v1/openapi.json", get(super::super::description::openapi))
            .route("/panics", get(async || -> &'static str { panic!("on purpose") }));
        guard(routes, Arc::new(["node-a".to_owned()]), unread())
    }

    async fn answer_to(method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guarded().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_name_that_anyone_could_own_is_refused() {
        for ours in
            ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]", "10.0.0.7", "Node-A:1"]
        {
            assert_eq!(answer_to("GET", "/here", &[("host", ours)]).await.status(), 200, "{ours}");
        }
        assert_eq!(answer_to("GET", "/here", &[]).await.status(), 200);
        for foreign in
            ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", ""]
        {
            assert_eq!(answer_to("GET", "/here", &[("host", foreign)]).await.status(), 421, "{foreign}");
        }
        assert_eq!(
            answer_to("GET", "http://evil.example/here", &[("host", "localhost")]).await.status(),
            421
        );
    }

    #[tokio::test]
    async fn a_web_page_of_another_origin_is_refused() {
        let host = ("host", "localhost:8080");
        for foreign in ["https://evil.example", "null", "http://localhost:3000"] {
            assert_eq!(
                answer_to("GET", "/here", &[host, ("origin", foreign)]).await.status(),
                403,
                "{foreign}"
            );
        }
        assert_eq!(
            answer_to("GET", "/here", &[host, ("origin", "http://localhost:8080")]).await.status(),
            200
        );
    }

    #[tokio::test]
    async fn a_proxy_may_speak_tls_for_a_node_that_does_not() {
        let headers = [("host", "node-a"), ("origin", "https://node-a")];
        assert_eq!(answer_to("GET", "/here", &headers).await.status(), 200);
    }

    #[tokio::test]
    async fn an_unknown_route_and_a_wrong_method_are_problems_too() {
        for (method, path, status) in
            [("GET", "/nowhere", 404), ("DELETE", "/here", 405), ("GET", "/panics", 500)]
        {
            let response = answer_to(method, path, &[]).await;
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        }
        assert_eq!(answer_to("DELETE", "/here", &[]).await.headers()[ALLOW], "GET,HEAD");
    }

    #[tokio::test]
    async fn large_answers_that_nobody_reads_are_bounded_and_small_ones_are_not() {
        let guarded = guarded();
        let answer_to = async |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            guarded.clone().oneshot(request).await.unwrap()
        };
        let unread = answer_to("/large").await;
        assert_eq!(unread.status(), 200);
        let refused = answer_to("/large").await;
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (503, &HeaderValue::from(5))
        );
        assert_eq!(answer_to("/here").await.status(), 200);
        assert_eq!(unread.into_body().collect().await.unwrap().to_bytes().len(), 40 * 1024 * 1024);
        assert_eq!(answer_to("/large").await.status(), 200);
    }

    #[tokio::test]
    async fn strangers_who_do_not_read_the_description_take_no_room_of_other_answers() {
        let guarded = guarded();
        let answer_to = async |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            guarded.clone().oneshot(request).await.unwrap()
        };
        let mut unread = Vec::new();
        for _ in 0..1000 {
            unread.push(answer_to("/v1/openapi.json").await);
        }
        assert!(unread.iter().all(|answer| answer.status() == 200));
        assert_eq!(answer_to("/large").await.status(), 200);
    }
}
