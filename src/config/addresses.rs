//! `addresses` of a channel and of `[notify]`: the ranges of addresses that it may connect to.

use crate::channel::Networks;

use super::section::{Section, listed};

/// Reads the ranges; none when the section connects to public addresses. `hosts` are the hosts in its URLs.
pub(super) fn read(section: &Section<'_>, hosts: &[&str]) -> Networks {
    let source = section.source;
    let mut field = section.texts("addresses", &[]);
    let parsed: Result<Vec<_>, _> = field.value.iter().map(|text| text.parse()).collect();
    let given = !(field.given && field.value.is_empty());
    field.require(source, given, || "must name a range; leave it out to connect to public addresses only");
    field.require(source, parsed.is_ok(), || match &parsed {
        Err(error) => format!("each of them {error}"),
        Ok(_) => String::new(),
    });
    let networks = Networks(parsed.unwrap_or_default());
    let outside: Vec<&str> = hosts
        .iter()
        .map(|host| host.trim_start_matches('[').trim_end_matches(']'))
        .filter(|host| host.parse().is_ok_and(|ip| networks.refusal(host, ip).is_some()))
        .collect();
    field.require(source, outside.is_empty(), || {
        format!("must contain the addresses that a url names, and lacks {}", listed(&outside))
    });
    networks
}
