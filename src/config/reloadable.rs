//! The sections beside channels and limits that a reload takes over, as people may see them, and what a reload changes.
//!
//! Nodes publish the sections, so nothing here is a secret: of tokens only the ids and the ends.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::caller::{Caller, Names};

use super::Config;
use super::duration::say;
use super::limit;

impl Config {
    /// Each such section by its name in the file, such as `caller.shop`, without secrets and with defaults.
    ///
    /// Nodes write it into `refundd.nodes.settings`.
    #[must_use]
    pub fn public_sections(&self) -> Value {
        let Config { bucket, log, callers, second_person_above, .. } = self;
        let mut sections: Map<String, Value> = callers
            .0
            .values()
            .map(|caller| (format!("caller.{}", caller.name), public_caller(caller)))
            .collect();
        if !second_person_above.0.is_empty() {
            sections.insert("review".to_owned(), json!({ "second_person_above": *second_person_above.0 }));
        }
        sections.insert("bucket".to_owned(), json!({ "capacity": bucket.capacity }));
        sections.insert("log".to_owned(), json!({ "level": log.level }));
        Value::Object(sections)
    }

    /// The sections beside channels that a reload with `new` changes, for people: `caller.shop added`.
    #[must_use]
    pub fn changed_sections(&self, new: &Config) -> Vec<String> {
        let (old_sections, new_sections) = (self.with_limits(), new.with_limits());
        let names: BTreeSet<&String> = old_sections.keys().chain(new_sections.keys()).collect();
        let changed = names.into_iter().filter_map(|name| {
            let change = match (old_sections.get(name), new_sections.get(name)) {
                (None, _) => "added",
                (_, None) => "removed",
                (Some(old), Some(new)) if old == new => return None,
                (Some(_), Some(_)) => "changed",
            };
            Some(format!("{name} {change}"))
        });
        let mut changed: Vec<String> = changed.collect();
        if self.http.tls.is_some() && new.http.tls.is_some() && self.http.tls != new.http.tls {
            changed.push("http.tls changed".to_owned());
        }
        changed
    }

    /// The sections of [`Config::public_sections`], and the limits.
    fn with_limits(&self) -> BTreeMap<String, Value> {
        let limits = self.limits.values().map(|limit| (format!("limit.{}", limit.name), limit::shown(limit)));
        let Value::Object(sections) = self.public_sections() else { return limits.collect() };
        limits.chain(sections).collect()
    }
}

fn public_caller(caller: &Caller) -> Value {
    let Caller { name: _, tokens, certificate, may, channels, limits, rate, most } = caller;
    let names = |names: &Names| match names {
        Names::All => json!(["*"]),
        Names::These(names) => json!(names),
    };
    let tokens: Vec<String> =
        tokens.iter().map(|token| format!("{} until {}", token.id, token.expires)).collect();
    json!({
        "may": may.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "channels": names(channels),
        "limits": names(limits),
        "tokens": tokens,
        "certificate": certificate,
        "requests": rate.map(|rate| rate.requests),
        "per": rate.map(|rate| say(rate.per)),
        "max_amount_minor": *most.0,
    })
}
