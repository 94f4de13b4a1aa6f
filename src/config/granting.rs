//! `limits` of a channel or of its inquiry: the names of the limits that must all grant a permit.

use std::sync::Arc;

use crate::limiter::Limit;

use super::limit::Limits;
use super::section::{Section, listed, nearest};

/// The journal names the permit of each limit in one text, which Postgres bounds.
const MOST_LIMITS: usize = 100;

/// The limits that must all grant a permit, sorted by name, so that every node uses one order.
pub(super) fn granting(section: &Section<'_>, known: &Limits) -> Option<Vec<Arc<Limit>>> {
    let source = section.source;
    let mut field = section.required_texts(
        "limits",
        "no channel should be unlimited by accident: name the limits that must all grant, or say `limits = []` for \
         unlimited",
    )?;
    let mut names = field.value.clone();
    field.require(source, names.len() <= MOST_LIMITS, || format!("names more than {MOST_LIMITS} limits"));
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone());
    field.require(source, twice.is_none(), || format!("names `{}` twice", twice.unwrap_or_default()));
    let all: Vec<&str> = known.keys().map(String::as_str).collect();
    let missing = names.iter().find(|name| !known.contains_key(*name));
    field.require(source, missing.is_none(), || {
        let missing = missing.map(String::as_str).unwrap_or_default();
        match nearest(missing, &all) {
            Some(near) => format!("there is no `[limit.{missing}]`; did you mean `{near}`?"),
            None if all.is_empty() => format!("there is no `[limit.{missing}]`, nor any other; add it"),
            None => format!("there is no `[limit.{missing}]`; add it, or use one of {}", listed(&all)),
        }
    });
    let limits: Vec<Arc<Limit>> =
        names.iter().filter_map(|name| known.get(name).cloned().flatten()).collect();
    let paced = limits.iter().filter(|limit| limit.rule.algorithm.is_paced());
    let paced: Vec<&str> = paced.map(|limit| limit.name.as_str()).collect();
    field.require(source, paced.len() < 2, || {
        format!(
            "names more than one paced limit, {}, whose permits hardly ever open together; make the slower of them \"sliding_window\"",
            listed(&paced)
        )
    });
    Some(limits)
}
