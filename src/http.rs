//! The HTTP API: saves refunds, shows them and the channels, takes decisions and grants permits to other services. [`page`]
//! shows the same to people.
//!
//! A handler reads the request, calls the store once and formats the answer. Only `acquire` needs Redis, so saving
//! works while Redis is away. Handlers do not check refunds, [`crate::refund::draft`] does. [`problem`] formats the
//! problems, [`guard`] keeps web pages out, and [`access`] decides what each caller may do.
//!
//! Work that changes something runs in a task of its own, so a client that hangs up does not stop it. A single refund that still
//! waits for its commit, and a request that still waits for its place, are dropped. A client must treat a lost answer as "may
//! have been saved" and repeat the request. Saving is safe to repeat.

pub mod access;
mod acquire;
mod batch;
mod body;
mod budget;
mod cancel;
mod census;
mod changes;
mod channels;
mod description;
mod events;
mod find;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod group_committer;
mod guard;
mod health;
mod json;
mod log_throttle;
mod look;
mod moving;
mod named_channel;
mod page;
mod pauses;
mod per_caller;
mod person;
mod problem;
mod proposals;
mod query;
mod request_places;
mod review;
pub mod routes;
mod save;
mod scrape;
pub mod server;
mod shared_read;
mod who;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::Mutex;

use self::access::Access;
use self::body::Bodies;
use self::budget::{Budget, ReservedBytes};
use self::census::CensusCache;
use self::group_committer::GroupCommitter;
use self::health::Ping;
use self::json::Json;
use self::page::watch::Watch;
use self::problem::Problem;
use self::request_places::{RequestPlace, RequestPlaces};
use self::scrape::HeldSnapshot;
use self::who::Who;
use crate::node::Node;
use crate::refund::ChannelName;

/// How many batches are parsed and saved at the same time; each may take tens of MiB. Other batches wait.
const BATCHES_AT_ONCE: usize = 2;
/// How many lists all callers together read at the same time.
const LISTS_AT_ONCE: usize = 2;
/// How many requests with decisions are carried out at the same time. Each makes up to 1,000 commits, one after the other.
const DECISIONS_AT_ONCE: usize = 4;
/// How many cancellations of one refund are carried out at the same time. While another transaction holds the refund, a
/// cancellation keeps a connection for 3 s, and the channel workers need the others.
const CANCELS_AT_ONCE: usize = 2;
/// How long a request with decisions, or a cancellation, waits for its place.
const DECISIONS_WAIT: Duration = Duration::from_secs(10);

/// Nudges the feeder, because a channel has a new refund. A lost nudge does no harm.
pub type Nudge = Arc<dyn Fn(&ChannelName) + Send + Sync>;

/// What the handlers use. A clone counts one reference: layers and handlers make several for each request.
#[derive(Debug, Clone)]
pub struct Api(Arc<ApiState>);

impl std::ops::Deref for Api {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.0
    }
}

/// What an [`Api`] shares.
#[derive(Clone)]
pub struct ApiState {
    pub node: Node,
    /// The node with all of its connections to Postgres, for reads that are made one at a time and that say how Postgres is.
    whole_node: Node,
    /// The host names that callers may use for this node, beside `localhost` and plain addresses.
    pub hosts: Arc<[String]>,
    /// Who may do what; open to all until callers are set.
    pub access: Access,
    bodies: Bodies,
    /// For large answers that callers have not read.
    unread: Budget,
    census: Arc<CensusCache>,
    snapshot: Arc<HeldSnapshot>,
    /// Held while a scrape reads from Postgres.
    scrapes: Arc<Mutex<()>>,
    ping: Arc<Ping>,
    /// What viewers of the page share.
    watch: Arc<Watch>,
    batches: RequestPlaces,
    lists: RequestPlaces,
    decisions: RequestPlaces,
    cancels: RequestPlaces,
    group_committer: GroupCommitter,
    nudge: Nudge,
}

impl fmt::Debug for ApiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiState").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Api {
    /// An API that answers to these host names, too, and that lets everybody in until callers are set. The body of a request must arrive within `body_timeout`.
    #[must_use]
    pub fn new(node: Node, nudge: Nudge, hosts: Arc<[String]>, body_timeout: Duration) -> Self {
        let (node, whole_node) = (node.for_callers(), node);
        Api(Arc::new(ApiState {
            group_committer: GroupCommitter::new(node.clone(), Arc::clone(&nudge)),
            nudge,
            access: Access::new(Arc::clone(&node.metrics)),
            node,
            whole_node,
            hosts,
            bodies: Bodies::new(body_timeout),
            unread: guard::unread(),
            census: Arc::default(),
            snapshot: Arc::default(),
            scrapes: Arc::default(),
            ping: Arc::default(),
            watch: Arc::default(),
            batches: RequestPlaces::new(BATCHES_AT_ONCE),
            lists: RequestPlaces::new(LISTS_AT_ONCE),
            decisions: RequestPlaces::new(DECISIONS_AT_ONCE),
            cancels: RequestPlaces::new(CANCELS_AT_ONCE),
        }))
    }

    /// Reserves room for the most bytes that an answer may have, until the answer is written. To be called before the work: a caller
    /// that does not read its answers must not keep Postgres and this node busy with more.
    fn room_for_answer(&self, who: &Who, most_bytes: usize) -> Result<ReservedBytes, Problem> {
        let room = self.unread.try_reserve(who.name(), most_bytes);
        room.map_err(|no_room| guard::too_much_unread(no_room, "nothing was done, and repeating is safe"))
    }

    /// Waits for a place to write a person's decisions or answers. To be called before the task that writes them: a caller that
    /// hangs up and repeats would fill the node with tasks.
    async fn place_to_decide(&self, who: &Who) -> Result<RequestPlace, Problem> {
        let busy = "you or others have decisions under way for longer than 10 s, so none of these was written; repeating is safe";
        self.decisions.place_within(who, DECISIONS_WAIT, busy).await
    }

    /// Waits for a place to cancel one refund. To be called before the task that cancels it, as for decisions.
    async fn place_to_cancel(&self, who: &Who) -> Result<RequestPlace, Problem> {
        let busy = "you or others have cancellations under way for longer than 10 s, so this one was not tried; repeating is safe";
        self.cancels.place_within(who, DECISIONS_WAIT, busy).await
    }
}

/// Does this work in a task of its own, so that it goes on to its end when the caller hangs up.
async fn to_the_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, Problem> {
    tokio::spawn(work).await.map_err(|_| Problem::internal())
}

/// All routes, behind the guard.
pub fn router(api: Api) -> Router {
    let (hosts, unread) = (Arc::clone(&api.hosts), api.unread.clone());
    guard::guard(routes::router(routes::table(), api), hosts, unread)
}

/// The routes of `admin_listen`, behind a guard of their own: health and metrics. The address is a loopback address, and
/// everybody who reaches it is let in.
pub fn admin_router(api: &Api) -> Router {
    let (hosts, unread) = (Arc::clone(&api.hosts), guard::unread());
    let table = routes::table().into_iter().filter(routes::Route::is_admin).collect();
    let open = ApiState { access: Access::default(), ..ApiState::clone(api) };
    guard::guard(routes::router(table, Api(Arc::new(open))), hosts, unread)
}
