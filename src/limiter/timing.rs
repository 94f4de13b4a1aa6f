//! Times that Rust and the limiter's scripts share; the scripts receive them as constants. And the unit of all spans.

use std::time::Duration;

/// How long a stricter rule still counts after a node last asked under it.
pub const SEEN_FOR: Duration = Duration::from_secs(3);

/// The longest time that a node waits before it asks again. A long window may get permits back meanwhile, when it is
/// counted again from the ledger.
pub const STAYS_AWAY: Duration = Duration::from_secs(30);

/// The longest wait of a node while another node's stricter rule counts: a little longer than [`SEEN_FOR`].
pub const STAYS_AWAY_UNDER_STRICTER: Duration = SEEN_FOR.saturating_add(Duration::from_millis(100));

/// How far ahead the limiter reserves a moment to ask again for a waiting node: a little less than [`STAYS_AWAY`].
pub const FURTHEST_RESERVATION: Duration = STAYS_AWAY.saturating_sub(Duration::from_secs(2));

/// A node asks again after this time while another node restores the count of a limit.
pub const WHILE_RESTORING: Duration = Duration::from_millis(15);

/// A node with a looser rule asks again after this time; it may not restore the count itself.
pub const FOR_THE_STRICTER: Duration = Duration::from_millis(100);

/// A node that restores the count of a limit tells Redis this often that it still does.
pub const STILL_EVERY: Duration = Duration::from_millis(250);

/// After so long without a word from that node Redis lets another one restore the count: the node may be dead, and its time to
/// restore the count alone is up to 10 s (`grant.lua`).
pub const SILENT_FOR: Duration = Duration::from_millis(2_500);

/// A span in microseconds, the unit of the scripts and the statements. A span that 64 bits do not hold becomes a quarter of
/// the most, so that a sum with it does not overflow.
#[must_use]
pub fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}
