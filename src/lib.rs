//! refundd: a leaky bucket for refunds across machines.
//!
//! The row in Postgres is the truth, the bucket in Redis is a waiting line, the limiter says when,
//! the bank's answer is a value. Read the rooms from the top; each only knows the ones above it.

pub mod channel;
pub mod limiter;
pub mod playground;
pub mod refund;
