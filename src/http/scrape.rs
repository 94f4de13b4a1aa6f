//! The metrics page over HTTP: reads the census and the depths, and lets [`crate::metrics`] write the page.

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::IntoResponse;

use super::Api;
use crate::metrics::{PageFormat, Readings};

/// The longest wait for a count. Scrapers commonly give up after ten seconds.
const MOST_PATIENCE: Duration = Duration::from_secs(5);

/// `GET /metrics`. It answers without Postgres, too: the counters of this node are needed most during an outage.
pub(super) async fn page(State(api): State<Api>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = PageFormat::accepted(accept);
    let census = api.census.read(&api.node, MOST_PATIENCE).await.ok();
    // A Postgres that did not answer just now is not waited for again.
    let (unsealed, undelivered, proposals) = match &census {
        Some(_) => {
            let store = &api.node.store;
            let (unsealed, undelivered) = (store.oldest_unsealed().await, store.oldest_undelivered().await);
            (unsealed.ok(), undelivered.ok(), store.count_proposals().await.ok())
        }
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
        postgres_is_up: api.node.writes_to_postgres(),
        saves_fail: api.node.saving.trouble().is_some(),
        redis_is_up: api.node.bucket.trouble().is_none(),
    };
    ([(CONTENT_TYPE, format.content_type())], api.node.metrics.page(&readings, format))
}
