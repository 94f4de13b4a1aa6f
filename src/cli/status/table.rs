//! All channels, one line for each, in 80 columns; on a wider terminal names have more room.

use std::fmt::Write;
use std::time::Duration;

use super::style::{Style, brief, brief_span, cut_inside, pace};
use crate::cli::wrap::COLUMNS;
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

/// The characters of a name in 80 columns.
const NAME: usize = 11;

pub(super) fn page(channels: &[ChannelStatus], style: Style) -> String {
    let names: Vec<String> = channels.iter().map(|channel| shown(&channel.channel).into_owned()).collect();
    let room = NAME + style.columns.unwrap_or(COLUMNS).saturating_sub(COLUMNS);
    let wide = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).clamp(NAME, room);
    let mut header = format!("{:<wide$} {:<11}", "CHANNEL", "STATE");
    for (name, _) in COUNTS {
        let _ = write!(header, " {name:>4}");
    }
    let _ = write!(header, " {:>6} {:>7}", "OLDEST", "RATE");
    let mut page = format!("{}\n", style.bold(&header));
    for (channel, name) in channels.iter().zip(names) {
        let name = cut_inside(&name, wide);
        let state = format!("{:<11}", channel.state.as_str());
        let _ = write!(page, "{name:<wide$} {}", style.state(channel.state, &state));
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
            ..ChannelCensus::default()
        };
        let channels = [census("acme", 7), census("a-channel-with-a-very-long-name-of-a-bank", 123_456_789)];
        let channels = channels.map(|census| ChannelStatus::of(&census));
        let wide = page(&channels, Style { has_colours: false, columns: Some(100) });
        assert!(wide.contains("a-channel-with-…-name-of-a-bank "), "{wide}");
        assert!(wide.lines().all(|line| line.chars().count() <= 100), "{wide}");
        let page = page(&channels, Style { has_colours: false, columns: None });
        for line in page.lines() {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
        insta::assert_snapshot!(page);
    }
}
