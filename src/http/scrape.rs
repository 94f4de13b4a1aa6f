//! The metrics page over HTTP: reads the census and the depths, and lets [`crate::metrics`] write the page.

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::IntoResponse;
use tokio::time::{Instant, timeout_at};

use super::Api;
use crate::metrics::{PageFormat, Readings};

/// The longest wait for a count. Scrapers commonly give up after ten seconds.
const MOST_PATIENCE: Duration = Duration::from_secs(5);

/// The longest wait for everything else from Postgres, taken together.
const REST: Duration = Duration::from_secs(2);

/// `GET /metrics`. It answers without Postgres, too: the counters of this node are needed most during an outage.
pub(super) async fn page(State(api): State<Api>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = PageFormat::accepted(accept);
    let counted = api.census.read(&api.node, MOST_PATIENCE).await;
    let until = Instant::now() + REST;
    // A count may be minutes old. It says neither what suspends channels now, nor whether Postgres answers.
    let census = match counted {
        Ok(counted) => in_time(until, api.census.renewed(&api.node, counted)).await,
        Err(_) => None,
    };
    // A Postgres that did not answer just now is not waited for again.
    let store = &api.node.store;
    let (unsealed, undelivered, proposals) = match &census {
        Some(_) => (
            in_time(until, store.oldest_unsealed()).await,
            in_time(until, store.oldest_undelivered()).await,
            in_time(until, store.count_proposals()).await,
        ),
        None => (None, None, None),
    };
    let readings = Readings {
        census: census.as_deref().map(Vec::as_slice),
        unsealed,
        undelivered,
        proposals,
        depths: api.node.depths(),
        blocked: api.node.status_report.blocked(),
        bound: api
            .node
            .status_report
            .bound()
            .into_iter()
            .map(|(name, binds)| (name, binds.as_str()))
            .collect(),
        waits: api.node.status_report.long_waits(),
        // A node that stops sends no heartbeats.
        postgres_is_up: api.node.stop.is_cancelled() || api.node.writes_to_postgres(),
        saves_fail: api.node.saving.trouble().is_some(),
        redis_is_up: api.node.bucket.trouble().is_none(),
    };
    ([(CONTENT_TYPE, format.content_type())], api.node.metrics.page(&readings, format))
}

/// What Postgres answers until then; `None` if it fails or takes longer.
async fn in_time<T, E>(until: Instant, answer: impl Future<Output = Result<T, E>>) -> Option<T> {
    timeout_at(until, answer).await.ok()?.ok()
}
