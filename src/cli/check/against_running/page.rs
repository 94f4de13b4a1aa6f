//! The comparison for people, in 80 columns.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::{ChannelChange, Report};
use crate::cli::check::difference::{Changed, SettingChange};
use crate::cli::status::{cut, span};
use crate::cli::wrap::hanging;
use crate::desk::comparison::{BacklogComparison, BacklogForecast};
use crate::refund::text::shown;

const ANOTHER_PLACEMENT: &str = "Pause the channels of this limit, reload all nodes, and resume after one more `per`: until then \
    some nodes count in Redis and others by shares, and together they may send more than the limit.";

pub(super) fn of(report: &Report) -> String {
    let mut page = hanging("", &nodes(report));
    if report.limits.is_empty() && report.channels.is_empty() {
        page.push_str("No limit and no channel changes.\n");
    }
    if report.sections.is_empty() {
        page.push_str("No caller and no other section changes that a reload takes over.\n");
    }
    for limit in &report.limits {
        page.push_str(&changed("limit", limit, ""));
        if limit.keys.iter().any(|key| key.key == "placement") {
            page.push_str(&hanging("  ", ANOTHER_PLACEMENT));
        }
    }
    for channel in &report.channels {
        page.push_str(&changed("channel", &channel.changed, &refunds(channel)));
        for advice in &channel.advice {
            page.push_str(&hanging("  ", &shown(&format!("{advice}."))));
        }
    }
    for section in &report.sections {
        page.push_str(&changed("section", section, ""));
    }
    for left in &report.left_behind {
        page.push_str(&hanging("", &shown(&format!("{}.", left.text))));
    }
    if report.backlogs.is_empty() {
        page.push_str("No refund waits.\n");
        return page;
    }
    page.push_str("\nRefunds that wait, if nothing changes -> if all nodes take this file over:\n\n");
    let _ = writeln!(page, "{:<20} {:>9}  {:>21}  {:>21}", "CHANNEL", "WAITING", "DRAINED IN", "TOO LATE");
    for backlog in &report.backlogs {
        page.push_str(&row(backlog));
    }
    let refusing =
        report.backlogs.iter().filter_map(|one| one.nothing_accepted.as_ref().map(|it| (&one.channel, it)));
    for (channel, nothing_accepted) in refusing {
        let text = format!("{channel}: {}. The times above suppose that it accepts.", nothing_accepted.text);
        page.push_str(&hanging("", &shown(&text)));
    }
    page
}

fn nodes(report: &Report) -> String {
    let names = |is_wanted: bool| {
        let wanted = report.nodes.iter().filter(|node| node.runs_this_file == is_wanted);
        wanted.map(|node| shown(&node.node).into_owned()).collect::<Vec<_>>().join(", ")
    };
    if report.nodes.is_empty() {
        return "No node lives. The file is compared with what nodes published last.".to_owned();
    }
    if report.nodes_differ {
        let each = report.nodes.iter().map(|node| format!("{} ({})", shown(&node.node), shown(&node.digest)));
        let already = match names(true) {
            none if none.is_empty() => String::new(),
            some => format!(" This file's channels and limits run already on {some}."),
        };
        return format!(
            "The nodes run different files: {}. The file is compared with what nodes published last.{already}",
            each.collect::<Vec<_>>().join(", ")
        );
    }
    match names(false) {
        none if none.is_empty() => {
            format!("The nodes run the channels and limits of this file already: {}.", names(true))
        }
        others => format!("The nodes run another file: {others}."),
    }
}

fn changed(what: &str, changed: &Changed, more: &str) -> String {
    let name = shown(&changed.name);
    match changed.change {
        SettingChange::Comes => hanging("", &format!("{what} {name} comes{more}")),
        SettingChange::Goes => hanging("", &format!("{what} {name} goes{more}")),
        SettingChange::Differs => {
            let mut lines = format!("{what} {name}\n");
            for key in &changed.keys {
                let looser = if key.looser { " (looser)" } else { "" };
                let text = format!("{} -> {}{looser}", value(key.old.as_ref()), value(key.new.as_ref()));
                lines.push_str(&hanging(&format!("  {:<16} ", shown(&key.key)), &shown(&text)));
            }
            lines
        }
    }
}

fn value(value: Option<&Value>) -> String {
    match value {
        None => "not set".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// What has not ended of a channel that comes or goes.
fn refunds(channel: &ChannelChange) -> String {
    let counts: Vec<String> =
        channel.open.iter().map(|(state, count)| format!("{count} {}", state.as_str())).collect();
    match (channel.changed.change, counts.is_empty()) {
        (SettingChange::Differs, _) => String::new(),
        (SettingChange::Comes | SettingChange::Goes, true) => ", and has no open refunds".to_owned(),
        (SettingChange::Comes, false) => format!(", with its open refunds: {}", counts.join(", ")),
        (SettingChange::Goes, false) => {
            format!(", and its open refunds wait until a node runs it again: {}", counts.join(", "))
        }
    }
}

fn row(backlog: &BacklogComparison) -> String {
    let drained = |fate: &BacklogForecast| match fate.expected_seconds_to_drain {
        Some(seconds) => span(Duration::from_secs(seconds)),
        None if fate.is_known => "never".to_owned(),
        None => "unknown".to_owned(),
    };
    let late =
        |fate: &BacklogForecast| fate.late.map_or_else(|| "unknown".to_owned(), |late| late.to_string());
    let both = |of: &dyn Fn(&BacklogForecast) -> String| {
        format!("{} -> {}", of(&backlog.before), of(&backlog.after))
    };
    let name = cut(&shown(&backlog.channel), 20);
    format!("{name:<20} {:>9}  {:>21}  {:>21}\n", backlog.waiting, both(&drained), both(&late))
}
