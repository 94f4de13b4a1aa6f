//! Delivers the changes of refunds to one receiver of webhooks: each at least once, and those of one refund in their order.
//!
//! One node delivers at a time, under a lease in `refundd.feed`. If two nodes ever do so at once, the receiver gets some
//! messages twice: a message keeps its `webhook-id`, and a change is sent only after the changes of its refund before it were
//! taken. Nothing is written for a single change: the lease's row says up to where all changes are delivered.
//!
//! A message that the receiver does not take is sent again for ever. What becomes of refunds never waits for it. A node that
//! can deliver nothing for a minute gives the lease back for a while: the cause may be this node alone.

mod reading;
mod receiver;
mod window;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;

use crate::bank::{NotDelivered, Webhook};
use crate::failing::Failing;
use crate::logs::chain;
use crate::node::{Node, jittered};
use crate::store::{Change, StoreError};

use reading::Read;
pub use receiver::LeasePatience;
use receiver::Receiver;
use window::Window;

/// The loop that delivers.
#[derive(Debug)]
pub struct Notifier {
    node: Node,
    webhook: Arc<Webhook>,
    patience: LeasePatience,
    /// Whether Postgres fails.
    store: Failing,
    receiver: Receiver,
}

impl Lease {
    /// When the lease is kept again: soon if there is something to note.
    fn next_note(&self) -> Instant {
        let is_news = self.window.delivered_until() > self.noted;
        self.asked_at + if is_news { Notifier::NOTE_EVERY } else { Notifier::KEEP_EVERY }
    }
}

/// A message that is over: the line of its change, and what became of it.
type Over = (Change, Result<(), NotDelivered>);

/// The lease to deliver, as this node has it.
struct Lease {
    window: Window,
    /// Up to where the row says that changes are delivered.
    noted: i64,
    /// When the lease was last kept, and when this node last asked for that.
    kept_at: Instant,
    asked_at: Instant,
    read_at: Instant,
}

impl Notifier {
    /// How long the lease lasts without being kept. Another node delivers soon after this time.
    const LEASE: Duration = Duration::from_secs(15);
    /// A node stops to send so long before its lease ends.
    const MARGIN: Duration = Duration::from_secs(2);
    /// The row is written at most so often while changes are delivered.
    const NOTE_EVERY: Duration = Duration::from_secs(1);
    const KEEP_EVERY: Duration = Duration::from_secs(5);
    /// How often the journal is read when it had nothing new. A node without the lease asks for it half as often.
    const LOOK_EVERY: Duration = Duration::from_millis(500);

    pub fn new(node: Node, webhook: Webhook, patience: LeasePatience) -> Self {
        let webhook = Arc::new(webhook);
        Notifier { node, webhook, patience, store: Failing::default(), receiver: Receiver::default() }
    }

