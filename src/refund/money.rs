//! An amount of money. An amount without its currency means nothing, so the two are one value.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use iso_currency::Currency;
use serde::Serialize;

/// Minor units of one currency: 1250 is 12.50 euros with `EUR`, and 1250 yen with `JPY`.
///
/// As JSON it is the two fields `amount_minor` and `currency` of the object around it (`#[serde(flatten)]`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Money {
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
}

/// For people: in the currency's main unit, such as `1,234.50 EUR`.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_main_unit(self.amount_minor.into(), &self.currency))
    }
}

/// A sum, which may be more than any one amount can be, in both units: `340050 in minor units = 3,400.50 EUR`.
#[must_use]
pub fn in_both_units(sum: i128, currency: &str) -> String {
    format!("{sum} in minor units = {}", in_main_unit(sum, currency))
}

fn in_main_unit(sum: i128, currency: &str) -> String {
    let digits = Currency::from_code(currency).and_then(Currency::exponent).unwrap_or(0).min(9);
    let unit = 10_u128.pow(u32::from(digits));
    let amount = sum.unsigned_abs();
    let (whole, rest) = (grouped(&(amount / unit).to_string()), amount % unit);
    let sign = if sum < 0 { "-" } else { "" };
    match usize::from(digits) {
        0 => format!("{sign}{whole} {currency}"),
        width => format!("{sign}{whole}.{rest:0width$} {currency}"),
    }
}

/// A whole number with a comma for each thousand.
#[must_use]
pub fn thousands(number: u64) -> String {
    grouped(&number.to_string())
}

fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_an_amount_in_the_main_unit_of_its_currency() {
        let amount =
            |amount_minor, currency: &str| Money { amount_minor, currency: currency.to_owned() }.to_string();
        assert_eq!(
            [
                amount(1205, "EUR"),
                amount(1205, "JPY"),
                amount(5, "BHD"),
                amount(7, "???"),
                amount(-123_450, "EUR")
            ],
            ["12.05 EUR", "1,205 JPY", "0.005 BHD", "7 ???", "-1,234.50 EUR"]
        );
    }

    #[test]
    fn a_sum_is_shown_in_both_units_of_its_currency() {
        for (sum, currency, both) in [
            (340_050, "EUR", "340050 in minor units = 3,400.50 EUR"),
            (1250, "JPY", "1250 in minor units = 1,250 JPY"),
            (1250, "KWD", "1250 in minor units = 1.250 KWD"),
            (
                2 * i128::from(i64::MAX),
                "EUR",
                "18446744073709551614 in minor units = 184,467,440,737,095,516.14 EUR",
            ),
        ] {
            assert_eq!(in_both_units(sum, currency), both);
        }
    }
}
