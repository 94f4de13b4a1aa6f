//! Whether this node's heartbeats come late, and what follows: whether it knows which other nodes live.
//!
//! After an outage of Postgres the rows of all nodes are old, so living nodes seem to have left until their own next heartbeat.
//! A node whose own heartbeat was late therefore waits until the others had the time for theirs. It waits once: a node whose
//! heartbeats are always late compares what it sees after that, and does the work of the leading node.

use std::time::{Duration, Instant};

use crate::node::liveness::{IS_LATE, LIVES, SURE_AFTER};

/// What this node's heartbeats say about what it knows of the other nodes.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// When Postgres last took this node's liveness row.
    last: Option<Instant>,
    /// Whether the last heartbeat was late.
    was_late: bool,
    /// Until then a node that seems to have left may only be late itself.
    unsure_until: Option<Instant>,
}

/// What follows from one heartbeat.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Certainty {
    /// Whether a node that seems to have left has left.
    pub is_sure: bool,
    /// Whether the leading node counts anew for how long it has led.
    pub restarts_lead: bool,
}

impl Lateness {
    /// Notes that Postgres took a heartbeat.
    pub fn note(&mut self, now: Instant) -> Certainty {
        let since_last = self.last.replace(now).map_or(Duration::ZERO, |last| now.duration_since(last));
        let is_late = since_last > IS_LATE;
        let was_late = std::mem::replace(&mut self.was_late, is_late);
        // One heartbeat between two outages of Postgres makes nobody sure.
        let begins = is_late && !was_late || since_last > SURE_AFTER;
        if begins {
            self.unsure_until = Some(now + SURE_AFTER);
        }
        Certainty {
            is_sure: self.unsure_until.is_none_or(|until| now >= until),
            // Otherwise two nodes with slow heartbeats could each take the other for gone, and publish their limits in turn.
            restarts_lead: begins || since_last > LIVES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter for each heartbeat after the first one, which is sure: `s` is sure and `u` is unsure. A capital letter
    /// restarts the lead.
    fn after(gaps: &[u64]) -> String {
        let (mut lateness, mut now) = (Lateness::default(), Instant::now());
        assert_eq!(lateness.note(now), Certainty { is_sure: true, restarts_lead: false });
        let letter = |gap: &u64| {
            now += Duration::from_secs(*gap);
            let Certainty { is_sure, restarts_lead } = lateness.note(now);
            match (is_sure, restarts_lead) {
                (true, false) => 's',
                (true, true) => 'S',
                (false, false) => 'u',
                (false, true) => 'U',
            }
        };
        gaps.iter().map(letter).collect()
    }

    #[test]
    fn a_late_heartbeat_makes_unsure_once_and_a_very_late_one_each_time() {
        for (what, gaps, wanted) in [
            ("always on time", &[1, 1, 1, 1][..], "ssss"),
            ("late once", &[1, 3, 1, 1, 1, 1, 1, 1, 1], "sUuuuuuss"),
            ("always late", &[3, 3, 3, 3, 3], "Uusss"),
            ("always later than a row lives", &[5, 5, 5, 5], "UUSS"),
            ("always later than all have had time", &[7, 7, 7, 7], "UUUU"),
            ("late twice, with one on time between", &[3, 1, 3, 1, 1, 1, 1, 1, 1, 1], "UuUuuuuuss"),
        ] {
            assert_eq!(after(gaps), wanted, "{what}");
        }
    }
}
