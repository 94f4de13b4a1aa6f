//! The advice to a person who changes by which limits the requests of a channel are counted.
//!
//! A permit counts under the name of its limit alone. So a limit under another name begins with a fresh budget.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Config;

const EXCHANGED: &str = "What was sent under an earlier name does not count under a new one. Until all nodes are reloaded, and for one more `per`, \
    the budgets of all these limits may be used up. Pause the channel, reload all nodes, and resume it after one more `per`";
const ADDED: &str = "What was sent without a limit, or while it was unlimited, does not count under it. Until all nodes are reloaded, and for one more \
    `per`, more may be sent than it allows. Pause the channel, reload all nodes, and resume it after one more `per`";
const REMOVED: &str = "Nothing counts requests under a limit that is gone or unlimited. If the limit comes back, pause the channel, reload all nodes, \
    and resume it after one `per`";

impl Config {
    /// What to do when a channel's public settings change from `old` to `new`, if other limits count its sends or its inquiries.
    #[must_use]
    pub fn exchange_advice(channel: &str, old: &Value, new: &Value) -> Vec<String> {
        let advice = |(requests, pointer): (&str, &str)| {
            let (before, after) = (names(old, pointer)?, names(new, pointer)?);
            let advice = advice(&before, &after)?;
            let (before, after) = (listed(&before), listed(&after));
            Some(format!("{requests} of channel `{channel}` change from {before} to {after}. {advice}"))
        };
        [("Sends", "/limits"), ("Inquiries", "/inquiry/limits")].into_iter().filter_map(advice).collect()
    }
}

fn advice(before: &BTreeSet<&str>, after: &BTreeSet<&str>) -> Option<&'static str> {
    match (before.is_subset(after), after.is_subset(before)) {
        (true, true) => None,
        (true, false) => Some(ADDED),
        (false, true) => Some(REMOVED),
        (false, false) => Some(EXCHANGED),
    }
}

/// The names of a list of limits; `None` where the settings have none, as an inquiry under the channel's limits.
fn names<'s>(settings: &'s Value, pointer: &str) -> Option<BTreeSet<&'s str>> {
    let limits = settings.pointer(pointer)?.as_array()?;
    Some(limits.iter().filter_map(|limit| limit["name"].as_str()).collect())
}

fn listed(names: &BTreeSet<&str>) -> String {
    if names.is_empty() {
        return "no limit".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
