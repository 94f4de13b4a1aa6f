//! The health checks: whether the node needs no restart, and whether it is ready for callers.
//!
//! A node that cannot send still saves refunds: Redis is away, or claims fail. It is degraded, not down, and a load
//! balancer should keep sending requests to it. Without Postgres the node can do nothing for a caller, nor while Postgres
//! answers and takes no refunds.
//!
//! Everybody may ask, so all requests of a second share one ping of Postgres: strangers cannot take the connections that
//! the node needs for its work.
//!
//! A bank that cannot be reached, a paused channel and a channel that no node runs are not the node's fault. They are no
//! part of its health.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::shared_read::SharedRead;
use super::{Api, Json, Problem, Who};
use crate::logs::chain;
use crate::node::Node;
use crate::node::progress::Progress;

/// The longest wait for Postgres, so that the answer comes before a load balancer gives up.
const MOST: Duration = Duration::from_secs(2);
/// How long all requests share the result of a ping.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The last ping of Postgres: why Postgres is not fit for work, or `None`.
#[derive(Debug, Default)]
pub(super) struct Ping(Arc<SharedRead<Option<Unfit>>>);

/// The problem for callers, and the reason for those who may see it.
#[derive(Debug, Clone)]
struct Unfit {
    problem: Problem,
    reason: Option<String>,
}

impl Ping {
    async fn read(&self, node: &Node) -> Option<Unfit> {
        let node = node.clone();
        let ping = || async move { Ok(ping(&node).await) };
        // The ping ends by itself. One that waits for an earlier ping has its result.
        match self.0.read(ping, |_, _| SHARED_FOR, MOST + SHARED_FOR).await {
            Ok(pinged) => Option::clone(&pinged),
            Err(problem) => Some(Unfit { problem, reason: None }),
        }
    }
}

async fn ping(node: &Node) -> Option<Unfit> {
    let (problem, reason) = match timeout(MOST, node.store.takes_no_writes()).await {
        Ok(Ok(None)) => return None,
        Ok(Ok(Some(why))) => (Problem::outage(), Some(why.to_owned())),
        // Also when the ping itself is too slow: such a node takes no refunds.
        Ok(Err(error)) if error.is_too_slow() => (Problem::outage(), Some(chain(&error).to_string())),
        Ok(Err(error)) => (Problem::store(&error), error.is_outage().then(|| chain(&error).to_string())),
        Err(_) => (Problem::outage(), None),
    };
    Some(Unfit { problem, reason })
}

/// `GET /health/live`: the process answers, and no loop is stuck. It is the watchdog of nodes that systemd does not run.
///
/// A node that stops is live: each wait of its stop has a bound.
pub(super) async fn live(State(api): State<Api>, who: Who) -> Result<Json<Value>, Problem> {
    let is_stopping = api.node.stop.is_cancelled();
    let stuck = if is_stopping { Vec::new() } else { api.node.progress.stuck(Progress::PATIENCE) };
    liveness(&stuck, who.may_see_reasons())
}

fn liveness(stuck: &[String], with_reason: bool) -> Result<Json<Value>, Problem> {
    if stuck.is_empty() {
        return Ok(Json(json!({"status": "live"})));
    }
    let detail = "a loop of this node has been inside one round for more than a minute; restart the node";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stuck", "Stuck", detail);
    // A loop may have the name of a channel.
    let reason = format!("loop {} is stuck", stuck.join(", "));
    Err(if with_reason { problem.with("reason", reason) } else { problem })
}

/// `GET /health/ready`: the node can save refunds.
///
/// While the configuration has callers, the answer has no reasons: they name servers, and this route needs no token. The
/// node's log has them.
pub(super) async fn ready(State(api): State<Api>, who: Who) -> Result<Json<Value>, Problem> {
    let because = |problem: Problem, why: &str| {
        if who.may_see_reasons() { problem.with("reason", why) } else { problem }
    };
    if api.node.stop.is_cancelled() {
        let detail = "this node is stopping and takes no more refunds";
        return Err(
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "Stopping", detail).retry_after(5)
        );
    }
    if !api.node.has_joined() {
        return Err(Problem::starting());
    }
    if let Some(Unfit { problem, reason }) = api.ping.read(&api.whole_node).await {
        return Err(match reason {
            Some(reason) => because(problem, &reason),
            None => problem,
        });
    }
    if !api.node.writes_to_postgres() {
        let why = "Postgres answers, and took no heartbeat of this node for 5 s; the log says why";
        return Err(because(Problem::outage(), why));
    }
    if let Some(trouble) = api.node.saving.trouble() {
        let why = format!("Postgres answers, and no refund can be saved: {trouble}");
        return Err(because(Problem::outage(), &why));
    }
    let blocked = || {
        let (channel, why) = api.node.status_report.first_blocked()?;
        Some(format!("channel {channel} is blocked: {why}"))
    };
    let redis = api.node.bucket.trouble().map(|trouble| format!("Redis is away: {trouble}"));
    Ok(Json(readiness(redis.or_else(blocked), who.may_see_reasons())))
}

fn readiness(trouble: Option<String>, with_reason: bool) -> Value {
    match trouble {
        None => json!({"status": "ready"}),
        Some(trouble) if with_reason => {
            json!({"status": "degraded", "reason": format!("{trouble}; refunds are saved and wait")})
        }
        Some(_) => json!({"status": "degraded"}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_a_stuck_loop_is_not_live_and_names_the_loop_to_those_who_may_see_it() {
        let progress = Progress::default();
        let problem = |with_reason| liveness(&progress.stuck(Duration::ZERO), with_reason).err();
        assert_eq!(problem(true), None);
        let pass = progress.pass("channel worker of acme");
        let stuck = problem(false).unwrap();
        assert_eq!((stuck.status(), stuck.kind()), (StatusCode::SERVICE_UNAVAILABLE, "stuck"));
        let named = stuck.with("reason", "loop channel worker of acme is stuck");
        assert_eq!(problem(true), Some(named));
        drop(pass);
        assert_eq!(problem(true), None);
    }

    #[test]
    fn a_node_that_cannot_send_is_degraded_and_says_why() {
        assert_eq!(readiness(None, true), json!({"status": "ready"}));
        let degraded = readiness(Some("Redis is away: connection refused".to_owned()), true);
        assert_eq!(degraded["status"], "degraded");
        assert_eq!(degraded["reason"], "Redis is away: connection refused; refunds are saved and wait");
        assert_eq!(readiness(Some("Redis is away".to_owned()), false), json!({"status": "degraded"}));
    }
}
