//! Permits for other services that share a bank's limit with us: granted or refused at once.
//!
//! The same script counts them and the same ledger writes them down, so the promise covers both. A
//! permit is only handed out once its number stands in Postgres.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bucket::Acquired;
use crate::crash;
use crate::limiter::{Limit, Permit, timing};
use crate::node::Node;
use crate::node::reminding::ServerError;
use crate::store::Spent;

/// What became of a wish for permits.
#[derive(Debug)]
pub enum Answer {
    /// All of them; `left` more could be had at once.
    Granted { permits: Vec<Permit>, left: u64 },
    /// None; there may be as many after this.
    Refused { retry_after: Duration, left: u64 },
    /// Nobody can say now, and nothing was granted.
    Unsure(&'static str),
}

/// Grants permits of one limit to `caller`, all that are wanted or none.
///
/// # Errors
/// When Redis or Postgres cannot be asked; permits may then have been spent in vain.
pub async fn acquire(
    node: &Node,
    limit: &Arc<Limit>,
    want: u32,
    caller: &str,
    clock_tolerance: Duration,
) -> Result<Answer, ServerError> {
    let Some(limit) = node.counted(limit) else {
        return Ok(Answer::Unsure("other nodes count all shares of this limit"));
    };
    let limit = &limit;
    // Redis may have to be told what the ledger says, by us or by a node that is at it.
    for _ in 0..Node::TRIES {
        match node.bucket.acquire(limit, want).await? {
            Acquired::Granted { permits, left } => {
                crash::point("spending");
                match node
                    .store
                    .spend(&permits, caller, &node.name, clock_tolerance + Permit::NEXT_SLOT)
                    .await?
                {
                    // Whoever is told of a permit uses it, however little is left of it.
                    Spent::Yes if are_over(&permits, Instant::now()) => {
                        return Ok(Answer::Unsure("the ledger was slower than the permits live"));
                    }
                    Spent::Yes => {
                        crash::point("spent");
                        return Ok(Answer::Granted { permits, left });
                    }
                    Spent::ClocksApart => {
                        return Ok(Answer::Unsure("Redis's clock is too far from Postgres's"));
                    }
                    Spent::Refused => node.catch_up(limit, &permits).await?,
                }
            }
            Acquired::Denied { wait, left } => {
                return Ok(Answer::Refused { retry_after: wait.span, left });
            }
            Acquired::Restoring => tokio::time::sleep(timing::WHILE_RESTORING).await,
            Acquired::Forgot(forgotten) => node.remind(&forgotten).await?,
            Acquired::ClockStepped { .. } => {}
        }
    }
    Ok(Answer::Unsure("Redis is being told what the ledger says"))
}

/// Whether one of them can no longer be used.
fn are_over(permits: &[Permit], now: Instant) -> bool {
    permits.iter().filter_map(|permit| permit.span).any(|span| span.closes <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Span;

    #[test]
    fn a_permit_that_the_ledger_took_too_late_is_handed_to_nobody() {
        let asked = Instant::now();
        let permit = Permit { numbers: Vec::new(), span: Some(Span::translate(0, 10_000, 0, asked, asked)) };
        assert!(!are_over(std::slice::from_ref(&permit), asked + Duration::from_millis(9)));
        assert!(are_over(&[permit], asked + Duration::from_millis(10)));
    }
}
