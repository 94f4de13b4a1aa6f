//! refundd: a leaky bucket for refunds across machines.
//!
//! The row in Postgres is the truth, the bucket in Redis is a waiting line, the limiter says when,
//! the bank's answer is a value. Read the rooms from the top: a room knows only rooms above it, and rooms
//! of one paragraph do not know each other. `tests/it/house.rs` checks this.

// Known to every room: how logs are written, and where tests end the process.
pub mod crash;
pub mod telemetry;

pub mod lock;

// What is owed, and through what.
pub mod refund;

pub mod limiter;

pub mod channel;

// Re-checks past periods against the permits that were spent.
pub mod prove;

// How long things take.
pub mod estimate;

// The three things outside: Redis, Postgres, the bank. Each lives in one room and nowhere else.
pub mod bucket;

pub mod store;

pub mod bank;

// What the loops of one node share, what they count, and how they wake each other.
pub mod metrics;

pub mod node;

pub mod wake_up;

// Permits for other services.
pub mod outside;

// The loops. They never know each other: they meet in the row.
pub mod channel_worker;
pub mod due_poller;
pub mod feeder;
pub mod pulse;
pub mod recovery;
pub mod settler;

pub mod http;

// One running node, and the commands. The only rooms that see the configuration.
pub mod config;

pub mod daemon;

pub mod cli;
