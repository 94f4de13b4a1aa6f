//! An amount of money. An amount without its currency means nothing, so the two are one value.

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
