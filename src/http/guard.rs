//! The guard before every route: decides which requests are let in, how long an answer may take, and how many bytes all
//! callers together may leave unread. It also turns every refusal into a problem, even for a route that does not exist.
//!
//! The guard does not authenticate callers: `access` does, for each route.
//!
//! A node that speaks TLS is reached by it alone. Somebody on the network path can still give a browser pages of this
//! host in clear text. So the answer tells browsers to use nothing else.

mod admission;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, HeaderName, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tower_http::catch_panic::CatchPanicLayer;

use self::admission::admitted;
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
    // A browser that does not say where a request comes from gives the answer to no foreign page.
    let own_pages = HeaderValue::from_static("same-origin");
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), own_pages);
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

async fn no_such_route(uri: Uri) -> Problem {
    let path = uri.path();
    let hint = match path.trim_end_matches('/') {
        "/health" | "/healthz" => "the health checks are /health/ready and /health/live",
        // `admin_listen` does not serve it.
        _ => "/v1/openapi.json lists the routes, at the address of `[http] listen`",
    };
    let detail = format!("nothing is served at {path}; {hint}");
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
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guarded().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
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
            assert_eq!(response.headers()["cross-origin-resource-policy"], "same-origin");
        }
        assert_eq!(answer_to("DELETE", "/here", &[]).await.headers()[ALLOW], "GET,HEAD");
    }

    #[tokio::test]
    async fn an_unknown_route_names_what_lists_the_routes_or_the_health_checks() {
        for (path, named) in
            [("/v1/refund", "/v1/openapi.json"), ("/health", "/health/ready"), ("/healthz", "/health/live")]
        {
            let body = answer_to("GET", path, &[]).await.into_body().collect().await.unwrap().to_bytes();
            let problem = String::from_utf8_lossy(&body);
            assert!(problem.contains(named), "{path}: {problem}");
        }
    }

    #[tokio::test]
    async fn large_answers_that_nobody_reads_are_bounded_and_small_ones_are_not() {
        let guarded = guarded();
        let answer_to = async |path: &str| {
            let request = Request::builder().uri(path).header("host", "localhost");
            let request = request.body(Body::empty()).unwrap();
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
            let request = Request::builder().uri(path).header("host", "localhost");
            let request = request.body(Body::empty()).unwrap();
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
