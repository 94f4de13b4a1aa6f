//! refundd: a leaky bucket for refunds across machines.
//!
//! The row in Postgres is the truth. The bucket in Redis has the ids of waiting refunds. The limiter says when a
//! request may start. The bank's answer becomes a value.
//!
//! Read the modules from the top: a module uses only modules above it, and modules of one paragraph do not use each
//! other. `tests/it/house.rs` checks this order.

// For every module: where tests end the process.
pub mod crash;

pub mod lock;

// A monotonic clock that no time service corrects.
pub mod steady;

// Whether a loop fails at present, for its log.
pub mod failing;

// Pauses that double after each failure.
pub mod backoff;

// Connects to the first address of a host that answers.
pub mod eyeballs;

// When certificates end, and the TLS provider.
pub mod certificate;

// Refunds as values.
pub mod refund;

// For every module below: how log lines are written.
pub mod logs;

// JSON in which no object has a field twice.
pub mod unambiguous;

pub mod limiter;

pub mod channel;

// Who may use the HTTP interface.
pub mod caller;

// Re-checks past periods against the permits that were spent.
pub mod prove;

// Estimates of how long a repeated step takes, and forecasts when refunds will be sent.
pub mod estimate;
pub mod forecast;

// The three outside systems: Redis, Postgres, the bank. Only one module talks to each.
pub mod bucket;

pub mod store;

pub mod bank;

// Proofs that a limit was kept in a past period, from the ledger and the journal.
pub mod limit_proof;

// The values that the loops of one node share: metrics, spans, the node's context, and wake-ups.
pub mod metrics;

pub mod traces;

pub mod node;

pub mod wake_up;

// Permits for other services.
pub mod acquire;

// Cancels and moves many refunds at once.
pub mod bulk;

// Makes many changes one by one, each in a commit of its own, and says of each what became of it.
pub mod one_by_one;

// What people and programs are shown of channels and refunds.
pub mod desk;

// The loops. They do not use each other: they work together through the rows in Postgres.
pub mod channel_worker;
pub mod due_poller;
pub mod feeder;
pub mod heartbeat;
pub mod notify;
pub mod recovery;
pub mod settler;

pub mod http;

// The configuration, one running node, and the commands. Only these modules see the configuration.
pub mod config;

pub mod daemon;

pub mod cli;

// What strangers can send, read by all of the above. Only for tests and for libFuzzer.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
