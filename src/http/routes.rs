//! The routes of the API: one table, from which the router is made. Each row says what the route needs of a request, so no
//! route can be added without saying so.

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use serde_json::Value;

use super::access::{Audience, Needs, admitted};
use super::{
    Api, Problem, acquire, batch, cancel, changes, channels, description, events, find, health, look, moving,
    page, pauses, proposals, review, save, scrape,
};
use crate::caller::scope::CallerScope::{Acquire, Approve, Cancel, Enqueue, Look, Metrics, Operate, Review};
use crate::node::Node;
use crate::refund::draft::FieldError;

/// One method of one path.
#[derive(Debug)]
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub needs: Needs,
    pub audience: Audience,
    /// Whether `admin_listen` serves it, too. Such a route answers also while the node waits for Postgres before it starts.
    is_admin: bool,
    /// Whether the route reads the query, and refuses what it does not know there.
    has_query: bool,
    handler: MethodRouter<Api>,
}

impl Route {
    fn get<H: Handler<T, Api>, T: 'static>(path: &'static str, needs: Needs, handler: H) -> Route {
        let (audience, handler) = (Audience::Programs, get(handler));
        Route { method: Method::GET, path, needs, audience, is_admin: false, has_query: false, handler }
    }

    fn post<H: Handler<T, Api>, T: 'static>(path: &'static str, needs: Needs, handler: H) -> Route {
        let (audience, handler) = (Audience::Programs, post(handler));
        Route { method: Method::POST, path, needs, audience, is_admin: false, has_query: false, handler }
    }

    /// A part of the page, or a form of it.
    fn page(self) -> Route {
        Route { audience: Audience::People, ..self }
    }

    fn admin(self) -> Route {
        Route { is_admin: true, ..self }
    }

    fn with_query(self) -> Route {
        Route { has_query: true, ..self }
    }

    /// Whether `admin_listen` serves it, too.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.is_admin
    }
}

/// Every route of a node.
#[must_use]
pub fn table() -> Vec<Route> {
    let of = Needs::Scope;
    vec![
        Route::post("/v1/refunds", of(Enqueue), save::one),
        Route::get("/v1/refunds", of(Look), look::list).with_query(),
        Route::post("/v1/refunds/batch", of(Enqueue), batch::many),
        Route::get("/v1/refunds/find", of(Look), find::find).with_query(),
        Route::get("/v1/refunds/{id}", of(Look), look::one),
        Route::post("/v1/refunds/{id}/cancel", of(Cancel), cancel::cancel),
        Route::get("/v1/refunds/{id}/attempts", of(Look), review::attempts),
        Route::post("/v1/review", of(Review), review::decide),
        Route::get("/v1/proposals", of(Look), proposals::list).with_query(),
        Route::post("/v1/proposals/approve", of(Approve), proposals::approve),
        Route::post("/v1/proposals/withdraw", of(Review), proposals::withdraw),
        Route::get("/v1/channels", of(Look), channels::list),
        Route::get("/v1/channels/{name}", of(Look), channels::one),
        Route::post("/v1/channels/{name}/pause", of(Operate), pauses::pause),
        Route::post("/v1/channels/{name}/resume", of(Operate), pauses::resume),
        Route::post("/v1/channels/{name}/move", of(Operate), moving::moving),
        Route::post("/v1/pause", of(Operate), pauses::pause),
        Route::post("/v1/resume", of(Operate), pauses::resume),
        Route::get("/v1/suspensions", of(Look), pauses::list),
        Route::get("/v1/events", of(Look), events::list).with_query(),
        Route::get("/v1/changes", of(Look), changes::list).with_query(),
        Route::post("/v1/limits/{name}/acquire", of(Acquire), acquire::acquire),
        Route::get("/v1/openapi.json", Needs::Nothing, description::openapi),
        Route::get("/", of(Look), page::overview::show).page(),
        Route::get("/channels/{name}", of(Look), page::channel::show).page(),
        Route::post("/pause", of(Operate), page::pausing::pause).page(),
        Route::post("/resume", of(Operate), page::pausing::resume).page(),
        Route::post("/channels/{name}/pause", of(Operate), page::pausing::pause).page(),
        Route::post("/channels/{name}/resume", of(Operate), page::pausing::resume).page(),
        Route::get("/refunds", of(Look), page::refund::find).page(),
        Route::get("/refunds/{id}", of(Look), page::refund::show).page(),
        Route::post("/refunds/{id}/cancel", of(Cancel), page::refund::cancel).page(),
        Route::get("/review", of(Look), page::review::show).page(),
        Route::post("/review", of(Review), page::review::decide).page(),
        Route::get("/approvals", of(Look), page::approvals::show).page(),
        Route::post("/approvals/approve", of(Approve), page::approvals::approve).page(),
        Route::post("/approvals/withdraw", of(Review), page::approvals::withdraw).page(),
        Route::get("/events", of(Look), page::events::show).page(),
        Route::get("/proof", of(Look), page::proof::show).page(),
        Route::get("/nodes", of(Look), page::nodes::show).page(),
        Route::get("/page.css", Needs::Nothing, page::style).page(),
        Route::get("/page.js", Needs::Nothing, page::script).page(),
        Route::get("/page.svg", Needs::Nothing, page::icon).page(),
        Route::get("/health/live", Needs::Nothing, health::live).admin(),
        Route::get("/health/ready", Needs::Nothing, health::ready).admin(),
        Route::get("/metrics", of(Metrics), scrape::page).admin(),
    ]
}

pub(super) fn router(table: Vec<Route>, api: Api) -> Router {
    let routes = table.into_iter().fold(Router::new(), |router, route| {
        let mut handler = route.handler;
        // A browser's address may have parts of another program's. Probes and scrapers add what they like.
        if route.audience == Audience::Programs && !route.is_admin && !route.has_query {
            handler = handler.route_layer(from_fn(without_query));
        }
        if !route.is_admin {
            handler = handler.route_layer(from_fn_with_state(api.node.clone(), joined));
        }
        // The last layer runs first: a stranger does not learn how the node is.
        let access = (api.access.clone(), route.needs, route.audience);
        router.route(route.path, handler.route_layer(from_fn_with_state(access, admitted)))
    });
    routes.with_state(api)
}

/// Refuses requests while the node starts: Postgres may be away, or its schema may be old.
async fn joined(State(node): State<Node>, request: Request, next: Next) -> Result<Response, Problem> {
    if node.has_joined() { Ok(next.run(request).await) } else { Err(Problem::starting()) }
}

/// Refuses a query where a route reads none. A parameter that belongs into the body, such as `dry_run`, would be left out
/// without a word.
async fn without_query(request: Request, next: Next) -> Result<Response, Problem> {
    let query = request.uri().query().unwrap_or_default();
    let Some((name, value)) = form_urlencoded::parse(query.as_bytes()).next() else {
        return Ok(next.run(request).await);
    };
    let problem = "is in the query, and this route reads none; what it needs stands in its path or its body";
    Err(Problem::invalid(vec![FieldError::new(&name, Some(&Value::from(value.as_ref())), problem)]))
}
