//! `max_amount_minor`: the highest amount of one refund, for each currency.

use std::sync::Arc;

use crate::refund::AmountBounds;

use super::section::Section;

/// Reads the table; an empty one when the section has none.
pub(super) fn read(section: &Section<'_>) -> AmountBounds {
    let source = section.source;
    let table = section.section("max_amount_minor");
    let mut bounds = std::collections::BTreeMap::new();
    for currency in table.names() {
        let Some(mut most) = table.optional_integer(currency) else { continue };
        let known = crate::refund::draft::is_currency(currency);
        most.law(source, known, || "is for a currency of ISO 4217, such as EUR");
        let sound = most.value >= 1;
        most.law(source, sound, || "must be at least 1, in minor units: 5000 EUR are 500000");
        bounds.insert(currency.to_owned(), most.value);
    }
    if section.has("max_amount_minor") && bounds.is_empty() {
        table
            .complain("must name a currency and its highest amount in minor units, such as { EUR = 500000 }");
    }
    AmountBounds(Arc::new(bounds))
}
