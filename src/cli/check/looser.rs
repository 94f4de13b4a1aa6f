//! Whether a changed key loosens a rule: refundd may then send more, or send a refund again in more cases. Pure.
//!
//! It looks at one key at a time. So it also marks a higher `permits` whose longer `per` makes up for it.

use std::time::Duration;

use serde_json::Value;

use super::difference::{Flat, KeyChange};
use crate::config::duration;

const AMOUNTS: &str = "max_amount_minor.";

/// Whether a limit grants more, or keeps a weaker promise.
pub(super) fn limit(change: &KeyChange, _: &Flat, _: &Flat) -> bool {
    // In the other kinds any span of `per` holds at most `permits`.
    let is_weak =
        |kind: Option<&Value>| matches!(kind.and_then(Value::as_str), Some("fixed_window" | "token_bucket"));
    match change.key.as_str() {
        "permits" | "burst" => grows(change),
        "per" | "lateness" => shrinks(change),
        "gap" => change.new.is_none(),
        "algorithm" => is_weak(change.new.as_ref()) && !is_weak(change.old.as_ref()),
        _ => false,
    }
}

/// Whether a channel sends more, or sends a refund again in more cases. `old` and `new` are all of its keys.
pub(super) fn channel(change: &KeyChange, old: &Flat, new: &Flat) -> bool {
    let was = |text: &str| change.old.as_ref().and_then(Value::as_str) == Some(text);
    let becomes = |text: &str| change.new.as_ref().and_then(Value::as_str) == Some(text);
    let has_amounts = |keys: &Flat| keys.keys().any(|key| key.starts_with(AMOUNTS));
    match change.key.as_str() {
        // Without `inquiry.limits`, the channel's limits count the inquiries.
        "inquiry.limits" if change.old.is_none() && old.contains_key("inquiry.url") => {
            has_lost(old.get("limits"), change.new.as_ref())
        }
        "inquiry.limits" if change.new.is_none() && new.contains_key("inquiry.url") => {
            items(new.get("limits")).is_empty()
        }
        "limits" | "inquiry.limits" => {
            change.new.is_some()
                && (items(change.new.as_ref()).is_empty()
                    || has_lost(change.old.as_ref(), change.new.as_ref()))
        }
        "key_retention" => change.old.is_none() || grows(change),
        "on_unknown" => was("review") || becomes("resend"),
        "inquiry.not_found_is_final" => change.new == Some(Value::Bool(true)),
        "inquiry.grace" | "cool_down" => shrinks(change),
        "inquiry.not_found.equals" => change.new.is_none() && new.contains_key("inquiry.url"),
        "verdict" => {
            has_lost(change.old.as_ref(), change.new.as_ref()) || is_reordered(change) || sends_again(change)
        }
        "adaptive" => change.new == Some(Value::Bool(false)),
        "breaker" => becomes("off"),
        "card_numbers" => becomes("accepted"),
        "max_in_flight" | "retry.sends" => grows(change),
        // A currency that is not named is refused, unless none is named.
        key if key.starts_with(AMOUNTS) => match (&change.old, &change.new) {
            (None, _) => has_amounts(old),
            (_, None) => !has_amounts(new),
            _ => grows(change),
        },
        _ => false,
    }
}

/// For sections that have neither limits nor channels.
pub(super) fn none(_: &KeyChange, _: &Flat, _: &Flat) -> bool {
    false
}

/// Whether an item of the old list is not in the new one.
fn has_lost(old: Option<&Value>, new: Option<&Value>) -> bool {
    let new = items(new);
    items(old).iter().any(|item| !new.contains(item))
}

/// Whether the items of both lists stand in another order. Of the rules that match an answer, the first one counts.
fn is_reordered(change: &KeyChange) -> bool {
    let (old, new) = (items(change.old.as_ref()), items(change.new.as_ref()));
    let (before, after) =
        (old.iter().filter(|item| new.contains(item)), new.iter().filter(|item| old.contains(item)));
    before.ne(after)
}

