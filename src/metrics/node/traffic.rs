//! What comes to the node and leaves it, beside the requests to banks: saves, callers, its file, and messages.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::registry::Registry;

use super::{Metrics, Of, shown};
use crate::logs::lost_lines;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWay {
    way: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: String,
}

pub(super) struct TrafficMetrics {
    saved: Of<ByWay>,
    http_refused_callers: Of<ByCause>,
    config_reloads: Of<ByResult>,
    notify_deliveries: Of<ByResult>,
}

impl TrafficMetrics {
    pub(super) fn new(page: &mut Registry) -> Self {
        let traffic = TrafficMetrics {
            saved: shown(
                page,
                "saved",
                "Refunds newly saved through this node, by the way they came: http or http_batch",
            ),
            http_refused_callers: shown(
                page,
                "http_refused_callers",
                "HTTP requests that were refused because of their caller, by reason",
            ),
            config_reloads: shown(
                page,
                "config_reloads",
                "Times the configuration file was read again, by result",
            ),
            notify_deliveries: shown(
                page,
                "notify_deliveries",
                "Messages to the receiver of webhooks, by result: delivered or failed",
            ),
        };
        let lost = "Lines of the log that were lost because standard output took no more";
        page.register("log_lines_lost", lost, lost_lines());
        // A counter that appears at 1 has no increase, and its alarm would not ring.
        for result in ["taken_over", "refused"] {
            traffic.config_reloads.get_or_create_owned(&ByResult { result: result.to_owned() });
        }
        traffic.http_refused_callers.get_or_create_owned(&ByCause { reason: "expired_token" });
        traffic
    }
}

impl Metrics {
    /// Counts refunds newly saved; `way` is `http` or `http_batch`.
    pub fn saved(&self, way: &'static str, refunds: u64) {
        self.traffic.saved.get_or_create_owned(&ByWay { way }).inc_by(refunds);
    }

    /// Counts a request that was refused because of its caller.
    pub fn caller_refused(&self, reason: &'static str) {
        self.traffic.http_refused_callers.get_or_create_owned(&ByCause { reason }).inc();
    }

    /// Counts a reading of the configuration file.
    pub fn config_reload(&self, result: &str) {
        self.traffic.config_reloads.get_or_create_owned(&ByResult { result: result.to_owned() }).inc();
    }

    /// Counts a message to the receiver of webhooks; `result` is `delivered` or `failed`.
    pub fn notified(&self, result: &str) {
        self.traffic.notify_deliveries.get_or_create_owned(&ByResult { result: result.to_owned() }).inc();
    }
}
