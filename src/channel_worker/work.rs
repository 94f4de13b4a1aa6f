//! The differences between sends and inquiries.

use std::time::{Duration, Instant};

use super::attempt::Attempt;
use crate::bank::Reserved;
use crate::bucket::{BucketError, Purpose, Take};
use crate::channel::Channel;
use crate::node::Node;
use crate::node::slots::Slot;
use crate::refund::RefundId;
use crate::store::{ClaimRequest, Claimed, Store, StoreError};
use crate::wake_up::WakeUps;

/// The differences between the worker for sends and the worker for inquiries.
pub trait Work: std::fmt::Debug + Send + Sync {
    /// A refund under a lease.
    type Leased: Send;
    const PURPOSE: Purpose;
    /// The most ids of one take.
    const MOST_AT_ONCE: u32;

    /// The expected time from asking for a permit to the first byte.
    fn lead_time(&self) -> Duration;

    /// Notes how long a claim took.
    fn note_claim(&self, node: &Node, took: Duration);

    /// Asks the bucket for up to `want` ids, each under a permit. It looks at this node's shares up to `until`.
    fn take(
        &mut self,
        node: &Node,
        wake_ups: &WakeUps,
        channel: &Channel,
        want: u32,
        until: Option<Instant>,
    ) -> impl Future<Output = Result<Take, BucketError>> + Send;

    /// Commits the claim of the taken ids. If some cannot be claimed, ids from `more` get their permits.
    fn claim(
        &self,
        store: &Store,
        claim: &ClaimRequest<'_>,
        more: &[RefundId],
    ) -> impl Future<Output = Result<Claimed<Self::Leased>, StoreError>> + Send;

    fn id(leased: &Self::Leased) -> RefundId;

    /// Makes the request in its own task, which is never cut off halfway.
    fn start(&self, attempt: Attempt, leased: Self::Leased, slot: Option<Slot>, connection: Option<Reserved>);
}
