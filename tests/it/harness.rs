//! What every test stands on: servers, a scratch of its own, nodes in process or as processes, and waits
//! for a condition instead of a while.

pub mod anywhere;
pub mod browser;
pub mod certificates;
pub mod failing;
pub mod http;
mod leases;
pub mod node;
pub mod process;
pub mod reader;
pub mod receiver;
pub mod scratch;
pub mod servers;
pub mod stage;
pub mod systemd;
pub mod terminal;
pub mod wait;

pub use node::TestNode;
pub use process::NodeProcess;
pub use receiver::Receiver;
pub use scratch::{Scratch, depth, is};
pub use systemd::Systemd;
pub use wait::{one_try_succeeds, until, window_lasts, within};
