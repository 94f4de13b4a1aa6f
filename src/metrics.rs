//! The metrics page: counters of this node, and gauges of all channels.
//!
//! [`node`] counts events as they happen; the loops share a [`Metrics`] and call its methods. [`service`] turns a
//! census and the depths of the buckets into gauges at each scrape.
//!
//! This module asks neither Postgres nor Redis; the caller of [`Metrics::page`] brings the readings.

mod node;
mod service;

pub use node::Metrics;
pub use service::Readings;

/// The page's value for the `content-type` header.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};
    use std::time::Duration;

    use super::*;
    use crate::bucket::Purpose;
    use crate::refund::{ChannelName, Code, State};
    use crate::store::ChannelCensus;

    fn census(channel: &str, counts: &[(State, u64)]) -> ChannelCensus {
        ChannelCensus {
            channel: channel.to_owned(),
            counts: counts.iter().copied().collect::<BTreeMap<_, _>>(),
            oldest_ready_age: None,
            sends_last_minute: 0,
            paused: None,
            cool_until: None,
            late: None,
            slowed: None,
            full: false,
            run_by: Vec::new(),
        }
    }

    /// Sorts the lines of each metric, which come in any order, but not the buckets of a histogram.
    fn in_order(page: &str) -> String {
        let lines: Vec<&str> = page.lines().collect();
        let name = |line: &&str| (line.starts_with('#') || line.contains("_bucket"), line.find('{'));
        let mut sorted = Vec::new();
        for run in lines.chunk_by(|a, b| name(a) == name(b)) {
            let mut run = run.to_vec();
            if !name(&run[0]).0 {
                run.sort_unstable();
            }
            sorted.extend(run);
        }
        sorted.join("\n")
    }

    #[test]
    fn the_page_shows_every_metric_with_its_meaning() {
        let acme = ChannelName::new("acme").unwrap();
        let metrics = Metrics::new();
        metrics.attempt(&acme, "succeeded", Duration::from_millis(40));
        metrics.attempt(&acme, "handed_back", Duration::ZERO);
        metrics.take(&acme, Purpose::Send, "granted");
        metrics.take(&acme, Purpose::Inquire, "denied");
        metrics.permits_unused(&acme, "late", 2);
        metrics.filled(&acme, 100);
        metrics.settled_late();
        metrics.stranded(&acme, 3);
        metrics.saved("http", 1);
        metrics.saved("http_batch", 500);
        metrics.caller_refused("expired_token");
        metrics.config_reload("kept_old");
        metrics.unmapped_answer(&acme, Some(418));
        metrics.unmapped_answer(&acme, None);
        metrics.claim(Duration::from_millis(3));
        metrics.bank_connected(&acme, true);
        metrics.connect_failures(&acme, Code::ConnectFailed, 2);
        let ms = |ms| Some(Duration::from_millis(ms));
        metrics.bank_distance(
            &acme,
            crate::bank::Reading { set_up: ms(120), round_trip: ms(60), round_trip_variation: ms(5) },
        );
        let mut paused = census("acme", &[(State::Ready, 1200), (State::Succeeded, 9)]);
        paused.oldest_ready_age = Some(Duration::from_millis(61_500));
        paused.paused = Some(("maintenance".to_owned(), "ops".to_owned(), jiff::Timestamp::UNIX_EPOCH));
        let readings = Readings {
            census: Some(&[paused, census("globex", &[])]),
            unsealed: Some(Duration::from_millis(8_200)),
            depths: HashMap::from([(acme.clone(), 1000)]),
            blocked: vec![(acme.clone(), "clocks")],
            waits: HashMap::from([(acme, Duration::from_mins(1))]),
            postgres_is_up: true,
            redis_is_up: true,
        };
        insta::assert_snapshot!(in_order(&metrics.page(&readings)));
    }

    #[test]
    fn without_postgres_the_page_still_shows_what_this_node_did() {
        let page = Metrics::new().page(&Readings {
            census: None,
            unsealed: None,
            depths: HashMap::new(),
            blocked: Vec::new(),
            waits: HashMap::new(),
            postgres_is_up: true,
            redis_is_up: false,
        });
        assert!(page.contains("refundd_postgres_up 0\n"), "{page}");
        assert!(page.contains("refundd_redis_up 0\n"), "{page}");
        assert!(page.contains("refundd_settled_late_total 0\n"), "{page}");
        assert!(!page.contains("refundd_refunds{"), "{page}");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
