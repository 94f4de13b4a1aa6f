//! The times that follow from the heartbeats of nodes: when a node is gone, and when all living nodes have been seen.
//!
//! The row of a node lives for 4 s. A node gives up a lost answer of Postgres after 4 s as well, and its next heartbeat follows
//! within 1.4 s. So 6 s after an outage every living node has written its row again. Longer times leave room for a node whose
//! heartbeats are late.

use std::time::Duration;

/// How long after its heartbeat a node counts as living, and how far its row may be ahead of Postgres's clock: as in
/// `heartbeat.sql`.
pub const LIVES: Duration = Duration::from_secs(4);

/// A heartbeat that comes so long after the last one is late. It is less than the life of a row: the row of another node may
/// have been older than this node's row when an outage began.
pub const IS_LATE: Duration = Duration::from_secs(2);

/// So long after a late heartbeat every living node has written its row again.
pub const SURE_AFTER: Duration = Duration::from_secs(6);

/// After this time without a heartbeat, Postgres takes no writes from this node.
pub const NO_WRITES_AFTER: Duration = Duration::from_secs(5);

/// The leading node publishes again only after it has led for so long, and then [`CALM`] passes. It exceeds the longest wait
/// between two passes of the publisher, 1.25 times its period of 3 s. So a pass always notices that the lead restarted.
pub const HAS_SEEN_ALL: Duration = Duration::from_secs(5);

/// A node whose heartbeats are late is seen again within this time. It may run a newer file.
pub const CALM: Duration = Duration::from_secs(10);

/// After an outage of Postgres every node looks dead. So the leading node waits this long before it forgets nodes and
/// retires channels. Each living node writes several heartbeats meanwhile.
pub const JUDGES_AFTER: Duration = Duration::from_secs(10);