    pub async fn run(mut self) {
        let stop = self.node.stop.clone();
        while !stop.is_cancelled() {
            let began = Instant::now();
            let mut wait = Self::LOOK_EVERY * 2;
            if let Ok(Some(until)) = self.keep_lease(Self::LEASE, None).await {
                let host = self.webhook.host();
                // Nodes that all fail pass the lease on each minute, and that is no news.
                if self.receiver.given_back.is_failing() {
                    tracing::debug!(
                        "Tries again to deliver changes to {host}, from line {} of the journal on",
                        until + 1
                    );
                } else {
                    tracing::info!("Delivers changes to {host}, from line {} of the journal on", until + 1);
                }
                self.receiver.begins();
                let window = Window::new(until);
                let lease = Lease { window, noted: until, kept_at: began, asked_at: began, read_at: began };
                if self.deliver(lease).await {
                    wait = self.patience.rests;
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(jittered(wait)) => {}
            }
        }
    }

    /// Delivers until the lease is lost, the node stops, or another node may fare better. True in the last case.
    async fn deliver(&mut self, mut lease: Lease) -> bool {
        let stop = self.node.stop.clone();
        let mut posts: JoinSet<Over> = JoinSet::new();
        let mut leaves_to_others = false;
        while !stop.is_cancelled() && !leaves_to_others {
            let pass = self.node.progress.pass("notify");
            if !self.is_kept(&mut lease).await {
                tracing::info!("Delivers no more changes: another node has the lease, or Postgres is away");
                return false;
            }
            self.send(&mut lease.window, &mut posts);
            if self.wants_to_read(&lease.window, posts.len()) {
                if !self.read(&mut lease).await {
                    // Nothing is noted: the row knows better up to where this journal was delivered.
                    return false;
                }
                self.send(&mut lease.window, &mut posts);
            }
            drop(pass);
            let wakes_at = self.wakes_at(&lease, posts.len());
            tokio::select! {
                () = stop.cancelled() => {}
                Some(over) = posts.join_next(), if !posts.is_empty() => match over {
                    Ok(over) => self.over(&mut lease.window, over),
                    // Nobody knows what became of that message. The window is read anew.
                    Err(_) => return false,
                },
                () = tokio::time::sleep_until(wakes_at.into()) => {}
            }
            leaves_to_others = self.leaves_to_others(&lease.window);
        }
        // What is under way may arrive or not; the next node sends it again. Nothing is sent after the lease.
        posts.shutdown().await;
        let _ = self.keep_lease(Duration::ZERO, Some(lease.window.delivered_until())).await;
        leaves_to_others
    }

    /// Whether to give the lease back for now. The first time is logged, until a message is delivered again.
    fn leaves_to_others(&mut self, window: &Window) -> bool {
        let LeasePatience { keeps, rests } = self.patience;
        let leaves = self.receiver.may_be_better_elsewhere(keeps, window.delivered_early(), Instant::now());
        if leaves {
            let host = self.webhook.host();
            self.receiver.given_back.failed(|| {
                tracing::warn!(
                    "Delivered no change to {host} for {keeps:?}: leaves that to other nodes, and asks again after {rests:?} each time"
                );
            });
        }
        leaves
    }

    /// Keeps the lease, and notes what was delivered. False if this node must not deliver any more.
    async fn is_kept(&mut self, lease: &mut Lease) -> bool {
        if Instant::now() >= lease.next_note() {
            lease.asked_at = Instant::now();
            let delivered = lease.window.delivered_until();
            match self.keep_lease(Self::LEASE, Some(delivered)).await {
                Ok(Some(_)) => (lease.noted, lease.kept_at) = (delivered, lease.asked_at),
                Ok(None) => return false,
                Err(()) => {}
            }
        }
        lease.kept_at.elapsed() < Self::LEASE.saturating_sub(Self::MARGIN)
    }

    async fn keep_lease(&mut self, lasts: Duration, up_to: Option<i64>) -> Result<Option<i64>, ()> {
        let kept = self.node.store.deliver(&self.node.name, lasts, up_to).await;
        self.note(&kept);
        kept.map_err(|_| ())
    }

    fn note<T>(&mut self, done: &Result<T, StoreError>) {
        self.store.note(
            done,
            |error| tracing::warn!(error = %chain(error), "Failed to read changes, will try again"),
            || tracing::info!("Changes are read again"),
        );
    }

    /// Whether to read on: a whole read has room, or nothing in the window may be sent. A read costs two statements or more,
    /// so a read of one change for each delivered message would cost more than the delivery.
    fn wants_to_read(&self, window: &Window, under_way: usize) -> bool {
        let room = window.room();
        room >= reading::AT_ONCE as usize || room > 0 && under_way < self.receiver.most()
    }

    /// Fills the window from the journal. False if the journal is not the one that the window was filled from.
    async fn read(&mut self, lease: &mut Lease) -> bool {
        if Instant::now() < lease.read_at {
            return true;
        }
        lease.read_at = Instant::now() + Self::LOOK_EVERY;
        let read = reading::read_into(&mut lease.window, &self.node.store).await;
        self.note(&read);
        if let Ok(Read::Changes { is_last: false }) = read {
            lease.read_at = Instant::now();
        }
        !matches!(read, Ok(Read::Older))
    }

    /// Sends what may be sent now. While the receiver takes nothing, one message at a time looks whether it is back.
    fn send(&self, window: &mut Window, posts: &mut JoinSet<Over>) {
        let now = Instant::now();
        if self.receiver.rests(now) {
            return;
        }
        while posts.len() < self.receiver.most() {
            let Some(change) = window.next(now) else { return };
            let webhook = Arc::clone(&self.webhook);
            posts.spawn(async move {
                let (id, body) = message(&change);
                let answered = webhook.post(&id, body).await;
                (change, answered)
            });
        }
    }

    /// When there is something to do again, if no message ends before.
    fn wakes_at(&self, lease: &Lease, under_way: usize) -> Instant {
        let mut wakes_at = lease.next_note();
        if self.wants_to_read(&lease.window, under_way) {
            wakes_at = wakes_at.min(lease.read_at);
        }
        // While as much is under way as may be, the end of a message wakes.
        let is_free = under_way < self.receiver.most();
        if let Some(retry_at) = is_free.then(|| lease.window.next_retry()).flatten() {
            wakes_at = wakes_at.min(self.receiver.retry_at.map_or(retry_at, |all| retry_at.max(all)));
        }
        wakes_at
    }

    /// Notes what became of a message.
    fn over(&mut self, window: &mut Window, (change, answered): Over) {
        let receiver = &mut self.receiver;
        match answered {
            Ok(()) => {
                self.node.metrics.notified("delivered");
                window.delivered(change.cursor);
                receiver.took();
                receiver.given_back.worked(|| {});
                receiver.failing.worked(|| tracing::info!("The receiver of webhooks takes changes again"));
            }
            Err(NotDelivered { why, reached, retry_after }) => {
                self.node.metrics.notified("failed");
                let now = Instant::now();
                let asks = retry_after.unwrap_or_default();
                let is_first = window.failed(change.cursor, now, asks);
                receiver.refused(reached, is_first, asks, now);
                let host = self.webhook.host();
                receiver.failing.failed(|| {
                    tracing::warn!(
                        refund.id = change.refund_id,
                        change.cursor = change.cursor,
                        "Failed to deliver change {} of refund {} to {host}: {why}; will try again",
                        change.cursor,
                        change.refund_id,
                    );
                });
            }
        }
    }
}

/// The id and the body of the message about a change. The id is made of the journal's line, so it stays the same when the
/// message is sent again. The time in it keeps ids apart after a database was restored to an earlier state.
fn message(change: &Change) -> (String, Bytes) {
    let id = format!("change-{}-{}", change.cursor, change.at_us);
    let body = json!({
        "type": format!("refund.{}", change.state),
        "timestamp": change.at,
        "data": change,
    });
    (id, body.to_string().into())
}
