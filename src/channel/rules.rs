//! A channel's own rules for the bank's answers. Values only; `bank::outcome` applies them.

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
