//! The difference between what nodes published and a configuration file, in the words of the file's keys. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

/// A limit or a channel that is not as it was.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Changed {
    pub name: String,
    pub change: SettingChange,
    /// The keys that differ; empty for what comes or goes.
    pub keys: Vec<KeyChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SettingChange {
    Comes,
    Goes,
    Differs,
}

/// One key; null stands for a key that is not set.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct KeyChange {
    pub key: String,
    pub old: Option<Value>,
    pub new: Option<Value>,
    /// Whether the change loosens a rule of a limit or of a channel.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub looser: bool,
}

/// The values of a table by their keys, as `retry.sends`.
pub(super) type Flat = BTreeMap<String, Value>;

/// Whether a change loosens a rule, given all old and all new keys.
pub(super) type Looser = fn(&KeyChange, &Flat, &Flat) -> bool;

/// What changes from `old` to `new`, by name.
pub(super) fn between(
    old: &BTreeMap<String, Value>,
    new: &BTreeMap<String, Value>,
    is_looser: Looser,
) -> Vec<Changed> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = |name: &String| {
        let (change, keys) = match (old.get(name), new.get(name)) {
            (None, _) => (SettingChange::Comes, Vec::new()),
            (_, None) => (SettingChange::Goes, Vec::new()),
            (Some(old), Some(new)) => (SettingChange::Differs, keys(old, new, is_looser)),
        };
        let is_same = change == SettingChange::Differs && keys.is_empty();
        (!is_same).then(|| Changed { name: name.clone(), change, keys })
    };
    names.into_iter().filter_map(changed).collect()
}

/// The keys that differ.
fn keys(old: &Value, new: &Value, is_looser: Looser) -> Vec<KeyChange> {
    let (old, new) = (flat(old), flat(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = |key: &&String| old.get(*key) != new.get(*key);
    let change = |key: &String| {
        let (before, after) = (old.get(key).cloned(), new.get(key).cloned());
        let change = KeyChange { key: key.clone(), old: before, new: after, looser: false };
        KeyChange { looser: is_looser(&change, &old, &new), ..change }
    };
    names.into_iter().filter(differs).map(change).collect()
}

/// Makes the table flat. A list of limits becomes the list of their names, and the name of a
/// thing itself is left out.
fn flat(table: &Value) -> Flat {
    let mut values = Flat::new();
    flatten("", table, &mut values);
    values.remove("name");
    values
}

fn flatten(key: &str, value: &Value, values: &mut Flat) {
    match value {
        Value::Null => {}
        Value::Object(table) => {
            for (inner, value) in table {
                let key = if key.is_empty() { inner.clone() } else { format!("{key}.{inner}") };
                flatten(&key, value, values);
            }
        }
        Value::Array(items) if key == "limits" || key.ends_with(".limits") => {
            let names = items.iter().map(|item| item.get("name").unwrap_or(item).clone()).collect();
            values.insert(key.to_owned(), Value::Array(names));
        }
        Value::Array(items) if items.is_empty() => {}
        other => {
            values.insert(key.to_owned(), other.clone());
        }
    }
}

/// The limits that a channel's settings name, by their names.
pub(super) fn limits_of(settings: &Value) -> BTreeMap<String, Value> {
    let own = settings["limits"].as_array().into_iter().flatten();
    let of_inquiry = settings["inquiry"]["limits"].as_array().into_iter().flatten();
    let named = |limit: &Value| Some((limit["name"].as_str()?.to_owned(), limit.clone()));
    own.chain(of_inquiry).filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::looser::none;
    use super::*;

    fn one(settings: Value) -> BTreeMap<String, Value> {
        BTreeMap::from([("acme".to_owned(), settings)])
    }

    #[test]
    fn keys_are_named_as_in_the_file_with_their_old_and_new_values() {
        let old = json!({ "name": "x", "timeout": "10s", "retry": { "sends": 5 }, "inquiry": null,
                          "limits": [{ "name": "a", "permits": 1 }], "verdict": [] });
        let new = json!({ "name": "x", "timeout": "5s", "retry": { "sends": 5 }, "inquiry": { "url": "http://b" },
                          "limits": [{ "name": "a", "permits": 2 }, { "name": "b", "permits": 3 }] });
        let changed = between(&one(old), &one(new), none);
        let keys: Vec<(&str, Option<Value>, Option<Value>)> =
            changed[0].keys.iter().map(|key| (key.key.as_str(), key.old.clone(), key.new.clone())).collect();
        assert_eq!(
            keys,
            [
                ("inquiry.url", None, Some(json!("http://b"))),
                ("limits", Some(json!(["a"])), Some(json!(["a", "b"]))),
                ("timeout", Some(json!("10s")), Some(json!("5s"))),
            ]
        );
    }

    #[test]
    fn what_comes_and_what_goes_is_named_and_what_stays_is_not() {
        let settings = json!({ "timeout": "10s" });
        assert_eq!(between(&one(settings.clone()), &one(settings.clone()), none), []);
        assert_eq!(between(&BTreeMap::new(), &one(settings.clone()), none)[0].change, SettingChange::Comes);
        assert_eq!(between(&one(settings), &BTreeMap::new(), none)[0].change, SettingChange::Goes);
    }

    #[test]
    fn the_limits_of_an_inquiry_count_too() {
        let settings = json!({ "limits": [{ "name": "a" }], "inquiry": { "limits": [{ "name": "b" }] } });
        assert_eq!(limits_of(&settings).into_keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
