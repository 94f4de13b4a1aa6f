//! Whether a channel worker is blocked: it cannot take or claim, because Redis or Postgres fails or their clocks disagree.
//!
//! The log shows the beginning and the end. The status report shows the present reason of a worker for sends. One thing is
//! decided by the failures, not by the report: while claims fail, the worker asks Postgres before it takes.

use std::time::Duration;

use crate::bucket::{BucketError, Purpose};
use crate::failing::Failing;
use crate::logs::chain;
use crate::node::Node;
use crate::node::restoring::ServerError;
use crate::refund::ChannelName;
use crate::store::StoreError;

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Obstacle {
    #[error(transparent)]
    Redis(#[from] BucketError),
    #[error(transparent)]
    Postgres(#[from] StoreError),
    #[error(
        "Redis's clock is more than {0:?} from Postgres's; nothing is sent until they agree: check both hosts' time service"
    )]
    ClocksApart(Duration),
    #[error(
        "Postgres does not have the address of this channel's bank: a failover may have lost it; this node adds it again within seconds"
    )]
    AddressLost,
}

impl From<ServerError> for Obstacle {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Bucket(error) => Obstacle::Redis(error),
            ServerError::Store(error) => Obstacle::Postgres(error),
        }
    }
}

impl Obstacle {
    /// The reason, for people.
    fn why(&self) -> String {
        match self {
            Obstacle::Redis(_) | Obstacle::Postgres(_) => format!("failed to {}", chain(self)),
            Obstacle::ClocksApart(_) | Obstacle::AddressLost => self.to_string(),
        }
    }

    /// The label of the metric.
    fn by(&self) -> &'static str {
        match self {
            Obstacle::Redis(_) => REDIS,
            Obstacle::Postgres(_) | Obstacle::AddressLost => "postgres",
            Obstacle::ClocksApart(_) => CLOCKS,
        }
    }
}

const REDIS: &str = "redis";
const CLOCKS: &str = "clocks";

/// What blocks one channel worker at present.
#[derive(Debug)]
pub(super) struct ObstacleReport {
    node: Node,
    channel: ChannelName,
    purpose: Purpose,
    failing: Failing<&'static str>,
    has_claimed: bool,
}

impl ObstacleReport {
    pub fn new(node: Node, channel: ChannelName, purpose: Purpose) -> Self {
        ObstacleReport { node, channel, purpose, failing: Failing::default(), has_claimed: false }
    }

    /// Whether Postgres failed in the last round, or refused the claim.
    pub fn is_by_postgres(&self) -> bool {
        self.failing.is_failing() && !self.failing.is_failing_by(REDIS)
    }

    /// Whether the last claim was refused because the clocks of Redis and Postgres are apart.
    pub fn is_by_clocks(&self) -> bool {
        self.failing.is_failing_by(CLOCKS)
    }

    /// Notes that Postgres took a claim.
    pub fn note_claim(&mut self) {
        self.has_claimed = true;
    }

    /// Notes a round that worked. A round without a claim shows that Redis works, and says nothing about the next claim.
    pub fn worked(&mut self) {
        let has_claimed = std::mem::take(&mut self.has_claimed);
        if !has_claimed && self.is_by_postgres() {
            return;
        }
        let (name, purpose) = (&self.channel, self.purpose);
        let mut is_over = false;
        self.failing.worked(|| {
            is_over = true;
            match purpose {
                Purpose::Send => tracing::info!(channel.name = %name, "Channel `{name}` sends again"),
                Purpose::Inquire => {
                    tracing::info!(channel.name = %name, "The bank of channel `{name}` is asked again");
                }
            }
        });
        if is_over {
            self.publish(None);
        }
    }

    /// Notes a round that failed.
    pub fn failed(&mut self, obstacle: &Obstacle) {
        self.has_claimed = false;
        let (name, purpose, error) = (&self.channel, self.purpose, chain(obstacle));
        self.failing.failed_by(obstacle.by(), || match (purpose, obstacle) {
            (_, Obstacle::ClocksApart(_)) => {
                tracing::error!(channel.name = %name, "{error} (channel `{name}`)");
            }
            (Purpose::Send, _) => tracing::warn!(
                channel.name = %name, %error,
                "Channel `{name}` sends nothing for now: failed to take or claim; will try again",
            ),
            (Purpose::Inquire, _) => tracing::warn!(
                channel.name = %name, %error,
                "The bank of channel `{name}` is not asked for now: failed to take or claim; will try again",
            ),
        });
        self.publish(Some(obstacle));
    }

    fn publish(&self, obstacle: Option<&Obstacle>) {
        if self.purpose == Purpose::Send {
            let blocked = obstacle.map(|obstacle| (obstacle.by(), obstacle.why()));
            self.node.status_report.note_blocked(&self.channel, blocked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Bucket;
    use crate::metrics::Metrics;
    use crate::store::Store;

    #[tokio::test]
    async fn a_round_without_a_claim_ends_a_failure_of_redis_and_no_failure_of_a_claim() {
        // No server listens at these addresses.
        let store = Store::open("postgres://refundd@127.0.0.1:9/refundd", None, 1).unwrap();
        let bucket = Bucket::open(
            "redis://127.0.0.1:9",
            crate::bucket::ServerTrust::default(),
            "refundd",
            Duration::from_secs(1),
        )
        .unwrap();
        let metrics = std::sync::Arc::new(Metrics::new());
        let node = Node::new("a", store, bucket.clone(), metrics);
        let refused = Obstacle::from(bucket.time().await.unwrap_err());
        let name = ChannelName::new("acme").unwrap();
        let mut blocked = ObstacleReport::new(node.clone(), name.clone(), Purpose::Send);
        let why = || node.status_report.bank_of(&name).blocked().map(|blocked| blocked.why.clone());
        blocked.failed(&refused);
        assert!(why().unwrap().starts_with("failed to ask Redis"));
        blocked.worked();
        assert_eq!(why(), None);
        blocked.failed(&Obstacle::ClocksApart(Duration::from_secs(5)));
        blocked.worked();
        assert!(why().unwrap().starts_with("Redis's clock is more than 5s from Postgres's"));
        blocked.note_claim();
        blocked.worked();
        assert_eq!(why(), None);
    }
}
