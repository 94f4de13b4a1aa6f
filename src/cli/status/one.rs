//! One channel: its limits and what binds it, its refunds, its bank, and when its backlog is gone.

use std::time::Duration;

use super::style::{Style, pace, span};
use crate::desk::channel::{ChannelStatus, Drain};
use crate::refund::State;
use crate::refund::text::{counted, shown};
use crate::store::BankStatus;

pub(super) fn page(channel: &ChannelStatus, style: Style) -> String {
    let mut page = format!("{}\n", style.bold(&shown(&channel.channel)));
    let mut line = |label: &str, text: String| {
        page.push_str(&style.line(&format!("  {label:<10} "), &shown(&text)));
    };
    line("state", channel.state.as_str().to_owned());
    line("binds", channel.binds_words());
    line("limits", limits(channel));
    let counts: Vec<String> =
        State::ALL.iter().map(|state| format!("{} {}", state.as_str(), channel.count(*state))).collect();
    let (open, ended) = counts.split_at(5);
    line("refunds", open.join(", "));
    line("ended", ended.join(", "));
    let full = if channel.full { "; the backlog is full, and new refunds are refused" } else { "" };
    line(
        "backlog",
        match channel.max_backlog {
            Some(most) => format!("{} of at most {most}{full}", channel.backlog),
            None => format!("{}{full}", channel.backlog),
        },
    );
    line(
        "oldest",
        channel.oldest_ready_age_seconds.map_or("no refund is due".to_owned(), |age| {
            format!("due for {}", span(Duration::try_from_secs_f64(age).unwrap_or_default()))
        }),
    );
    let observed = channel.observed_over_seconds;
    line("rate", format!("{} accepted over the last {observed} s", pace(channel.observed_per_second)));
    line("drained", drained(channel));
    line("bank", channel.bank.as_ref().map_or("no node reports about it".to_owned(), bank));
    line(
        "late",
        match &channel.late {
            Some(late) => {
                format!("{}, the first deadline at {:.0}", counted(late.refunds, "refund"), late.from)
            }
            None => channel.none_late(),
        },
    );
    let nodes = if channel.run_by.is_empty() { "none".to_owned() } else { channel.run_by.join(", ") };
    line("nodes", nodes);
    page
}

fn limits(channel: &ChannelStatus) -> String {
    let mut texts = match &channel.limits {
        None => vec!["unknown: no node has published them".to_owned()],
        Some(limits) if limits.is_empty() => vec!["unlimited".to_owned()],
        Some(limits) => limits
            .iter()
            .map(|limit| match &limit.stricter_rule {
                Some(by) => format!("{}: {} (another node's file: {by})", limit.limit, limit.rule),
                None => format!("{}: {}", limit.limit, limit.rule),
            })
            .collect(),
    };
    texts.extend(channel.slowed_to_percent.map(|percent| format!("slowed to {percent} % for now")));
    texts.join("; ")
}

fn drained(channel: &ChannelStatus) -> String {
    match channel.drain() {
        Drain::Empty => "there is no backlog".to_owned(),
        Drain::In(left) => format!("in about {}", span(left)),
        Drain::Unknown(why) => format!("unknown: {why}"),
    }
}

fn bank(bank: &BankStatus) -> String {
    let millis = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.1} ms"));
    let times = [
        millis("p50", bank.bank_p50_ms),
        millis("p95", bank.bank_p95_ms),
        millis("connection set-up", bank.set_up_ms),
        millis("round trip", bank.round_trip_ms),
    ];
    let times: Vec<String> = times.into_iter().flatten().collect();
    if times.is_empty() { "not measured in the last minute".to_owned() } else { times.join(", ") }
}