/// Whether a new rule lets refundd send a refund again.
fn sends_again(change: &KeyChange) -> bool {
    let old = items(change.old.as_ref());
    items(change.new.as_ref()).iter().any(|rule| {
        let is_sent_again = matches!(rule["outcome"].as_str(), Some("not_executed" | "asked_to_wait"));
        is_sent_again && !old.contains(rule)
    })
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn grows(change: &KeyChange) -> bool {
    sizes(change).is_some_and(|(old, new)| new > old)
}

fn shrinks(change: &KeyChange) -> bool {
    sizes(change).is_some_and(|(old, new)| new < old)
}

/// The old and the new number, or length of time. `None` unless both are set.
fn sizes(change: &KeyChange) -> Option<(Duration, Duration)> {
    Some((size(change.old.as_ref()?)?, size(change.new.as_ref()?)?))
}

/// A number counts as so many seconds, so that numbers and times are compared in one way.
fn size(value: &Value) -> Option<Duration> {
    match value {
        Value::Number(number) => number.as_u64().map(Duration::from_secs),
        Value::String(text) => duration::read(text).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::difference::{Looser, between};
    use super::*;

    /// The keys that change, and whether they loosen the rule.
    fn changes(kind: Looser, old: &Value, new: &Value) -> Vec<(String, bool)> {
        let named = |settings: &Value| Flat::from([("acme".to_owned(), settings.clone())]);
        let changed = between(&named(old), &named(new), kind);
        changed.into_iter().flat_map(|one| one.keys).map(|key| (key.key, key.looser)).collect()
    }

    /// Whether the change is looser, and the change back is not.
    fn only_there(kind: Looser, old: &Value, new: &Value) {
        assert!(changes(kind, old, new).iter().any(|(_, looser)| *looser), "{old} -> {new}");
        assert!(changes(kind, new, old).iter().all(|(_, looser)| !looser), "{new} -> {old}");
    }

    #[test]
    fn a_limit_that_grants_more_is_looser() {
        for (old, new) in [
            (json!({ "permits": 20 }), json!({ "permits": 200 })),
            (json!({ "per": "1m 30s" }), json!({ "per": "1m" })),
            (json!({ "lateness": "20ms" }), json!({ "lateness": "2ms" })),
            (json!({ "gap": "strict" }), json!({})),
            (json!({ "algorithm": "paced" }), json!({ "algorithm": "fixed_window" })),
        ] {
            only_there(limit, &old, &new);
        }
        let ahead = changes(limit, &json!({ "ahead": "50ms" }), &json!({ "ahead": "1ms" }));
        assert_eq!(ahead, [("ahead".to_owned(), false)]);
    }

    /// A channel with an inquiry, by the names of the channel's limits and of the inquiry's own.
    fn under(limits: &[&str], own: Option<&[&str]>) -> Value {
        let named = |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Value>();
        json!({ "limits": named(limits), "inquiry": { "url": "u", "limits": own.map(named) } })
    }

    #[test]
    fn a_channel_that_sends_more_or_sends_again_in_more_cases_is_looser() {
        let rule = |outcome: &str| json!({ "status": 409, "outcome": outcome });
        let asks = |is_final: bool| json!({ "inquiry": { "url": "u", "not_found_is_final": is_final } });
        for (old, new) in [
            (json!({ "limits": [{ "name": "day" }] }), json!({ "limits": [] })),
            (
                json!({ "limits": [{ "name": "day" }, { "name": "s" }] }),
                json!({ "limits": [{ "name": "s" }] }),
            ),
            (json!({ "key_retention": "1h" }), json!({ "key_retention": "2d" })),
            (json!({ "on_unknown": "review" }), json!({ "on_unknown": "resend" })),
            (asks(false), asks(true)),
            (under(&["day"], None), under(&["day"], Some(&["ask"]))),
            (under(&["day"], None), under(&["day"], Some(&[]))),
            (under(&[], Some(&["ask"])), under(&[], None)),
            (json!({ "retry": { "sends": 12 } }), json!({ "retry": { "sends": 13 } })),
            (json!({ "adaptive": true }), json!({ "adaptive": false })),
            (json!({ "cool_down": "5s" }), json!({ "cool_down": "500ms" })),
            (json!({ "verdict": [rule("rejected")] }), json!({ "verdict": [] })),
            (json!({ "max_amount_minor": { "EUR": 5 } }), json!({ "max_amount_minor": { "EUR": 6 } })),
            (json!({ "max_amount_minor": { "EUR": 5 } }), json!({})),
            (
                json!({ "max_amount_minor": { "EUR": 5 } }),
                json!({ "max_amount_minor": { "EUR": 5, "JPY": 1 } }),
            ),
        ] {
            only_there(channel, &old, &new);
        }
        let again =
            changes(channel, &json!({ "verdict": [] }), &json!({ "verdict": [rule("not_executed")] }));
        assert_eq!(again, [("verdict".to_owned(), true)]);
        let (one, two, three) = (rule("rejected"), rule("review"), rule("unknown"));
        for (rules, is_looser) in [
            (json!([two, one]), true),
            (json!([two, one, three]), true),
            (json!([one, two, three]), false),
            (json!([three, one, two]), false),
        ] {
            let changed = changes(channel, &json!({ "verdict": [one, two] }), &json!({ "verdict": rules }));
            assert_eq!(changed, [("verdict".to_owned(), is_looser)], "{rules}");
        }
        for (old, new) in [
            (json!({ "limits": [{ "name": "day" }], "inquiry": null }), under(&["day"], Some(&["ask"]))),
            (under(&["day"], None), under(&["day"], Some(&["ask", "day"]))),
            (under(&[], None), under(&[], Some(&["ask"]))),
        ] {
            assert!(changes(channel, &old, &new).iter().all(|(_, looser)| !looser), "{old} -> {new}");
        }
        let other = changes(channel, &json!({ "timeout": "5s" }), &json!({ "timeout": "9s" }));
        assert_eq!(other, [("timeout".to_owned(), false)]);
    }
}
