//! `[review]`: which decisions of people need a second person.
//!
//! A decision of `ready` after an uncertain send needs one in any case; no key changes that.

use crate::caller::Callers;
use crate::caller::scope::CallerScope;
use crate::refund::AmountBounds;

use super::amounts;
use super::section::Section;

pub(super) const KEYS: &[&str] = &["second_person_above"];
/// The database takes amounts of up to 18 digits here.
const MOST: i64 = 999_999_999_999_999_999;

/// Reads the section: the highest amount that one person decides, for each currency.
pub(super) fn read(section: &Section<'_>) -> AmountBounds {
    section.keys(KEYS, &[]);
    let law = "must lie between 0 and 999999999999999999, in minor units: 1000 EUR are 100000; 0 asks for a second person always";
    let empty = "must name a currency and the highest amount that one person decides, in minor units, such as { EUR = 100000 }";
    amounts::read(section, "second_person_above", 0..=MOST, law, empty)
}

/// Warnings about callers whose proposals no other caller may approve.
pub(super) fn warnings(callers: &Callers) -> Vec<String> {
    let all = || callers.0.values();
    let reviewers = all().filter(|caller| caller.may.contains(&CallerScope::Review));
    let alone = reviewers.filter(|caller| {
        !all().any(|other| other.name != caller.name && other.may.contains(&CallerScope::Approve))
    });
    let warning = |name| {
        format!(
            "caller `{name}` may `review`, and no other caller may `approve`, so only `refundd review approve` can approve what this \
             caller proposes"
        )
    };
    alone.map(|caller| warning(&caller.name)).collect()
}
