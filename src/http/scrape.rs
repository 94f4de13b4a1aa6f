//! The metrics page over HTTP: reads the census and the depths, and lets [`crate::metrics`] write the page.

use std::sync::Mutex;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::IntoResponse;
use tokio::time::{Instant, timeout_at};

use super::Api;
use super::census::GoodCount;
use crate::lock::Lock;
use crate::metrics::{PageFormat, Readings};

/// The longest wait for a count. Scrapers commonly give up after ten seconds.
const MOST_PATIENCE: Duration = Duration::from_secs(5);

/// The longest wait for what suspends channels, and then for everything else from Postgres, taken together.
const REST: Duration = Duration::from_secs(2);

/// The oldest snapshot in Postgres, and since when this node has seen it. Postgres shows times of other roles' sessions to few roles.
#[derive(Debug, Default)]
pub(super) struct HeldSnapshot(Mutex<Option<(String, Instant)>>);

impl HeldSnapshot {
    /// Notes the oldest snapshot, and answers for how long it has been the oldest.
    fn note(&self, oldest: Option<String>, now: Instant) -> Duration {
        let mut held = self.0.locked();
        *held = oldest.map(|xid| match held.take() {
            Some((before, since)) if before == xid => (xid, since),
            _ => (xid, now),
        });
        held.as_ref().map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since))
    }
}

/// `GET /metrics`. It answers without Postgres, too: the counters of this node are needed most during an outage.
pub(super) async fn page(State(api): State<Api>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = PageFormat::accepted(accept);
    let counted = api.census.counted(&api.node, MOST_PATIENCE).await;
    let until = Instant::now() + REST;
    // A count may be minutes old, and may fail because it takes too long. It says neither what suspends channels now, nor whether
    // Postgres answers. This read says both.
    let suspended = in_time(until, api.census.suspended(&api.whole_node)).await;
    let census_age = counted.as_ref().map(GoodCount::age);
    let census = suspended.as_ref().zip(counted).map(|(suspended, counted)| counted.with(suspended));
    // These reads wait behind no caller. One scrape makes them at a time: many would use the connections of the node's own work.
    let store = &api.whole_node.store;
    let alone = timeout_at(until, api.scrapes.lock()).await.ok();
    let until = Instant::now() + REST;
    // A Postgres that did not answer just now is not waited for again.
    let (unsealed, undelivered, proposals, oldest) = match suspended.as_ref().and(alone.as_ref()) {
        Some(_) => (
            in_time(until, store.oldest_unsealed()).await,
            in_time(until, store.oldest_undelivered()).await,
            in_time(until, store.count_proposals()).await,
            in_time(until, store.oldest_snapshot()).await,
        ),
        None => (None, None, None, None),
    };
    drop(alone);
    // A node that stops sends no heartbeats.
    let takes_heartbeats = api.node.stop.is_cancelled() || api.node.writes_to_postgres();
    let readings = Readings {
        census: census.as_deref().map(Vec::as_slice),
        census_age,
        unsealed,
        undelivered,
        snapshot_held: oldest.map(|oldest| api.snapshot.note(oldest, Instant::now())),
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
        postgres_is_up: suspended.is_some() && takes_heartbeats,
        saves_fail: api.node.saving.trouble().is_some(),
        redis_is_up: api.node.bucket.trouble().is_none(),
    };
    ([(CONTENT_TYPE, format.content_type())], api.node.metrics.page(&readings, format))
}

/// What Postgres answers until then; `None` if it fails or takes longer.
async fn in_time<T, E>(until: Instant, answer: impl Future<Output = Result<T, E>>) -> Option<T> {
    timeout_at(until, answer).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_held_from_the_first_scrape_that_saw_it_until_another_one_is_the_oldest() {
        let (held, begin) = (HeldSnapshot::default(), Instant::now());
        let held_after = |seconds, oldest: Option<&str>| {
            held.note(oldest.map(str::to_owned), begin + Duration::from_secs(seconds)).as_secs()
        };
        assert_eq!(held_after(0, Some("700")), 0);
        assert_eq!(held_after(60, Some("700")), 60);
        assert_eq!(held_after(90, Some("710")), 0);
        assert_eq!(held_after(95, Some("710")), 5);
        assert_eq!(held_after(99, None), 0);
        assert_eq!(held_after(100, Some("710")), 0);
    }
}
