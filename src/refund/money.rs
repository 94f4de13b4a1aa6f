//! An amount of money. An amount without its currency means nothing, so the two are one value.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

/// Minor units of one currency: 1250 EUR are 12.50 euros.
///
/// As JSON it is the two fields `amount_minor` and `currency` of the object around it (`#[serde(flatten)]`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Money {
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
}

/// The highest amount of one refund, in minor units, for each currency. An empty table is no bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AmountBounds(pub Arc<BTreeMap<String, i64>>);

impl AmountBounds {
    /// Why an amount is too high, for people; `None` if it is not. `of` names whose bounds these are. A table that names some currencies refuses the others:
    /// nobody has thought about their bounds.
    #[must_use]
    pub fn problem(&self, of: &str, money: &Money) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        match self.0.get(&money.currency) {
            Some(most) if money.amount_minor <= *most => None,
            Some(most) => Some(format!(
                "is more than the `max_amount_minor` of {of}, which is {most} for {}",
                money.currency
            )),
            None => {
                let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
                let (known, currency) = (known.join(", "), &money.currency);
                Some(format!(
                    "has no bound: the `max_amount_minor` of {of} names {known}, and not {currency}"
                ))
            }
        }
    }
}
