//! The health checks: whether the process lives, and whether the node is ready for callers.
//!
//! A node that cannot send still saves refunds: Redis is away, or claims fail. It is degraded, not down, and a load
//! balancer should keep sending requests to it. Without Postgres the node can do nothing for a caller, nor while Postgres
//! answers and takes no refunds.
//!
//! A bank that cannot be reached, a paused channel and a channel that no node runs are not the node's fault. They are no
//! part of its health.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Api, Json, Problem, Who};
use crate::telemetry::chain;

/// The longest wait for Postgres, so that the answer comes before a load balancer gives up.
const MOST: Duration = Duration::from_secs(2);

/// `GET /health/live`: the process answers.
pub(super) async fn live() -> Json<Value> {
    Json(json!({"status": "live"}))
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
    match timeout(MOST, api.node.store.takes_no_writes()).await {
        Ok(Ok(Some(why))) => Err(because(Problem::outage(), why)),
        Ok(Ok(None)) if !api.node.writes_to_postgres() => {
            let why = "Postgres answers, and took no heartbeat of this node for 5 s; the log says why";
            Err(because(Problem::outage(), why))
        }
        Ok(Ok(None)) if let Some(trouble) = api.node.saving.trouble() => {
            let why = format!("Postgres answers, and no refund can be saved: {trouble}");
            Err(because(Problem::outage(), &why))
        }
        Ok(Ok(None)) => {
            let blocked = || {
                let (channel, why) = api.node.status_report.first_blocked()?;
                Some(format!("channel {channel} is blocked: {why}"))
            };
            let redis = api.node.bucket.trouble().map(|trouble| format!("Redis is away: {trouble}"));
            Ok(Json(readiness(redis.or_else(blocked), who.may_see_reasons())))
        }
        Ok(Err(error)) if error.is_outage() => {
            Err(because(Problem::store(&error), &chain(&error).to_string()))
        }
        Ok(Err(error)) => Err(Problem::store(&error)),
        Err(_) => Err(Problem::outage()),
    }
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
    fn a_node_that_cannot_send_is_degraded_and_says_why() {
        assert_eq!(readiness(None, true), json!({"status": "ready"}));
        let degraded = readiness(Some("Redis is away: connection refused".to_owned()), true);
        assert_eq!(degraded["status"], "degraded");
        assert_eq!(degraded["reason"], "Redis is away: connection refused; refunds are saved and wait");
        assert_eq!(readiness(Some("Redis is away".to_owned()), false), json!({"status": "degraded"}));
    }
}
