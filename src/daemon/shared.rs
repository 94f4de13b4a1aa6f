//! What loops read and a reload changes, and what HTTP tells of it.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::channel::Channel;
use crate::http::Status;
use crate::limiter::Limit;
use crate::lock::SharedLock;
use crate::node::Node;
use crate::node::reminding::ServerError;
use crate::node::standing::BankStanding;
use crate::outside::{self, Answer};
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
    ) -> BoxFuture<'static, Result<Answer, ServerError>> {
        let (node, tolerance) = (self.node.clone(), self.clock_tolerance);
        Box::pin(async move { outside::acquire(&node, &limit, want, &caller, tolerance).await })
    }

    fn wait_of(&self, channel: &ChannelName) -> Option<(LimitName, Duration)> {
        self.node.standing.wait_of(channel)
    }

    fn overruled_by(&self, limit: &LimitName) -> Option<String> {
        self.node.standing.overruled_by(limit)
    }

    fn bank_of(&self, channel: &ChannelName) -> BankStanding {
        self.node.standing.bank_of(channel)
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
                tracing::debug!(refund.id = %id, error = %chain(&error), "Failed to take refund {id} out of the line of channel `{channel}`");
            }
        });
    }

    fn depths(&self) -> HashMap<ChannelName, u64> {
        self.node.depths()
    }
}
