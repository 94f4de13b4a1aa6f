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
mod census;
mod channels;
mod group_committer;
mod guard;
mod health;
mod look;
mod problem;
mod review;
mod save;
mod scrape;
pub mod server;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use self::census::CensusCache;
use self::group_committer::GroupCommitter;
use self::problem::Problem;
use crate::acquire::AcquireOutcome;
use crate::channel::Channel;
use crate::limiter::Limit;
use crate::metrics::Metrics;
use crate::node::restoring::ServerError;
use crate::node::status_report::BankReport;
use crate::refund::{ChannelName, LimitName, RefundId};
use crate::store::Store;

pub use server::serve;

/// How many batches are read and parsed at the same time; each may take tens of MiB. Other batches wait with their
/// bodies unread.
const BATCHES_AT_ONCE: usize = 2;

/// What the handlers need to know of the node.
pub trait Status: Send + Sync {
    /// The limits of this node's file, whether or not one of its channels has them.
    fn limits(&self) -> Vec<Arc<Limit>>;
    /// Gets permits for another service, all that it wants or none; see [`crate::acquire`].
    fn acquire(
        &self,
        limit: Arc<Limit>,
        want: u32,
        caller: String,
    ) -> BoxFuture<'static, Result<AcquireOutcome, ServerError>>;
    /// The limit that makes a channel wait, and how much longer.
    fn wait_of(&self, channel: &ChannelName) -> Option<(LimitName, Duration)>;
    /// The stricter rule of another node's file, if one is in force instead of this node's.
    fn stricter_rule(&self, limit: &LimitName) -> Option<String>;
    /// What this node sees of a channel's bank.
    fn bank_of(&self, channel: &ChannelName) -> BankReport;
    /// The channels this node runs.
    fn config(&self) -> Arc<Vec<Arc<Channel>>>;
    /// Whether this node reaches Redis.
    fn redis_is_up(&self) -> bool;
    /// What is wrong with Redis, for people.
    fn redis_trouble(&self) -> Option<String>;
    /// Whether the node is stopping.
    fn stopping(&self) -> bool;
    /// Takes the id of a refund that has ended out of its bucket, in the background. A failure does no harm.
    fn withdraw(&self, channel: ChannelName, id: RefundId);
    /// How many ids each bucket had when this node last looked.
    fn depths(&self) -> HashMap<ChannelName, u64>;
}

/// Nudges the feeder, because a channel has a new refund. A lost nudge does no harm.
pub type Nudge = Arc<dyn Fn(&ChannelName) + Send + Sync>;

/// What the handlers use. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    pub store: Store,
    pub status: Arc<dyn Status>,
    pub metrics: Arc<Metrics>,
    /// The host names that callers may use for this node, beside `localhost` and plain addresses.
    pub hosts: Arc<[String]>,
    census: Arc<CensusCache>,
    batches: Arc<Semaphore>,
    group_committer: GroupCommitter,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Api {
    /// An API without further host names.
    #[must_use]
    pub fn new(store: Store, status: Arc<dyn Status>, metrics: Arc<Metrics>, nudge: Nudge) -> Self {
        Api {
            group_committer: GroupCommitter::new(store.clone(), Arc::clone(&metrics), nudge),
            store,
            status,
            metrics,
            hosts: Arc::new([]),
            census: Arc::default(),
            batches: Arc::new(Semaphore::new(BATCHES_AT_ONCE)),
        }
    }
}

/// All routes, behind the guard.
pub fn router(api: Api) -> Router {
    let hosts = Arc::clone(&api.hosts);
    let routes = Router::new()
        .route("/v1/refunds", post(save::one).get(look::list))
        .route("/v1/refunds/batch", post(batch::many))
        .route("/v1/refunds/{id}", get(look::one))
        .route("/v1/refunds/{id}/cancel", post(look::cancel))
        .route("/v1/refunds/{id}/attempts", get(review::attempts))
        .route("/v1/review", post(review::decide))
        .route("/v1/channels", get(channels::list))
        .route("/v1/limits/{name}/acquire", post(acquire::acquire))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(scrape::page))
        .with_state(api);
    guard::guard(routes, hosts)
}
