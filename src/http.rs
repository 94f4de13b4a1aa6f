//! The way in over HTTP, and the way to look.
//!
//! A handler reads the request, asks the store one question and words the answer; only `acquire` needs
//! Redis, so saving works while Redis is away. Whether a draft makes sense is [`crate::refund::draft`]'s
//! business, what a problem looks like is [`problem`]'s, who may ask at all is [`guard`]'s.
//!
//! A client that hangs up does not undo what it asked for: saving runs in a task of its own, so a
//! caller must treat a lost answer as "may have been saved" and repeat, which is safe.

mod acquire;
mod batch;
mod body;
mod census;
mod channels;
mod guard;
mod health;
mod look;
mod problem;
mod review;
mod save;
mod saver;
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
use self::problem::Problem;
use self::saver::Saver;
use crate::channel::Channel;
use crate::limiter::Limit;
use crate::metrics::Metrics;
use crate::node::reminding::ServerError;
use crate::node::standing::BankStanding;
use crate::outside::Answer;
use crate::refund::{ChannelName, LimitName, RefundId};
use crate::store::Store;

pub use server::serve;

/// Batches read and parsed at one time; each may hold tens of MiB. The others wait their turn with
/// their bodies unread.
const BATCHES_AT_ONCE: usize = 2;

/// How the node stands, for the handlers that tell of it.
pub trait Status: Send + Sync {
    /// The limits of this node's file, whether or not one of its channels has them.
    fn limits(&self) -> Vec<Arc<Limit>>;
    /// Permits for another service; see [`crate::outside`].
    fn acquire(
        &self,
        limit: Arc<Limit>,
        want: u32,
        caller: String,
    ) -> BoxFuture<'static, Result<Answer, ServerError>>;
    /// Which limit makes a channel wait, and for how long yet.
    fn wait_of(&self, channel: &ChannelName) -> Option<(LimitName, Duration)>;
    /// The rule of another node's file that is in force instead of ours.
    fn overruled_by(&self, limit: &LimitName) -> Option<String>;
    /// How a channel's bank looks from this node.
    fn bank_of(&self, channel: &ChannelName) -> BankStanding;
    /// The channels this node runs.
    fn config(&self) -> Arc<Vec<Arc<Channel>>>;
    fn redis_is_up(&self) -> bool;
    /// What is wrong with Redis, for people.
    fn redis_trouble(&self) -> Option<String>;
    /// Whether the node has been told to stop.
    fn stopping(&self) -> bool;
    /// Takes the id of a refund that has ended out of its line, soon, if it can.
    fn withdraw(&self, channel: ChannelName, id: RefundId);
    /// Ids in line, as last known.
    fn depths(&self) -> HashMap<ChannelName, u64>;
}

/// Tells the feeder that a channel has a new refund; losing one is harmless.
pub type Nudge = Arc<dyn Fn(&ChannelName) + Send + Sync>;

/// What the handlers may reach.
#[derive(Clone)]
pub struct Api {
    pub store: Store,
    pub status: Arc<dyn Status>,
    pub metrics: Arc<Metrics>,
    /// Names, beside `localhost` and plain addresses, under which callers may reach this node.
    pub hosts: Arc<[String]>,
    census: Arc<CensusCache>,
    batches: Arc<Semaphore>,
    saver: Saver,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Api {
    #[must_use]
    pub fn new(store: Store, status: Arc<dyn Status>, metrics: Arc<Metrics>, nudge: Nudge) -> Self {
        Api {
            saver: Saver::new(store.clone(), Arc::clone(&metrics), nudge),
            store,
            status,
            metrics,
            hosts: Arc::new([]),
            census: Arc::default(),
            batches: Arc::new(Semaphore::new(BATCHES_AT_ONCE)),
        }
    }
}

/// Every route, with the guard in front.
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
    guard::stand_before(routes, hosts)
}
