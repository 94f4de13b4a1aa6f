//! How the receiver of webhooks does: how many messages it may get at one time, and when it gets the next one.

use std::time::{Duration, Instant};

use super::window::Window;
use crate::bank::Webhook;
use crate::failing::Failing;
use crate::node::jittered;

/// How the receiver does.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    pub(super) failing: Failing,
    /// How many messages it did not take since it last took one. One that it refuses again does not count again: that says
    /// something of the message, and nothing new of the receiver.
    failures: u32,
    /// No message is sent before this moment.
    pub(super) retry_at: Option<Instant>,
}

impl Receiver {
    /// A receiver that takes nothing is tried at least so often.
    const LONGEST_PAUSE: Duration = Duration::from_secs(30);

    /// The most messages under way: one while the receiver takes none.
    pub(super) fn most(&self) -> usize {
        if self.failures > 0 { 1 } else { Webhook::IN_FLIGHT }
    }

    /// Whether no message may be sent now.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|retry_at| now < retry_at)
    }

    /// It took a message.
    pub(super) fn took(&mut self) {
        (self.failures, self.retry_at) = (0, None);
    }

    /// It did not take a message, whose first try this was or not, and asks for a pause.
    pub(super) fn refused(&mut self, is_first: bool, asks: Duration, now: Instant) {
        // Messages that were under way together fail together, and count as one failure.
        if self.rests(now) {
            return;
        }
        self.failures = self.failures.saturating_add(u32::from(is_first));
        let pause =
            if self.failures > 0 { jittered(Window::pause_after(self.failures)) } else { Duration::ZERO };
        self.retry_at = Some(now + pause.max(asks).min(Self::LONGEST_PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_refused_for_ever_does_not_make_the_pauses_of_the_receiver_longer() {
        let mut receiver = Receiver::default();
        let mut now = Instant::now();
        receiver.refused(true, Duration::ZERO, now);
        for _ in 0..20 {
            let retry_at = receiver.retry_at.unwrap();
            assert!(retry_at <= now + 2 * Window::pause_after(1), "{:?}", retry_at - now);
            now = retry_at;
            receiver.refused(false, Duration::ZERO, now);
        }
        receiver.took();
        receiver.refused(false, Duration::ZERO, now);
        assert_eq!((receiver.most(), receiver.retry_at), (Webhook::IN_FLIGHT, Some(now)));
    }

    #[test]
    fn the_pauses_grow_while_a_receiver_takes_no_message_at_all() {
        let mut receiver = Receiver::default();
        let mut now = Instant::now();
        for _ in 0..20 {
            receiver.refused(true, Duration::ZERO, now);
            // Those that were under way with it.
            receiver.refused(true, Duration::ZERO, now);
            assert_eq!(receiver.most(), 1);
            now = receiver.retry_at.unwrap();
        }
        receiver.refused(true, Duration::ZERO, now);
        let pause = receiver.retry_at.unwrap() - now;
        assert!(pause > Receiver::LONGEST_PAUSE / 3 && pause <= Receiver::LONGEST_PAUSE, "{pause:?}");
    }
}
