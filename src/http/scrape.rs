//! The metrics page over HTTP: brings the readings, writes nothing itself.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::Api;
use crate::metrics::{self, Readings};

/// Scrapers commonly give up after ten seconds.
const MOST_PATIENCE: Duration = Duration::from_secs(5);

/// `GET /metrics`. Answers without Postgres, too: the counters of this node are worth most then.
pub(super) async fn page(State(api): State<Api>) -> impl IntoResponse {
    let census = api.census.read(&api.store, MOST_PATIENCE).await.ok();
    let page = api.metrics.page(&Readings {
        census: census.as_deref().map(Vec::as_slice),
        depths: api.status.depths(),
        redis_is_up: api.status.redis_is_up(),
    });
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page)
}
