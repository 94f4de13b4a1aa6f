//! The advice when other limits count the requests of a channel.

use serde_json::{Value, json};

use crate::config::Config;

fn limits(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name, "permits": 1 })).collect()
}

fn advice(before: &[&str], after: &[&str]) -> String {
    let of = |names| json!({ "limits": limits(names), "inquiry": null });
    Config::exchange_advice("acme", &of(before), &of(after)).join("; ")
}

#[test]
fn a_limit_under_another_name_is_to_be_exchanged_in_a_pause() {
    let renamed = advice(&["day", "second"], &["day-2", "second"]);
    let change = "Sends of channel `acme` change from `day`, `second` to `day-2`, `second`.";
    assert!(
        renamed.starts_with(change) && renamed.contains("Pause the channel, reload all nodes"),
        "{renamed}"
    );
    assert_eq!(advice(&["day"], &["day"]), "");
}

#[test]
fn requests_that_nothing_counts_are_named() {
    let unlimited = advice(&["day"], &[]);
    assert!(unlimited.starts_with("Sends of channel `acme` change from `day` to no limit. Nothing counts"));
    assert!(advice(&["day", "second"], &["second"]).contains("Nothing counts"));
}

#[test]
fn a_limit_that_was_unlimited_begins_with_a_fresh_budget() {
    for limited in [advice(&[], &["day"]), advice(&["second"], &["day", "second"])] {
        assert!(
            limited.contains("does not count under it") && limited.contains("Pause the channel"),
            "{limited}"
        );
    }
}

#[test]
fn the_limits_of_inquiries_are_looked_at_where_they_have_or_get_their_own() {
    let of = |own: Value| json!({ "limits": limits(&["day"]), "inquiry": { "limits": own } });
    let (one, other) = (of(limits(&["ask"])), of(limits(&["ask-2"])));
    let said = Config::exchange_advice("acme", &one, &other);
    assert!(
        said.len() == 1 && said[0].starts_with("Inquiries of channel `acme` change from `ask`"),
        "{said:?}"
    );
    for (before, after, change) in [
        (of(Value::Null), &one, "from `day` to `ask`."),
        (one.clone(), &of(Value::Null), "from `ask` to `day`."),
    ] {
        let said = Config::exchange_advice("acme", &before, after);
        let change = format!("Inquiries of channel `acme` change {change}");
        assert!(said.len() == 1 && said[0].starts_with(&change), "{said:?}");
    }
}

#[test]
fn inquiries_under_the_limits_of_the_channel_change_with_its_sends() {
    let of = |name: &str, inquiry: Value| json!({ "limits": limits(&[name]), "inquiry": inquiry });
    let shared = json!({ "url": "u", "limits": null });
    let said = Config::exchange_advice("acme", &of("day", shared.clone()), &of("day-2", shared));
    assert!(said.len() == 1 && said[0].starts_with("Sends of channel"), "{said:?}");
    let first = of("day", json!({ "url": "u", "limits": limits(&["ask"]) }));
    assert_eq!(Config::exchange_advice("acme", &of("day", Value::Null), &first), [""; 0]);
}
