//! The metrics page: counters of this node, and gauges of all channels.
//!
//! [`node`] counts events as they happen; the loops share a [`Metrics`] and call its methods. [`service`] turns a
//! census and the depths of the buckets into gauges at each scrape.
//!
//! This module asks neither Postgres nor Redis; the caller of [`Metrics::page`] brings the readings.

mod node;
mod service;

use std::collections::HashSet;
use std::fmt::Write;

use prometheus_client::encoding::EncodeLabelSet;

pub use node::Metrics;
pub use service::Readings;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByChannel {
    channel: String,
}

/// The two formats of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFormat {
    /// For scrapers that ask for it.
    OpenMetrics,
    /// The older text format of Prometheus, for everybody else.
    PlainText,
}

impl PageFormat {
    /// The format that an `Accept` header asks for.
    #[must_use]
    pub fn accepted(accept: &str) -> PageFormat {
        let takes = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let is_named =
                parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
            // `q=0`, also as `0.0`, means "not this one".
            let is_refused =
                |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse::<f64>() == Ok(0.0));
            is_named && !parts.any(is_refused)
        };
        if accept.split(',').any(takes) { PageFormat::OpenMetrics } else { PageFormat::PlainText }
    }

    /// The value for the `content-type` header.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            PageFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            PageFormat::PlainText => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A page of `OpenMetrics` in this format.
    fn of(self, page: String) -> String {
        match self {
            PageFormat::OpenMetrics => page,
            PageFormat::PlainText => plain_text(&page),
        }
    }
}

