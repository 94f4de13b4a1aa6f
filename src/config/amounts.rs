//! Tables of amounts: the highest one for each currency.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::refund::AmountBounds;

use super::section::Section;

/// `max_amount_minor`: the highest amount of one refund.
pub(super) fn read_most(section: &Section<'_>) -> AmountBounds {
    let requirement = "must be at least 1, in minor units: 500000 is 5000.00 EUR";
    let empty = "must name a currency and its highest amount in minor units, such as { EUR = 500000 }";
    read(section, "max_amount_minor", 1..=i64::MAX, requirement, empty)
}

/// Reads the table under `key`; an empty one when the section has none. `requirement` names what is `allowed`, `empty` what is
/// missing in an empty table.
pub(super) fn read(
    section: &Section<'_>,
    key: &str,
    allowed: RangeInclusive<i64>,
    requirement: &str,
    empty: &str,
) -> AmountBounds {
    let source = section.source;
    let complaints_before = source.complaint_count();
    let table = section.section(key);
    let mut bounds = std::collections::BTreeMap::new();
    for currency in table.names() {
        let Some(mut amount) = table.optional_integer(currency) else { continue };
        let known = crate::refund::draft::is_currency(currency);
        amount.require(source, known, || "is for a currency of ISO 4217, such as EUR");
        let sound = allowed.contains(&amount.value);
        amount.require(source, sound, || requirement);
        bounds.insert(currency.to_owned(), amount.value);
    }
    if section.has(key) && bounds.is_empty() && source.complaint_count() == complaints_before {
        table.complain(empty);
    }
    AmountBounds(Arc::new(bounds))
}
