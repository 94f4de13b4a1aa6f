//! What a node does; `world/node.rs` has its state. The files here mirror the loops of `channel_worker.rs` with its
//! files, `bank.rs`, `acquire.rs`, `settler.rs`, `feeder.rs`, `due_poller.rs`, `recovery.rs` and `node/restoring.rs`:
//! the same calls in the same order. Each loop is cut into steps wherever the real loop awaits something.
//!
//! Only the order is written here. Statements, scripts, outcomes, settlements and the translation of permits are the
//! product's own. A change of the order in a loop needs the same change here.

mod acquire;
mod asking;
mod channel_worker;
mod housekeeping;
mod inquiries;
mod restoring;
mod send;
