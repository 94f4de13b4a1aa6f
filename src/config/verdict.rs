//! `[[channel.NAME.verdict]]`: a channel's own rules for its bank's answers.

use crate::channel::{AnswerRule, RuleOutcome};

use super::pointer::require_pointer;
use super::section::{Section, listed, nearest};

pub(super) const KEYS: &[&str] = &["status", "pointer", "equals", "outcome"];
const OUTCOMES: [(&str, RuleOutcome); 7] = [
    ("succeeded", RuleOutcome::Succeeded),
    ("accepted", RuleOutcome::Accepted),
    ("rejected", RuleOutcome::Rejected),
    ("not_executed", RuleOutcome::NotExecuted),
    ("asked_to_wait", RuleOutcome::SlowDown),
    ("unknown", RuleOutcome::Unknown),
    ("review", RuleOutcome::Review),
];

/// The name of an outcome in the file.
pub(super) fn name_of(outcome: RuleOutcome) -> &'static str {
    OUTCOMES.iter().find(|(_, named)| *named == outcome).map_or("", |(name, _)| name)
}

/// Reads the rules in the order of the file. Complains about a rule that no answer can reach.
pub(super) fn read_all(channel: &Section<'_>) -> Vec<AnswerRule> {
    let mut rules: Vec<AnswerRule> = Vec::new();
    for section in channel.tables("verdict") {
        let Some(rule) = read(&section) else { continue };
        if rules.iter().any(|earlier| hides(earlier, &rule)) {
            section.complain(format!(
                "is never reached: an earlier rule for status {} already matches the same answers; put this rule first, \
                 or remove it",
                rule.status
            ));
        }
        rules.push(rule);
    }
    rules
}

/// Whether `earlier` matches every answer that `later` matches.
fn hides(earlier: &AnswerRule, later: &AnswerRule) -> bool {
    // Every condition is named, so that a new one does not compile until it is compared here.
    let AnswerRule { status, body, outcome: _ } = earlier;
    *status == later.status && (body.is_none() || *body == later.body)
}

/// Reads one rule; `None` after a complaint. A condition that cannot be read would count as absent, and the rule would
/// seem to match more answers than its author means.
fn read(section: &Section<'_>) -> Option<AnswerRule> {
    let source = section.source;
    let complaints_before = source.complaint_count();
    section.keys(KEYS, &[]);
    let mut status = section.required_integer("status", "it is the HTTP status that the rule matches");
    if let Some(status) = &mut status {
        status.within(source, &(200..=599));
    }
    let mut pointer = section.optional_text("pointer");
    let equals = section.optional_text("equals");
    if let Some(pointer) = &mut pointer {
        require_pointer(source, pointer);
    }
    if section.has("pointer") != section.has("equals") {
        section.complain("`pointer` and `equals` go together: give both, or neither to match any body");
    }
    let outcome = section.required_text("outcome", &format!("use one of {}", outcomes()));
    let outcome = outcome.and_then(|mut field| {
        let matching = OUTCOMES.into_iter().find(|(name, _)| *name == field.value);
        let requirement = match nearest(&field.value, &OUTCOMES.map(|(name, _)| name)) {
            Some(near) => format!("no such outcome; did you mean `{near}`?"),
            None => format!("no such outcome; use one of {}", outcomes()),
        };
        field.require(source, matching.is_some(), || requirement);
        matching
    });
    let body = pointer.map(|pointer| pointer.value).zip(equals.map(|equals| equals.value));
    let status = u16::try_from(status?.value).ok()?;
    let (_, outcome) = outcome?;
    (source.complaint_count() == complaints_before).then_some(AnswerRule { status, body, outcome })
}

fn outcomes() -> String {
    listed(&OUTCOMES.map(|(name, _)| name))
}
