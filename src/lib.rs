//! refundd: a leaky bucket for refunds across machines.
//!
//! The row in Postgres is the truth, the bucket in Redis is a waiting line, the limiter says when,
//! the bank's answer is a value. Read the rooms from the top; each only knows the ones above it.

pub mod lock;

// What is owed, and through what.
pub mod refund;

pub mod limiter;

pub mod prove;

pub mod channel;

// How long things take.
pub mod estimate;

// The three things outside: Redis, Postgres, the bank. Each lives in one room and nowhere else.
pub mod bucket;

pub mod store;

pub mod bank;

// What the loops of one node share, and what they count.
pub mod metrics;

pub mod node;

// Loops that wait to be woken.
pub mod sleepers;

// Permits for other services.
pub mod outside;

// The loops. They never know each other: they meet in the row.
pub mod dispatcher;
pub mod feeder;
pub mod inquiry;
pub mod pulse;
pub mod recovery;
pub mod scout;
pub mod settler;

pub mod http;

// Where tests end the process.
pub mod crash;

// One running node, and the commands. The only rooms that see the configuration.
pub mod config;

pub mod telemetry;

pub mod daemon;

pub mod playground;

pub mod cli;
