//! Times that Rust and the limiter's scripts share; the scripts receive them as constants.

use std::time::Duration;

/// A rule that no node asks under any more overrules looser rules for so long.
pub const SEEN_FOR: Duration = Duration::from_secs(3);

/// No node waits longer than this before it asks again: a window of a day may be told more meanwhile.
pub const STAYS_AWAY: Duration = Duration::from_secs(30);

/// The same for a node whose rule is overruled: a little longer than the stricter rule outlives its last use.
pub const STAYS_AWAY_OVERRULED: Duration = SEEN_FOR.saturating_add(Duration::from_millis(100));

/// The furthest that a node's turn is put off: a little less than the node stays away.
pub const LONGEST_TURN: Duration = STAYS_AWAY.saturating_sub(Duration::from_secs(2));

/// A node looks again after this, while another node restores the count of a limit.
pub const WHILE_RESTORING: Duration = Duration::from_millis(15);

/// The same for a node with a looser rule, which may not restore the count itself.
pub const FOR_THE_STRICTER: Duration = Duration::from_millis(100);
