//! Control totals: how many refunds a file or a backlog has, and how much of each currency. A person gives amounts in minor units, and reads sums in both units.

use std::collections::BTreeMap;
use std::fmt;

use crate::refund::draft::is_currency;
use crate::refund::text::counted;
use crate::refund::{Money, in_both_units};

/// The totals of some refunds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Totals {
    count: u64,
    /// The number of refunds and their sum, which may be more than any one amount can be.
    by_currency: BTreeMap<String, (u64, i128)>,
}

impl Totals {
    pub(super) fn add(&mut self, money: &Money) {
        self.add_sum(&money.currency, 1, i128::from(money.amount_minor));
    }

    /// Adds this many refunds of one currency, and their sum.
    pub(super) fn add_sum(&mut self, currency: &str, refunds: u64, sum: i128) {
        self.count += refunds;
        let (own, own_sum) = self.by_currency.entry(currency.to_owned()).or_default();
        *own += refunds;
        *own_sum += sum;
    }

    /// Adds the totals of other refunds.
    pub(super) fn add_all(&mut self, other: &Totals) {
        for (currency, (count, sum)) in &other.by_currency {
            self.add_sum(currency, *count, *sum);
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The totals as [`ExpectedTotals::read`] reads them.
    pub(super) fn expected(&self) -> String {
        let sums = self.by_currency.iter().map(|(currency, (_, sum))| format!("{currency}={sum}"));
        std::iter::once(format!("count={}", self.count)).chain(sums).collect::<Vec<_>>().join(",")
    }

    /// Each currency with its number of refunds and their sum.
    pub(super) fn parts(&self) -> Vec<String> {
        self.by_currency.iter().map(|(currency, (count, sum))| part(currency, *count, *sum)).collect()
    }
}

/// The number of refunds of one currency, and their sum.
pub(super) fn part(currency: &str, refunds: u64, sum: i128) -> String {
    format!("{currency}: {}, {}", counted(refunds, "refund"), in_both_units(sum, currency))
}

/// A line for each currency.
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().join("\n"))
    }
}

/// The totals that a person expects. A total that is not named may be any; but once one currency is named, there may be no
/// other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ExpectedTotals {
    count: Option<u64>,
    sums: BTreeMap<String, i128>,
}

impl ExpectedTotals {
    /// Reads `count=1200,EUR=340050`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut expected = ExpectedTotals::default();
        for part in text.split(',').map(str::trim) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` is no total; write count=1200,EUR=340050"))?;
            let whole = || -> Result<u64, String> {
                value.parse().map_err(|_| {
                    let problem = format!("`{part}`: `{value}` is no whole number");
                    if !is_currency(name) {
                        return problem;
                    }
                    let example = Money { amount_minor: 1250, currency: name.to_owned() };
                    format!("{problem}; amounts are in minor units: {example} is {name}=1250")
                })
            };
            let is_twice = match name {
                "count" => expected.count.replace(whole()?).is_some(),
                currency if is_currency(currency) => {
                    expected.sums.insert(currency.to_owned(), i128::from(whole()?)).is_some()
                }
                _ => {
                    return Err(format!(
                        "`{name}` is neither `count` nor a currency of ISO 4217, such as EUR"
                    ));
                }
            };
            if is_twice {
                return Err(format!("`{name}` stands there twice"));
            }
        }
        Ok(expected)
    }

    /// Whether no refunds are expected.
    pub(super) fn is_nothing(&self) -> bool {
        self.count == Some(0)
    }

    /// A sentence for each total that differs. `place` has the refunds, such as `the file`.
    pub(super) fn differences(&self, found: &Totals, place: &str) -> Vec<String> {
        let mut differences = Vec::new();
        if let Some(count) = self.count.filter(|count| *count != found.count) {
            let has = counted(found.count, "refund");
            let are = if count == 1 { "is" } else { "are" };
            differences.push(format!("{place} has {has}, and {count} {are} expected"));
        }
        if self.sums.is_empty() {
            return differences;
        }
        let sum = |currency: &str| found.by_currency.get(currency).map_or(0, |(_, sum)| *sum);
        for (currency, expected) in
            self.sums.iter().filter(|(currency, expected)| sum(currency) != **expected)
        {
            let found = sum(currency);
            let difference = found - expected;
            differences.push(format!(
                "{place} has {found} {currency} in minor units, and {expected} are expected: {difference:+}"
            ));
        }
        for (currency, (count, sum)) in
            found.by_currency.iter().filter(|(name, _)| !self.sums.contains_key(*name))
        {
            differences.push(format!(
                "{place} has {sum} {currency} in minor units, of {}, and no {currency} is expected",
                counted(*count, "refund")
            ));
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(refunds: &[(i64, &str)]) -> Totals {
        let mut totals = Totals::default();
        for (amount_minor, currency) in refunds {
            totals.add(&Money { amount_minor: *amount_minor, currency: (*currency).to_owned() });
        }
        totals
    }

    #[test]
    fn every_total_that_differs_is_named_with_the_difference() {
        let found = totals(&[(1250, "EUR"), (750, "EUR"), (90, "JPY")]);
        let differences = |text: &str| ExpectedTotals::read(text).unwrap().differences(&found, "the file");
        assert_eq!(differences("count=3"), Vec::<String>::new());
        assert_eq!(differences(&found.expected()), Vec::<String>::new());
        assert_eq!(differences("count=3, EUR=2000,JPY=90"), Vec::<String>::new());
        assert_eq!(
            differences("count=4,EUR=2100,USD=5"),
            [
                "the file has 3 refunds, and 4 are expected",
                "the file has 2000 EUR in minor units, and 2100 are expected: -100",
                "the file has 0 USD in minor units, and 5 are expected: -5",
                "the file has 90 JPY in minor units, of 1 refund, and no JPY is expected",
            ]
        );
    }

    #[test]
    fn sums_may_be_larger_than_any_amount() {
        let found = totals(&[(i64::MAX, "EUR"), (i64::MAX, "EUR")]);
        assert_eq!(
            found.to_string(),
            "EUR: 2 refunds, 18446744073709551614 in minor units = 184,467,440,737,095,516.14 EUR"
        );
    }

    #[test]
    fn a_total_that_cannot_be_read_is_named() {
        for (text, words) in [
            ("count", "`count` is no total"),
            ("EUR=3400.50", "12.50 EUR is EUR=1250"),
            ("JPY=3400.50", "1,250 JPY is JPY=1250"),
            ("KWD=3400.50", "1.250 KWD is KWD=1250"),
            ("count=1.5", "`1.5` is no whole number"),
            ("EURO=5", "`EURO` is neither"),
            ("count=1,count=2", "twice"),
        ] {
            let error = ExpectedTotals::read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
