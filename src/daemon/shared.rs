//! The values that loops and HTTP handlers read and that a reload replaces.
//!
//! It implements HTTP's [`Status`] with them.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::acquire::{self, AcquireOutcome};
use crate::channel::Channel;
use crate::http::Status;
use crate::limiter::Limit;
use crate::lock::SharedLock;
use crate::node::Node;
use crate::node::restoring::ServerError;
use crate::node::status_report::BankReport;
use crate::refund::{ChannelName, LimitName, RefundId};
use crate::telemetry::chain;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) node: Node,
    pub(super) channels: Arc<RwLock<Vec<Arc<Channel>>>>,
    pub(super) names: Arc<RwLock<Vec<ChannelName>>>,
    pub(super) digest: Arc<RwLock<String>>,
    pub(super) limits: Arc<RwLock<Vec<Arc<Limit>>>>,
    pub(super) clock_tolerance: Duration,
}

impl Status for Shared {
    fn limits(&self) -> Vec<Arc<Limit>> {
        self.limits.read_locked().clone()
    }

    fn acquire(
        &self,
        limit: Arc<Limit>,
        want: u32,
        caller: String,
    ) -> BoxFuture<'static, Result<AcquireOutcome, ServerError>> {
        let (node, tolerance) = (self.node.clone(), self.clock_tolerance);
        Box::pin(async move { acquire::acquire(&node, &limit, want, &caller, tolerance).await })
    }

    fn wait_of(&self, channel: &ChannelName) -> Option<(LimitName, Duration)> {
        self.node.status_report.wait_of(channel)
    }

    fn stricter_rule(&self, limit: &LimitName) -> Option<String> {
        self.node.status_report.stricter_rule(limit)
    }

    fn bank_of(&self, channel: &ChannelName) -> BankReport {
        self.node.status_report.bank_of(channel)
    }

    fn config(&self) -> Arc<Vec<Arc<Channel>>> {
        Arc::new(self.channels.read_locked().clone())
    }

    fn redis_is_up(&self) -> bool {
        self.node.bucket.trouble().is_none()
    }

    fn redis_trouble(&self) -> Option<String> {
        self.node.bucket.trouble()
    }

    fn stopping(&self) -> bool {
        self.node.stop.is_cancelled()
    }

    fn withdraw(&self, channel: ChannelName, id: RefundId) {
        let bucket = self.node.bucket.clone();
        tokio::spawn(async move {
            if let Err(error) = bucket.withdraw(&channel, &[id]).await {
                tracing::debug!(refund.id = %id, error = %chain(&error), "Failed to take refund {id} out of the bucket of channel `{channel}`");
            }
        });
    }

    fn depths(&self) -> HashMap<ChannelName, u64> {
        self.node.depths()
    }
}
