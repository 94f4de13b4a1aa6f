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
fn the_limits_of_inquiries_are_looked_at_where_they_have_their_own() {
    let of = |own: Value| json!({ "limits": limits(&["day"]), "inquiry": { "limits": own } });
    let (one, other) = (of(limits(&["ask"])), of(limits(&["ask-2"])));
    let said = Config::exchange_advice("acme", &one, &other);
    assert!(
        said.len() == 1 && said[0].starts_with("Inquiries of channel `acme` change from `ask`"),
        "{said:?}"
    );
    assert_eq!(Config::exchange_advice("acme", &of(Value::Null), &one), [""; 0]);
}
