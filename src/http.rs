//! The HTTP API: saves refunds, shows them and the channels, takes decisions and grants permits to other services.
//!
//! A handler reads the request, calls the store once and formats the answer. Only `acquire` needs Redis, so saving
//! works while Redis is away. Handlers do not check refunds, [`crate::refund::draft`] does. [`problem`] formats the
//! problems, and [`guard`] decides which requests are let in.
//!
//! Saving runs in a task of its own, so a client that hangs up does not stop it. A client must treat a lost answer as
//! "may have been saved" and repeat the request, which is safe.

mod acquire;
mod batch;
mod body;
mod budget;
mod census;
mod channels;
mod group_committer;
mod guard;
mod health;
mod json;
mod look;
mod problem;
mod review;
mod save;
mod scrape;
pub mod server;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use tokio::sync::Semaphore;

use self::body::Bodies;
use self::budget::Budget;
use self::census::CensusCache;
use self::group_committer::GroupCommitter;
use self::json::Json;
use self::problem::Problem;
use crate::node::Node;
use crate::refund::ChannelName;

pub use self::server::ClientNames;

/// How many batches are parsed and saved at the same time; each may take tens of MiB. Other batches wait.
const BATCHES_AT_ONCE: usize = 2;
/// How many lists are read at the same time. A list may take seconds, and the channel workers need the connections.
const LISTS_AT_ONCE: usize = 2;

/// Nudges the feeder, because a channel has a new refund. A lost nudge does no harm.
pub type Nudge = Arc<dyn Fn(&ChannelName) + Send + Sync>;

/// What the handlers use. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    pub node: Node,
    /// The host names that callers may use for this node, beside `localhost` and plain addresses.
    pub hosts: Arc<[String]>,
    bodies: Bodies,
    /// For large answers that callers have not read.
    unread: Budget,
    census: Arc<CensusCache>,
    batches: Arc<Semaphore>,
    lists: Arc<Semaphore>,
    group_committer: GroupCommitter,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Api {
    /// An API that answers to these host names, too. The body of a request must arrive within `body_timeout`.
    #[must_use]
    pub fn new(node: Node, nudge: Nudge, hosts: Arc<[String]>, body_timeout: Duration) -> Self {
        Api {
            group_committer: GroupCommitter::new(node.store.clone(), Arc::clone(&node.metrics), nudge),
            node,
            hosts,
            bodies: Bodies::new(body_timeout),
            unread: Budget::new(guard::MOST_UNREAD),
            census: Arc::default(),
            batches: Arc::new(Semaphore::new(BATCHES_AT_ONCE)),
            lists: Arc::new(Semaphore::new(LISTS_AT_ONCE)),
        }
    }
}

/// Refuses requests while the node starts: Postgres may be away, or its schema may be old.
async fn joined(State(node): State<Node>, request: Request, next: Next) -> Result<Response, Problem> {
    if node.has_joined() { Ok(next.run(request).await) } else { Err(Problem::starting()) }
}

/// All routes, behind the guard.
pub fn router(api: Api) -> Router {
    let routes = Router::new()
        .route("/v1/refunds", post(save::one).get(look::list))
        .route("/v1/refunds/batch", post(batch::many))
        .route("/v1/refunds/{id}", get(look::one))
        .route("/v1/refunds/{id}/cancel", post(look::cancel))
        .route("/v1/refunds/{id}/attempts", get(review::attempts))
        .route("/v1/review", post(review::decide))
        .route("/v1/channels", get(channels::list))
        .route("/v1/limits/{name}/acquire", post(acquire::acquire))
        .route_layer(from_fn_with_state(api.node.clone(), joined))
        .merge(admin_routes());
    guard::guard(routes.with_state(api.clone()), api.hosts, api.unread)
}

/// The routes of `admin_listen`, behind a guard of their own: health and metrics.
pub fn admin_router(api: Api) -> Router {
    let unread = Budget::new(guard::MOST_UNREAD);
    guard::guard(admin_routes().with_state(api.clone()), api.hosts, unread)
}

fn admin_routes() -> Router<Api> {
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(scrape::page))
}
