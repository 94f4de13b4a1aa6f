//! When this node publishes the days of its time zones again.

use std::time::{Duration, Instant};

/// When the days are due. Published days reach three days ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct DaysDue(Instant);

impl DaysDue {
    const EVERY: Duration = Duration::from_mins(30);
    /// The pause after a failure.
    const AGAIN: Duration = Duration::from_secs(10);

    pub(super) fn after_success(now: Instant) -> DaysDue {
        DaysDue(now + Self::EVERY)
    }

    pub(super) fn are_due(self, now: Instant) -> bool {
        now >= self.0
    }

    /// Notes whether the days were published now.
    pub(super) fn note(&mut self, worked: bool, now: Instant) {
        *self = if worked { Self::after_success(now) } else { DaysDue(now + Self::AGAIN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_that_could_not_be_published_are_due_again_soon() {
        let start = Instant::now();
        let after = |secs| start + Duration::from_secs(secs);
        let mut days = DaysDue::after_success(start);
        assert!(!days.are_due(after(1799)) && days.are_due(after(1800)));
        days.note(false, after(1800));
        assert!(!days.are_due(after(1809)) && days.are_due(after(1810)));
        days.note(true, after(1810));
        assert!(!days.are_due(after(3609)) && days.are_due(after(3610)));
    }
}
