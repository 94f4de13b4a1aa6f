//! Permits for other services that share a bank's limit with us: granted or refused at once.
//!
//! The same script counts them and the same ledger writes them down, so the promise covers both. A
//! permit is only handed out once its number stands in Postgres.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::Acquired;
use crate::limiter::{Limit, Permit};
use crate::node::Node;
use crate::node::reminding::ServerError;
use crate::store::Spent;

/// How far ahead a paced limit may grant its next slot, as in `acquire.lua`.
const NEXT_SLOT: Duration = Duration::from_secs(1);

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
                match node.store.spend(&permits, caller, &node.name, clock_tolerance + NEXT_SLOT).await? {
                    Spent::Yes => return Ok(Answer::Granted { permits, left }),
                    Spent::ClocksApart => {
                        return Ok(Answer::Unsure("Redis's clock is too far from Postgres's"));
                    }
                    Spent::Refused => node.catch_up(limit, &permits).await?,
                }
            }
            Acquired::Denied { wait, left } => {
                return Ok(Answer::Refused { retry_after: wait.span, left });
            }
            Acquired::Telling => tokio::time::sleep(Duration::from_millis(15)).await,
            Acquired::Forgot(forgotten) => node.remind(&forgotten).await?,
            Acquired::ClockStepped { .. } => {}
        }
    }
    Ok(Answer::Unsure("Redis is being told what the ledger says"))
}
