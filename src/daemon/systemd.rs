//! Notifies systemd that the node is ready, still starting, stopping or alive.
//!
//! Without systemd, each call does nothing.

use std::time::Duration;

use sd_notify::NotifyState;

use crate::logs::chain;

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(error = %chain(&error), "Failed to notify systemd");
    }
}

/// Says that the start is complete; `status` is for people.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Asks systemd for 30 more seconds, because a server that the start needs is away; `status` is for people.
pub fn still_starting(status: &str) {
    notify(&[NotifyState::Status(status), NotifyState::ExtendTimeoutUsec(30_000_000)]);
}

/// Says that the node has begun to stop.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// How often to call [`still_stopping`].
pub const EXTEND_EVERY: Duration = Duration::from_secs(10);

/// Asks systemd for 30 more seconds to stop, beyond the unit's `TimeoutStopSec=`.
pub fn still_stopping() {
    notify(&[NotifyState::ExtendTimeoutUsec(30_000_000)]);
}

/// How often to call [`all_is_well`]: half of the time that systemd waits. `None` if systemd does not watch the node.
pub fn watchdog_period() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

/// Resets systemd's watchdog.
pub fn all_is_well() {
    notify(&[NotifyState::Watchdog]);
}
