//! How the receiver of webhooks does: how many messages it may get at one time, and when it gets the next one.

use std::time::{Duration, Instant};

use super::window::Window;
use crate::bank::Webhook;
use crate::failing::Failing;
use crate::node::jittered;

/// How long a node that can deliver nothing keeps the lease, and for how long it then leaves the lease to other nodes.
#[derive(Debug, Clone, Copy)]
pub struct LeasePatience {
    pub keeps: Duration,
    pub rests: Duration,
}

impl Default for LeasePatience {
    fn default() -> Self {
        LeasePatience { keeps: Duration::from_mins(1), rests: Duration::from_secs(30) }
    }
}

/// How the receiver does.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    pub(super) failing: Failing,
    /// Whether this node gave the lease back since the receiver last took a message from it.
    pub(super) given_back: Failing,
    /// When it first did not take a message: since it last took one, and since this node has the lease.
    fails_since: Option<Instant>,
    /// Whether the last message that it did not take may have reached it.
    reached: bool,
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

    /// This node has the lease from now on.
    pub(super) fn begins(&mut self) {
        self.fails_since = None;
    }

    /// Whether the cause may be this node: for so long it has delivered nothing. A receiver that refuses a single message is
    /// no such case, for another node fares no better. Nor is it one if another node would send much a second time.
    pub(super) fn may_be_better_elsewhere(&self, keeps: Duration, sent_again: usize, now: Instant) -> bool {
        let is_long = self.fails_since.is_some_and(|since| now.saturating_duration_since(since) >= keeps);
        is_long && (!self.reached || self.failures > 1 && sent_again <= Webhook::IN_FLIGHT)
    }

    /// It took a message.
    pub(super) fn took(&mut self) {
        (self.failures, self.retry_at, self.fails_since) = (0, None, None);
    }

    /// It did not take a message, whose first try this was or not, and asks for a pause.
    pub(super) fn refused(&mut self, reached: bool, is_first: bool, asks: Duration, now: Instant) {
        self.reached = reached;
        self.fails_since.get_or_insert(now);
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
        receiver.refused(true, true, Duration::ZERO, now);
        for _ in 0..20 {
            let retry_at = receiver.retry_at.unwrap();
            assert!(retry_at <= now + 2 * Window::pause_after(1), "{:?}", retry_at - now);
            now = retry_at;
            receiver.refused(true, false, Duration::ZERO, now);
        }
        receiver.took();
        receiver.refused(true, false, Duration::ZERO, now);
        assert_eq!((receiver.most(), receiver.retry_at), (Webhook::IN_FLIGHT, Some(now)));
    }

    #[test]
    fn the_pauses_grow_while_a_receiver_takes_no_message_at_all() {
        let mut receiver = Receiver::default();
        let mut now = Instant::now();
        for _ in 0..20 {
            receiver.refused(true, true, Duration::ZERO, now);
            // Those that were under way with it.
            receiver.refused(true, true, Duration::ZERO, now);
            assert_eq!(receiver.most(), 1);
            now = receiver.retry_at.unwrap();
        }
        receiver.refused(true, true, Duration::ZERO, now);
        let pause = receiver.retry_at.unwrap() - now;
        assert!(pause > Receiver::LONGEST_PAUSE / 3 && pause <= Receiver::LONGEST_PAUSE, "{pause:?}");
    }

    #[test]
    fn a_node_gives_the_lease_back_if_nothing_reaches_the_receiver_or_more_than_one_message_is_refused() {
        let (keeps, now) = (LeasePatience::default().keeps, Instant::now());
        let later = now + keeps;
        let after = |answers: &[(bool, bool)]| {
            let mut receiver = Receiver::default();
            for (reached, is_first) in answers {
                let at = receiver.retry_at.unwrap_or(now);
                receiver.refused(*reached, *is_first, Duration::ZERO, at);
            }
            receiver
        };
        let unreached = after(&[(false, true)]);
        assert!(unreached.may_be_better_elsewhere(keeps, 900, later));
        assert!(!unreached.may_be_better_elsewhere(
            keeps,
            0,
            later.checked_sub(Duration::from_millis(1)).unwrap()
        ));
        let one_refused = after(&[(true, true), (true, false), (true, false)]);
        assert!(!one_refused.may_be_better_elsewhere(keeps, 0, later));
        let mut all_refused = after(&[(true, true), (true, true)]);
        assert!(all_refused.may_be_better_elsewhere(keeps, 8, later));
        assert!(
            !all_refused.may_be_better_elsewhere(keeps, 9, later),
            "too much would be sent a second time"
        );
        all_refused.begins();
        assert!(!all_refused.may_be_better_elsewhere(keeps, 0, later), "a new lease");
    }
}
