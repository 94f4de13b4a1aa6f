//! Seals the journal, and logs the heads of its chains.
//!
//! Where the log is kept out of reach of those who may change the database, they cannot make a new chain unnoticed
//! (`refundd prove --journal --head`).

use std::time::{Duration, Instant};

use crate::store::{Head, Store, StoreError};

/// Seals the journal now and then.
#[derive(Debug)]
pub(super) struct Sealer {
    seal_at: Instant,
    log_at: Instant,
    /// The last line of the heads that were logged. The first pass logs the head of every channel.
    logged_to: i64,
}

impl Default for Sealer {
    fn default() -> Self {
        let now = Instant::now();
        Sealer { seal_at: now, log_at: now, logged_to: -1 }
    }
}

impl Sealer {
    /// A shorter time makes more seals: each takes about 250 bytes beside its lines.
    const PERIOD: Duration = Duration::from_secs(10);
    const LOG_EVERY: Duration = Duration::from_mins(1);
    /// The most lines of one call, about 0.1 s of work.
    const AT_ONCE: i32 = 10_000;
    /// After an update from a version without seals, millions of lines wait. One pass spends about this time on them.
    const LONGEST_PASS: Duration = Duration::from_secs(5);
    /// How often and how long to wait for transactions that write lines. Those of nodes last some milliseconds.
    const TRIES: u32 = 10;
    const TRY_AGAIN: Duration = Duration::from_millis(50);

    /// Seals all lines that are committed. While a transaction may still commit a line before them, they are left for
    /// the next pass.
    pub(super) async fn seal(&mut self, store: &Store) -> Result<(), StoreError> {
        let began = Instant::now();
        if began < self.seal_at {
            return Ok(());
        }
        self.seal_at = began + Self::PERIOD;
        let mut tries = 0;
        loop {
            let sealed = store.seal_journal(Self::AT_ONCE).await?;
            if sealed.waits_for > 0 {
                tries += 1;
                if tries > Self::TRIES {
                    break;
                }
                tokio::time::sleep(Self::TRY_AGAIN).await;
            } else if sealed.is_done {
                break;
            } else if began.elapsed() > Self::LONGEST_PASS {
                // More lines wait.
                self.seal_at = Instant::now();
                break;
            }
        }
        Ok(())
    }

    /// Logs the heads that moved, once a minute.
    pub(super) async fn log_heads(&mut self, store: &Store) -> Result<(), StoreError> {
        if Instant::now() < self.log_at {
            return Ok(());
        }
        let heads = store.heads_after(self.logged_to).await?;
        for Head { channel, number, lines, hash, .. } in &heads {
            tracing::info!(
                channel.name = channel,
                seal.number = number,
                seal.lines = lines,
                seal.hash = hash,
                "The journal of channel `{channel}` is sealed: seal {number}, {lines} lines, head {hash}",
            );
        }
        self.log_at = Instant::now() + Self::LOG_EVERY;
        self.logged_to = heads.iter().map(|head| head.to_id).fold(self.logged_to, i64::max);
        Ok(())
    }
}
