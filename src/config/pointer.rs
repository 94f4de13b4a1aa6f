//! The requirement of a JSON pointer, for every key that names a place in the bank's answer.

use super::field::Field;
use super::source::Source;

/// Complains about a text that is not a JSON pointer (RFC 6901).
pub(super) fn require_pointer(source: &Source<'_>, field: &mut Field<String>) {
    let is_escaped = field.value.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    let sound = is_escaped && (field.value.is_empty() || field.value.starts_with('/'));
    field.require(
        source,
        sound,
        || "must be a JSON pointer (RFC 6901): empty, or each name after a `/`, such as \"/result/code\"",
    );
}
