//! The health checks: whether the process lives, and whether the node is ready for callers.
//!
//! Without Redis a node still saves refunds. It is degraded, not down, and a load balancer should keep sending
//! requests to it. Without Postgres the node can do nothing for a caller.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Api, Json, Problem};

/// The longest wait for Postgres, so that the answer comes before a load balancer gives up.
const MOST: Duration = Duration::from_secs(2);

/// `GET /health/live`: the process answers.
pub(super) async fn live() -> Json<Value> {
    Json(json!({"status": "live"}))
}

/// `GET /health/ready`: the node can save refunds.
pub(super) async fn ready(State(api): State<Api>) -> Result<Json<Value>, Problem> {
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
        Ok(Ok(Some(why))) => Err(Problem::outage().with("reason", why)),
        Ok(Ok(None)) if !api.node.writes_to_postgres() => {
            let why = "Postgres answers, and took no heartbeat of this node for 5 s; the log says why";
            Err(Problem::outage().with("reason", why))
        }
        Ok(Ok(None)) => Ok(Json(readiness(api.node.bucket.trouble()))),
        Ok(Err(error)) => Err(Problem::store(&error)),
        Err(_) => Err(Problem::outage()),
    }
}

fn readiness(redis_trouble: Option<String>) -> Value {
    match redis_trouble {
        None => json!({"status": "ready"}),
        Some(trouble) => json!({
            "status": "degraded",
            "reason": format!("Redis is away: {trouble}; refunds are saved and wait"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_redis_a_node_is_degraded_and_says_why() {
        assert_eq!(readiness(None), json!({"status": "ready"}));
        let degraded = readiness(Some("connection refused".to_owned()));
        assert_eq!(degraded["status"], "degraded");
        assert_eq!(degraded["reason"], "Redis is away: connection refused; refunds are saved and wait");
    }
}
