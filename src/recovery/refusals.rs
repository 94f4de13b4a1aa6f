//! Remembers the refunds that Postgres refuses to move. They rest, so that they keep no other refund waiting.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::refund::RefundId;

/// The refused refunds of one move or of one look.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    rests: HashMap<RefundId, Rest>,
    /// So many new ones were not logged by their ids.
    unlogged: usize,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    refusals: u32,
    until: Instant,
}

impl Refusals {
    const LOGGED_AT_MOST: usize = 20;
    const FIRST_REST: Duration = Duration::from_mins(1);
    const LONGEST_REST: Duration = Duration::from_mins(10);
    /// After this time without a refusal since its rest ended, a refund is forgotten: it has moved.
    const FORGET: Duration = Duration::from_mins(30);

    /// Whether some refund is left out now.
    pub fn leaves_out(&self, now: Instant) -> bool {
        self.rests.values().any(|rest| rest.until > now)
    }

    /// The refunds that are left out now.
    pub fn resting(&mut self, now: Instant) -> Vec<RefundId> {
        self.rests.retain(|_, rest| rest.until + Self::FORGET > now);
        self.rests.iter().filter(|(_, rest)| rest.until > now).map(|(id, _)| *id).collect()
    }

    /// Notes a refusal. Each further refusal doubles the rest. Answers whether to log it: only the first refusals of the first
    /// refunds are logged by id. When the fault is at all of them, these say enough.
    pub fn note(&mut self, id: RefundId, now: Instant) -> bool {
        let before = self.rests.get(&id).map_or(0, |rest| rest.refusals);
        let rest = (Self::FIRST_REST * 2_u32.pow(before.min(4))).min(Self::LONGEST_REST);
        self.rests.insert(id, Rest { refusals: before.saturating_add(1), until: now + rest });
        let (is_new, is_logged) = (before == 0, self.rests.len() <= Self::LOGGED_AT_MOST);
        if is_new && !is_logged {
            self.unlogged += 1;
        }
        is_new && is_logged
    }

    /// Logs how many new ones were not logged by their ids. `to_do` is what recovery would do to them.
    pub fn log_others(&mut self, to_do: &str) {
        let (more, all) = (std::mem::take(&mut self.unlogged), self.rests.len());
        if more > 0 {
            tracing::error!(
                refunds = more,
                "Postgres does not let recovery {to_do} {more} more refunds, {all} in all. Mend what the errors before name"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_refund_rests_longer_after_each_refusal_up_to_ten_minutes() {
        let (mut refusals, mut now) = (Refusals::default(), Instant::now());
        for minutes in [1_u32, 2, 4, 8, 10, 10] {
            refusals.note(RefundId(7), now);
            let just_before = now + Duration::from_secs(u64::from(minutes) * 60 - 1);
            assert!(refusals.leaves_out(just_before), "{minutes}");
            assert_eq!(refusals.resting(just_before), [RefundId(7)]);
            now += MINUTE * minutes;
            assert!(!refusals.leaves_out(now), "{minutes}");
            assert!(refusals.resting(now).is_empty(), "{minutes}");
        }
    }

    #[test]
    fn a_refund_that_was_not_refused_again_is_forgotten() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        assert!(refusals.note(RefundId(7), now), "the first refusal is logged");
        assert!(!refusals.note(RefundId(7), now), "the second is not");
        assert!(refusals.resting(now + MINUTE * 130).is_empty());
        assert!(refusals.note(RefundId(7), now + MINUTE * 130));
    }

    #[test]
    fn the_first_refunds_are_logged_by_id_and_the_others_counted() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let logged = (1..=50).filter(|id| refusals.note(RefundId(*id), now)).count();
        assert_eq!((logged, refusals.unlogged), (20, 30));
        refusals.log_others("move");
        assert_eq!(refusals.unlogged, 0, "they are counted once");
    }
}
