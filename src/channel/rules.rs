//! A channel's own rules for the bank's answers. Values only; `bank::outcome` applies them.

use std::collections::BTreeSet;

/// One rule of a channel for the bank's answers to a refund or a resend, never for answers to inquiries. It matches an
/// answer that meets all of its conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRule {
    /// The rule counts for answers with this HTTP status.
    pub status: u16,
    /// A JSON pointer into the body and the text that must stand there; `None` matches any body.
    pub body: Option<(String, String)>,
    pub outcome: RuleOutcome,
}

impl AnswerRule {
    /// Whether the rule reads the body of an answer with this status.
    #[must_use]
    pub fn reads_body_of(&self, status: u16) -> bool {
        self.status == status && self.body.is_some()
    }

    /// Whether the rule may find in the body of an answer with this status that the refund was, or may have been, executed.
    #[must_use]
    pub fn may_find_executed(&self, status: u16) -> bool {
        use RuleOutcome::{Accepted, Review, Succeeded, Unknown};
        self.reads_body_of(status) && matches!(self.outcome, Succeeded | Accepted | Unknown | Review)
    }

    /// Whether the rule reads the body of a 2xx.
    #[must_use]
    pub fn reads_body_of_2xx(&self) -> bool {
        self.body.is_some() && (200..300).contains(&self.status)
    }

    /// The 2xx statuses for which a rule reads the body, and no rule takes the answers that are left.
    #[must_use]
    pub fn open_statuses(rules: &[AnswerRule]) -> BTreeSet<u16> {
        let takes_the_rest =
            |status: u16| rules.iter().any(|rule| rule.status == status && rule.body.is_none());
        let read = rules.iter().filter(|rule| rule.reads_body_of_2xx()).map(|rule| rule.status);
        read.filter(|status| !takes_the_rest(*status)).collect()
    }
}

/// The outcomes that a rule may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOutcome {
    Succeeded,
    Accepted,
    Rejected,
    NotExecuted,
    /// The bank asks for fewer requests, and did not execute this one.
    SlowDown,
    Unknown,
    Review,
}
