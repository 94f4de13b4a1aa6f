//! `account` of a channel: the name of the account at the bank that its credentials belong to.

use crate::refund::card;

use super::mask;
use super::section::Section;

const MOST: usize = 64;

/// Reads the name; `None` when the channel has none, or after a complaint.
pub(super) fn read(section: &Section<'_>) -> Option<String> {
    let source = section.source;
    let mut field = section.optional_text("account")?;
    // Some write the credentials where the name of their account belongs.
    field.shown_as(mask::HIDDEN);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let plain = (1..=MOST).contains(&field.value.len()) && field.value.chars().all(is_plain);
    field.require(source, plain, || {
        format!(
            "must be 1 to {MOST} of a-z, A-Z, 0-9, `-`, `_` and `.`: it is a name for the account at the bank that the \
             credentials belong to, and no secret"
        )
    });
    // Reasons that are kept for ever show the name.
    let looks_like_a_card = card::is_in(&field.value);
    field.require(
        source,
        !looks_like_a_card,
        || "looks like a card number, and people read this name; choose another name for the account",
    );
    field.is_sound().then_some(field.value)
}
