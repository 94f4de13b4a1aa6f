//! All channels, one line for each, in 80 columns.

use std::fmt::Write;
use std::time::Duration;

use super::style::{Style, brief, brief_span, cut, pace};
use crate::desk::channel::ChannelStatus;
use crate::refund::State;
use crate::refund::text::shown;

/// The counts of the table, in the order of a refund's way.
const COUNTS: [(&str, State); 8] = [
    ("READY", State::Ready),
    ("SEND", State::Sending),
    ("ACC", State::Accepted),
    ("UNKN", State::Unknown),
    ("REV", State::Review),
    ("PAID", State::Succeeded),
    ("FAIL", State::Failed),
    ("CANC", State::Cancelled),
];

pub(super) fn page(channels: &[ChannelStatus], style: Style) -> String {
    let mut header = format!("{:<11} {:<11}", "CHANNEL", "STATE");
    for (name, _) in COUNTS {
        let _ = write!(header, " {name:>4}");
    }
    let _ = write!(header, " {:>6} {:>7}", "OLDEST", "RATE");
    let mut page = format!("{}\n", style.bold(&header));
    for channel in channels {
        let name = cut(&shown(&channel.channel), 11);
        let state = format!("{:<11}", channel.state);
        let _ = write!(page, "{name:<11} {}", style.state(channel.state, &state));
        for (header, state) in COUNTS {
            let _ = write!(page, " {:>width$}", brief(channel.count(state)), width = header.len().max(4));
        }
        let oldest = channel.oldest_ready_age_seconds.and_then(|age| Duration::try_from_secs_f64(age).ok());
        let oldest = oldest.map_or("-".to_owned(), brief_span);
        let _ = writeln!(page, " {oldest:>6} {:>7}", pace(channel.observed_per_second));
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::store::ChannelCensus;

    #[test]
    fn the_table_fits_into_80_columns_and_shows_every_state() {
        let census = |channel: &str, count: u64| ChannelCensus {
            channel: channel.to_owned(),
            counts: State::ALL.iter().map(|state| (*state, count)).collect::<BTreeMap<_, _>>(),
            oldest_ready_age: Some(Duration::from_secs(100_000)),
            sends_last_minute: 60_000,
            accepted_last_minute: 60_000,
            accepted_last_seconds: 12_345,
            nothing_accepted: None,
            suspensions: Vec::new(),
            max_backlog: None,
            paused: None,
            breaker: None,
            suspended_by: Vec::new(),
            cool_until: None,
            slowed: None,
            late: None,
            full: false,
            run_by: Vec::new(),
            drain: None,
        };
        let channels = [census("acme", 7), census("a-channel-with-a-very-long-name-of-a-bank", 123_456_789)];
        let channels = channels.map(|census| ChannelStatus::of(&census));
        let page = page(&channels, Style { has_colours: false });
        for line in page.lines() {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
        insta::assert_snapshot!(page);
    }
}