/// Turns `OpenMetrics` into the older format. There a counter's name in `HELP` and `TYPE` ends in `_total`, as its samples
/// do, and neither units nor an end are written.
fn plain_text(page: &str) -> String {
    let counters: HashSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut plain = String::with_capacity(page.len());
    for line in page.lines() {
        let about =
            ["# HELP ", "# TYPE "].into_iter().find_map(|kind| Some((kind, line.strip_prefix(kind)?)));
        match about {
            Some((kind, rest)) => {
                let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let total = if counters.contains(name) { "_total" } else { "" };
                let _ = writeln!(plain, "{kind}{name}{total} {text}");
            }
            None if line.starts_with('#') => {}
            None => {
                plain.push_str(line);
                plain.push('\n');
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::*;
    use crate::bucket::Purpose;
    use crate::refund::{ChannelName, Code, State};
    use crate::store::{ChannelCensus, NothingAccepted, SuspendedBy, Suspension};

    fn census(channel: &str, counts: &[(State, u64)]) -> ChannelCensus {
        ChannelCensus {
            channel: channel.to_owned(),
            counts: counts.iter().copied().collect(),
            ..ChannelCensus::default()
        }
    }

    fn suspension(by: SuspendedBy) -> Suspension {
        Suspension {
            channel: Some("acme".to_owned()),
            by,
            reason: "maintenance".to_owned(),
            who: "ops".to_owned(),
            since: Some(jiff::Timestamp::UNIX_EPOCH),
            until: None,
            left: None,
            probe_in: None,
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
        metrics.late_answer_differs("acme");
        metrics.stranded(&acme, 3);
        metrics.recovery_fails(true);
        metrics.saved("http", 1);
        metrics.saved("http_batch", 500);
        metrics.caller_refused("expired_token");
        metrics.notified("delivered");
        metrics.config_reload("refused");
        metrics.unmapped_answer(&acme, Some(418));
        metrics.unmapped_answer(&acme, None);
        metrics.claim(Duration::from_millis(3));
        metrics.breaker_tripped(&acme, "rejected");
        metrics.bank_connected(&acme, Purpose::Send, true);
        metrics.connect_failures(&acme, Code::ConnectFailed, 2);
        let ms = |ms| Some(Duration::from_millis(ms));
        metrics.bank_distance(
            &acme,
            crate::bank::AddressTimes { set_up: ms(120), round_trip: ms(60), round_trip_variation: ms(5) },
        );
        let mut paused = census("acme", &[(State::Ready, 1200), (State::Succeeded, 9)]);
        paused.oldest_ready_age = Some(Duration::from_millis(61_500));
        paused.nothing_accepted = Some(NothingAccepted {
            since: jiff::Timestamp::UNIX_EPOCH,
            lasts: Duration::from_mins(16),
            is_older: false,
            sends: 40,
            asked_to_wait: 40,
        });
        paused.suspensions = [SuspendedBy::Person, SuspendedBy::Breaker].map(suspension).into();
        let readings = Readings {
            census: Some(&[paused, census("globex", &[])]),
            census_age: Some(Duration::from_millis(2_500)),
            unsealed: Some(Duration::from_millis(8_200)),
            undelivered: Some(Duration::from_millis(700)),
            snapshot_held: Some(Duration::from_secs(40)),
            proposals: Some(vec![("acme".to_owned(), 2)]),
            depths: HashMap::from([(acme.clone(), 1000)]),
            blocked: vec![(acme.clone(), "clocks")],
            bound: vec![(acme.clone(), "limit")],
            waits: HashMap::from([(acme, Duration::from_mins(1))]),
            postgres_is_up: true,
            saves_fail: false,
            redis_is_up: true,
        };
        insta::assert_snapshot!(in_order(&metrics.page(&readings, PageFormat::OpenMetrics)));
    }

    #[test]
    fn an_accept_header_gets_openmetrics_only_if_it_names_it() {
        let asked =
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(PageFormat::accepted(asked), PageFormat::OpenMetrics);
        for other in
            ["", "*/*", "text/plain", "application/openmetrics-text;q=0", "text/html,application/xml;q=0.9"]
        {
            assert_eq!(PageFormat::accepted(other), PageFormat::PlainText, "{other}");
        }
    }

    #[test]
    fn in_the_older_format_every_sample_has_a_help_and_a_type_under_its_own_name() {
        let acme = ChannelName::new("acme").unwrap();
        let metrics = Metrics::new();
        metrics.attempt(&acme, "succeeded", Duration::from_millis(40));
        metrics.claim(Duration::from_millis(3));
        let page = metrics.page(&without_postgres(), PageFormat::PlainText);
        let about =
            |kind: &str, name: &str| page.lines().any(|line| line.starts_with(&format!("# {kind} {name} ")));
        assert!(about("TYPE", "refundd_attempts_total"), "{page}");
        for sample in page.lines().filter(|line| !line.starts_with('#')) {
            let name = sample.split(['{', ' ']).next().unwrap();
            let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let names = [Some(name), of_histogram];
            for kind in ["HELP", "TYPE"] {
                assert!(names.iter().flatten().any(|name| about(kind, name)), "{kind} of {name}: {page}");
            }
        }
        assert!(!page.contains("# EOF") && !page.contains("# UNIT"), "{page}");
    }

    #[test]
    fn a_counter_whose_first_increase_rings_an_alarm_begins_at_zero() {
        let metrics = Metrics::new();
        let acme = ChannelName::new("acme").unwrap();
        let page = |purpose| {
            metrics.channel_begins(&acme, purpose);
            metrics.page(&without_postgres(), PageFormat::PlainText)
        };
        let begins = |page: &str, counter: &str, labels: &str| {
            let line = format!("refundd_{counter}_total{{channel=\"acme\"{labels}}} 0");
            page.lines().any(|is| is == line)
        };
        let sends = page(Purpose::Send);
        for counter in ["late_answers_differ", "first_bytes_late"] {
            assert!(begins(&sends, counter, ""), "{counter} is missing: {sends}");
        }
        for outcome in ["succeeded", "accepted", "rejected", "unknown"] {
            let labels = format!(",outcome=\"{outcome}\"");
            assert!(begins(&sends, "attempts", &labels), "{outcome} is missing: {sends}");
        }
        assert!(!sends.contains("refundd_inquiries_total{"), "the channel sends no inquiries: {sends}");
        let inquiries = page(Purpose::Inquire);
        for outcome in ["succeeded", "rejected"] {
            let labels = format!(",outcome=\"{outcome}\"");
            assert!(begins(&inquiries, "inquiries", &labels), "{outcome} is missing: {inquiries}");
        }
    }

    fn without_postgres() -> Readings<'static> {
        Readings {
            census: None,
            census_age: None,
            unsealed: None,
            undelivered: None,
            snapshot_held: None,
            proposals: None,
            depths: HashMap::new(),
            blocked: Vec::new(),
            bound: Vec::new(),
            waits: HashMap::new(),
            postgres_is_up: false,
            saves_fail: false,
            redis_is_up: false,
        }
    }

    #[test]
    fn without_postgres_the_page_still_shows_what_this_node_did() {
        let page = Metrics::new().page(&without_postgres(), PageFormat::OpenMetrics);
        assert!(page.contains("refundd_postgres_up 0\n"), "{page}");
        assert!(page.contains("refundd_redis_up 0\n"), "{page}");
        assert!(page.contains("refundd_settled_late_total 0\n"), "{page}");
        assert!(!page.contains("refundd_refunds{"), "{page}");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
