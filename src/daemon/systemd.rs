//! What systemd is told: ready, reloading, stopping, and that the loops still move.

use std::time::Duration;

use sd_notify::NotifyState;

use crate::telemetry::chain;

fn tell(states: &[NotifyState<'_>]) {
    // Without systemd there is nobody to tell, which is fine.
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(error = %chain(&error), "Failed to notify systemd");
    }
}

pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Starting takes longer, because something it needs is away.
pub fn still_starting(status: &str) {
    tell(&[NotifyState::Status(status), NotifyState::ExtendTimeoutUsec(30_000_000)]);
}

pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// How often to say that all is well: half of what systemd waits; `None` if it does not watch.
pub fn watchdog_period() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

pub fn all_is_well() {
    tell(&[NotifyState::Watchdog]);
}
