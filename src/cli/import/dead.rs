//! The lines of an import whose refund was saved before and is cancelled or failed. A repeat sends it never again.

use crate::refund::State;
use crate::refund::text::shown;

/// How many of these lines are named.
const MOST_NAMED: usize = 5;

#[derive(Debug, Default)]
pub(super) struct DeadRepeats {
    count: usize,
    /// The lowest line numbers, in order, with the words for each.
    first: Vec<(u64, String)>,
}

impl DeadRepeats {
    /// Notes the line of a refund that was saved before, if the refund is in such a state.
    pub(super) fn note(&mut self, line: u64, refund_ref: &str, state: State) {
        if !matches!(state, State::Cancelled | State::Failed) {
            return;
        }
        self.count += 1;
        // Lines of one commit are not noted in their order.
        self.first.push((line, format!("line {line} ({}, {state})", shown(refund_ref))));
        self.first.sort();
        self.first.truncate(MOST_NAMED);
    }

    /// What stands behind the counts of an import. Empty if there are none.
    pub(super) fn words(&self) -> String {
        if self.count == 0 {
            return String::new();
        }
        let are = if self.count == 1 { "is" } else { "are" };
        let more = match self.count - self.first.len() {
            0 => String::new(),
            left => format!(", and {left} more"),
        };
        let first: Vec<&str> = self.first.iter().map(|(_, words)| words.as_str()).collect();
        format!(
            "; {} of those saved before {are} cancelled or failed, and {are} not sent again: {}{more}",
            self.count,
            first.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dead_repeats_are_named_and_the_others_counted() {
        let mut dead = DeadRepeats::default();
        dead.note(2, "R-2", State::Ready);
        dead.note(3, "R-3", State::Succeeded);
        assert_eq!(dead.words(), "");
        dead.note(4, "R-4", State::Failed);
        assert_eq!(
            dead.words(),
            "; 1 of those saved before is cancelled or failed, and is not sent again: line 4 (R-4, failed)"
        );
        for line in (5..=10).rev() {
            dead.note(line, "K", State::Cancelled);
        }
        let words = dead.words();
        assert!(
            words.starts_with("; 7 of those saved before are cancelled or failed, and are not"),
            "{words}"
        );
        assert!(words.ends_with("line 8 (K, cancelled), and 2 more"), "{words}");
    }
}
