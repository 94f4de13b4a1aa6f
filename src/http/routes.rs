//! The routes of the API: one table, from which the router is made. Each row says what the route needs of a request, so no
//! route can be added without saying so.

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};

use super::access::{Needs, admitted};
use super::{Api, Problem, acquire, batch, channels, health, look, review, save, scrape};
use crate::caller::scope::CallerScope::{Acquire, Cancel, Enqueue, Look, Metrics, Review};
use crate::node::Node;

/// One method of one path.
#[derive(Debug)]
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub needs: Needs,
    /// Whether the route answers while the node waits for Postgres before it starts.
    answers_while_starting: bool,
    handler: MethodRouter<Api>,
}

impl Route {
    fn get<H: Handler<T, Api>, T: 'static>(path: &'static str, needs: Needs, handler: H) -> Route {
        Route { method: Method::GET, path, needs, answers_while_starting: false, handler: get(handler) }
    }

    fn post<H: Handler<T, Api>, T: 'static>(path: &'static str, needs: Needs, handler: H) -> Route {
        Route { method: Method::POST, path, needs, answers_while_starting: false, handler: post(handler) }
    }

    fn while_starting(self) -> Route {
        Route { answers_while_starting: true, ..self }
    }
}

/// Every route of a node.
#[must_use]
pub fn table() -> Vec<Route> {
    let of = Needs::Scope;
    vec![
        Route::post("/v1/refunds", of(Enqueue), save::one),
        Route::get("/v1/refunds", of(Look), look::list),
        Route::post("/v1/refunds/batch", of(Enqueue), batch::many),
        Route::get("/v1/refunds/{id}", of(Look), look::one),
        Route::post("/v1/refunds/{id}/cancel", of(Cancel), look::cancel),
        Route::get("/v1/refunds/{id}/attempts", of(Look), review::attempts),
        Route::post("/v1/review", of(Review), review::decide),
        Route::get("/v1/channels", of(Look), channels::list),
        Route::post("/v1/limits/{name}/acquire", of(Acquire), acquire::acquire),
        Route::get("/health/live", Needs::Nothing, health::live).while_starting(),
        Route::get("/health/ready", Needs::Nothing, health::ready).while_starting(),
        Route::get("/metrics", of(Metrics), scrape::page).while_starting(),
    ]
}

/// The router of a table.
pub(super) fn router(table: Vec<Route>, api: Api) -> Router {
    let routes = table.into_iter().fold(Router::new(), |router, route| {
        let mut handler = route.handler;
        if !route.answers_while_starting {
            handler = handler.route_layer(from_fn_with_state(api.node.clone(), joined));
        }
        // The last layer runs first: a stranger does not learn how the node is.
        let access = (api.access.clone(), route.needs);
        router.route(route.path, handler.route_layer(from_fn_with_state(access, admitted)))
    });
    routes.with_state(api)
}

/// Refuses requests while the node starts: Postgres may be away, or its schema may be old.
async fn joined(State(node): State<Node>, request: Request, next: Next) -> Result<Response, Problem> {
    if node.has_joined() { Ok(next.run(request).await) } else { Err(Problem::starting()) }
}
