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
        let exchange = |requests: &str, before: Option<BTreeSet<&str>>, after: Option<BTreeSet<&str>>| {
            let (before, after) = (before?, after?);
            let advice = advice(&before, &after)?;
            let (before, after) = (listed(&before), listed(&after));
            Some(format!("{requests} of channel `{channel}` change from {before} to {after}. {advice}"))
        };
        let sends = exchange("Sends", names(&old["limits"]), names(&new["limits"]));
        // Inquiries that stay under the channel's limits change as the sends do.
        let have_own = [old, new].iter().any(|settings| settings["inquiry"]["limits"].is_array());
        let inquiries =
            have_own.then(|| exchange("Inquiries", of_inquiries(old), of_inquiries(new))).flatten();
        sends.into_iter().chain(inquiries).collect()
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

/// The names of the inquiry's own limits, else of the channel's; `None` for a channel without an inquiry.
fn of_inquiries(settings: &Value) -> Option<BTreeSet<&str>> {
    let inquiry = &settings["inquiry"];
    inquiry.as_object()?;
    names(&inquiry["limits"]).or_else(|| names(&settings["limits"]))
}

/// The names of a list of limits; `None` for anything else.
fn names(limits: &Value) -> Option<BTreeSet<&str>> {
    Some(limits.as_array()?.iter().filter_map(|limit| limit["name"].as_str()).collect())
}

fn listed(names: &BTreeSet<&str>) -> String {
    if names.is_empty() {
        return "no limit".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
