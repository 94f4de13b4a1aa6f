//! `[review]`: which decisions of people need a second person.
//!
//! A decision of `ready` after an uncertain send needs one in any case; no key changes that.

use crate::caller::scope::CallerScope;
use crate::caller::{Caller, Callers};
use crate::refund::{AmountBounds, ChannelName};

use super::amounts;
use super::section::{Section, listed};

pub(super) const KEYS: &[&str] = &["second_person_above"];
/// The database takes amounts of up to 18 digits here.
const MOST: i64 = 999_999_999_999_999_999;

/// Reads the section: the highest amount that one person decides, for each currency.
pub(super) fn read(section: &Section<'_>) -> AmountBounds {
    section.keys(KEYS, &[]);
    let requirement = "must lie between 0 and 999999999999999999, in minor units: 100000 is 1000.00 EUR; 0 asks for a second person always";
    let empty = "must name a currency and the highest amount that one person decides, in minor units, such as { EUR = 100000 }";
    amounts::read(section, "second_person_above", 0..=MOST, requirement, empty)
}

/// Warnings about callers whose proposals no other caller may approve, on all or on some of these channels.
pub(super) fn warnings<'a>(
    callers: &Callers,
    channels: impl Iterator<Item = &'a ChannelName>,
) -> Vec<String> {
    let channels: Vec<&str> = channels.map(ChannelName::as_str).collect();
    let all = || callers.0.values();
    let reviewers = all().filter(|caller| caller.may.contains(&CallerScope::Review));
    let warning = |reviewer: &Caller| {
        let others =
            || all().filter(|other| other.name != reviewer.name && other.may.contains(&CallerScope::Approve));
        let has_approver = |channel: &str| others().any(|other| other.channels.has(channel));
        let alone: Vec<&str> = channels
            .iter()
            .copied()
            .filter(|channel| reviewer.channels.has(channel) && !has_approver(channel))
            .collect();
        let of_these = match (others().next(), alone.as_slice()) {
            (None, _) => String::new(),
            (Some(_), []) => return None,
            (Some(_), alone) => format!(" on {}", listed(alone)),
        };
        Some(format!(
            "caller `{}` may `review`, and no other caller may `approve`{of_these}, so only `refundd review approve` can approve what \
             this caller proposes{}",
            reviewer.name,
            if of_these.is_empty() { "" } else { " there" },
        ))
    };
    reviewers.filter_map(|reviewer| warning(reviewer)).collect()
}
