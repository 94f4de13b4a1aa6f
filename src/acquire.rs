//! Permits for other services that share a bank's limit with refundd. A request is granted or refused at once.
//!
//! The script that counts refunds also counts these permits, and the ledger has both. So the limit covers refundd and
//! the other services together. A permit is handed out only after its number is committed in Postgres.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::bank::Slept;
use crate::bucket::Acquired;
use crate::crash;
use crate::limiter::{Limit, Permit, Placement, timing};
use crate::lock::Lock;
use crate::node::restoring::ServerError;
use crate::node::suspended::Until;
use crate::node::{Node, ShareLook};
use crate::refund::ChannelName;
use crate::store::Spent;

/// The result of a request for permits.
#[derive(Debug)]
pub enum AcquireOutcome {
    /// All permits are granted; `left` more could be granted at once.
    Granted { permits: Vec<Permit>, left: u64 },
    /// No permit is granted; after `retry_after` there may be as many. `left` could be granted at once.
    Refused { retry_after: Duration, left: u64 },
    /// No permit is granted, and the count is not known now; the text is the reason.
    Unsure(&'static str),
    /// A person paused everything, or every channel that has the limit; `retry_after` is when to ask again.
    Paused { retry_after: Duration },
}

/// When to ask again while a person must end the pause.
const WHILE_PAUSED: Duration = Duration::from_secs(5);

const TOO_LATE: &str = "this node looked at its share of this limit too long ago";

/// Grants `want` permits of one limit to `caller`, or none. If Redis counted permits that the caller does not get, Redis
/// forgets a long window, and the ledger says what is spent of it. Otherwise they would be missing until the window ends.
///
/// # Errors
/// When Redis or Postgres fails. Permits may then be spent although nobody got them.
pub async fn acquire(
    node: &Node,
    limit: &Arc<Limit>,
    want: u32,
    caller: &str,
) -> Result<AcquireOutcome, ServerError> {
    let name = &limit.name;
    if node.wasted.locked().contains(name) {
        // While Postgres is away, one more permit would be wasted that other nodes can use.
        node.store.ping().await?;
    }
    let looked = ShareLook::now();
    let Some(limit) = node.counted(limit) else {
        return Ok(AcquireOutcome::Unsure("this node has no share of this limit; its log says why"));
    };
    let limit = &limit;
    let running = node.running();
    let channels: Vec<&str> = running.with_limit(name).map(ChannelName::as_str).collect();
    // A look at what this node knows spends no permit. The ledger looks again, so that a pause holds at once.
    if let Some(until) = node.suspensions.pause_of(channels.iter().copied()) {
        return Ok(paused(Some(until)));
    }
    let was_wasted = node.wasted.locked().remove(name);
    if was_wasted && let Err(error) = node.bucket.forget_long_windows(slice::from_ref(limit)).await {
        node.wasted.locked().insert(name.clone());
        return Err(error.into());
    }
    let mut wasted = false;
    let outcome = grant(node, limit, looked, want, caller, &channels, &mut wasted).await;
    if wasted {
        let forgotten = node.bucket.forget_long_windows(slice::from_ref(limit)).await;
        if forgotten.is_err() || matches!(outcome, Err(ServerError::Store(_))) {
            // The next call for this limit asks first whether both servers answer.
            node.wasted.locked().insert(name.clone());
        }
    }
    outcome
}

/// Asks Redis for the permits, and writes them to the ledger. Sets `wasted` when Redis may have counted permits that are
/// not in the ledger.
async fn grant(
    node: &Node,
    limit: &Arc<Limit>,
    looked: ShareLook,
    want: u32,
    caller: &str,
    channels: &[&str],
    wasted: &mut bool,
) -> Result<AcquireOutcome, ServerError> {
    // Redis may have to be restored from the ledger first, by this node or by another one.
    for _ in 0..Node::TRIES {
        let slept = Slept::now();
        // The script may have run although the call failed.
        let acquired = node.bucket.acquire(limit, want, Some(looked.at_age(Limit::SLOWEST_TAKE))).await;
        match acquired.inspect_err(|_| *wasted = true)? {
            Acquired::Granted { .. } if is_too_late(limit, looked) => {
                *wasted = true;
                return Ok(AcquireOutcome::Unsure(TOO_LATE));
            }
            // It waited long for takes under the same share, and spent nothing.
            Acquired::Denied { .. } if is_too_late(limit, looked) => {
                return Ok(AcquireOutcome::Unsure(TOO_LATE));
            }
            Acquired::Granted { permits, left } => {
                crash::point("spending");
                match node
                    .store
                    .spend(
                        &permits,
                        caller,
                        &node.name,
                        node.bucket.tolerance() + Permit::NEXT_SLOT,
                        channels,
                    )
                    .await
                    .inspect_err(|_| *wasted = true)?
                {
                    // A service uses a permit that it gets, however little of its span is left. So no permit whose
                    // span is over may be handed out.
                    Spent::Yes if are_over(&permits, Instant::now(), slept) => {
                        return Ok(AcquireOutcome::Unsure("the ledger was slower than the permits live"));
                    }
                    Spent::Yes => {
                        crash::point("spent");
                        node.clocks_apart.store(false, Ordering::Relaxed);
                        return Ok(AcquireOutcome::Granted { permits, left });
                    }
                    Spent::ClocksApart => {
                        *wasted = true;
                        node.clocks_apart.store(true, Ordering::Relaxed);
                        return Ok(AcquireOutcome::Unsure("Redis's clock is too far from Postgres's"));
                    }
                    Spent::Paused => {
                        *wasted = true;
                        return Ok(paused(None));
                    }
                    Spent::Refused => {
                        node.catch_up(limit, &permits).await.inspect_err(|_| *wasted = true)?;
                    }
                }
            }
            Acquired::Denied { wait, left } => {
                return Ok(AcquireOutcome::Refused { retry_after: wait.span, left });
            }
            Acquired::Restoring => tokio::time::sleep(timing::WHILE_RESTORING).await,
            Acquired::Forgot(forgotten) => {
                // While the clocks are apart, each call makes Redis forget the permits that the ledger refuses.
                node.restore(&forgotten, node.clocks_apart.load(Ordering::Relaxed)).await?;
            }
            Acquired::ClockStepped { .. } => *wasted = true,
        }
    }
    Ok(AcquireOutcome::Unsure("Redis is being restored from the ledger"))
}

/// The outcome during a pause, whose end this node may not know yet.
fn paused(until: Option<Until>) -> AcquireOutcome {
    let left = match until {
        Some(Until::At(at)) => at.saturating_duration_since(Instant::now()),
        Some(Until::Ended) | None => WHILE_PAUSED,
    };
    // A person may end any pause early.
    AcquireOutcome::Paused { retry_after: left.min(Duration::from_mins(1)) }
}

/// Whether a share that this node had when it looked may be another node's by now.
fn is_too_late(limit: &Limit, looked: ShareLook) -> bool {
    limit.placement != Placement::Shared && looked.is_older_than(Limit::SLOWEST_TAKE)
}

/// The least time for which a permit is handed out: the answer says what is left in whole milliseconds, rounded down.
const SHORTEST: Duration = Duration::from_millis(2);

/// Whether at least one of the permits can no longer be used. While a machine sleeps, its [`Instant`]s stand still: if it slept
/// since the grant, nobody knows how much of a span is left.
fn are_over(permits: &[Permit], now: Instant, granted: Slept) -> bool {
    let mut spans = permits.iter().filter_map(|permit| permit.span);
    spans.any(|span| span.closes <= now + SHORTEST || granted.has_slept_since())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::{Algorithm, Rule, Span};
    use crate::refund::LimitName;

    #[test]
    fn a_permit_that_the_ledger_took_too_late_is_handed_to_nobody() {
        let now = Instant::now();
        let permit = Permit { numbers: Vec::new(), span: Some(Span::translate(0, 10_000, 0, now, now)) };
        let permits = [permit];
        assert!(!are_over(&permits, now + Duration::from_millis(7), Slept::now()));
        // So little is left that the answer would say 0 ms.
        assert!(are_over(&permits, now + Duration::from_millis(8), Slept::now()));
    }

    #[test]
    fn a_permit_is_handed_to_nobody_after_the_machine_slept() {
        let now = Instant::now();
        let permits = [Permit { numbers: Vec::new(), span: Some(Span::translate(0, 10_000, 0, now, now)) }];
        assert!(are_over(&permits, now, Slept::a_second_ago()));
    }

    #[test]
    fn no_permit_of_a_share_is_handed_out_after_the_machine_slept_since_the_look_at_the_share() {
        let second = Duration::from_secs(1);
        let rule = Rule { algorithm: Algorithm::Paced, permits: 20, per: second, lateness: second / 50 };
        let name = LimitName::stored("acme");
        let limit =
            |placement| Limit { name: name.clone(), rule: rule.clone(), ahead: second / 20, placement };
        let share = limit(Placement::LocalShare { nodes: 2 });
        assert!(!is_too_late(&share, ShareLook::now()));
        assert!(is_too_late(&share, ShareLook::before_a_sleep()));
        assert!(!is_too_late(&limit(Placement::Shared), ShareLook::before_a_sleep()));
    }
}
