//! Numbers and times in few characters, and colours where a terminal shows them.

use std::env;
use std::io::{IsTerminal, stdout};
use std::time::Duration;

use crate::cli::wrap::{hanging, width_of};
use crate::desk::channel::Standing;

/// How texts are written where they go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    /// On a terminal, unless `NO_COLOR` is set.
    pub has_colours: bool,
    /// The width of the terminal; `None` elsewhere, where a program may want each sentence on one line.
    pub columns: Option<usize>,
}

impl Style {
    pub fn of_stdout() -> Style {
        let refuses = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_terminal = stdout().is_terminal();
        let columns = is_terminal.then(|| width_of(stdout()));
        Style { has_colours: is_terminal && !refuses, columns }
    }

    /// A text behind its label: on a terminal in lines of at most 80 columns, elsewhere in one line.
    pub fn line(self, label: &str, text: &str) -> String {
        if self.columns.is_some() { hanging(label, text) } else { format!("{label}{text}\n") }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.has_colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// The state in its colour; `text` is the state with spaces around it.
    pub fn state(self, state: Standing, text: &str) -> String {
        use Standing::{Blocked, Breaker, Cooling, Full, NotRun, Paused, Running, Slowed, Unreachable};
        match state {
            Paused | Breaker | NotRun | Unreachable | Blocked => self.paint("31", text),
            Cooling | Slowed | Full => self.paint("33", text),
            Running => text.to_owned(),
        }
    }
}

/// A count in at most four characters.
pub(super) fn brief(count: u64) -> String {
    const UNITS: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    if count < 10_000 {
        return count.to_string();
    }
    let (mut whole, mut tenths) = (count, 0);
    for unit in UNITS {
        (whole, tenths) = (whole / 1000, whole % 1000 / 100);
        if whole < 10 {
            return format!("{whole}.{tenths}{unit}");
        }
        if whole < 1000 {
            return format!("{whole}{unit}");
        }
    }
    format!("{whole}.{tenths}")
}

/// A pace in at most seven characters, in a second or in a minute.
pub(super) fn pace(per_second: f64) -> String {
    match per_second {
        pace if pace <= 0.0 => "0/s".to_owned(),
        pace if pace < 1.0 => format!("{:.1}/m", pace * 60.0),
        pace if pace < 100.0 => format!("{pace:.1}/s"),
        pace => format!("{pace:.0}/s"),
    }
}

/// The two greatest units of a span.
pub(in crate::cli) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A span in at most six characters.
pub(super) fn brief_span(of: Duration) -> String {
    let whole = span(of);
    if whole.len() <= 6 { whole } else { whole.split(' ').next().unwrap_or("?").to_owned() }
}

/// The text in at most so many characters.
pub(in crate::cli) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The text in at most so many characters, without its middle: names often differ at their ends.
pub(super) fn cut_inside(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let end: String = text.chars().skip(length - kept / 2).collect();
    let begin: String = text.chars().take(kept - kept / 2).collect();
    format!("{begin}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_takes_four_characters_at_most() {
        let shown = [0, 9_999, 10_000, 999_999, 1_000_000, 12_345_678, 1_234_567_890, u64::MAX].map(brief);
        assert_eq!(shown, ["0", "9999", "10k", "999k", "1.0M", "12M", "1.2G", "18E"]);
    }

    #[test]
    fn paces_and_spans_keep_their_columns() {
        assert_eq!([0.0, 0.163, 19.94, 1234.5].map(pace), ["0/s", "9.8/m", "19.9/s", "1234/s"]);
        let spans = [59, 125, 3_599, 45_000, 100_000, 10_000_000].map(|s| brief_span(Duration::from_secs(s)));
        assert_eq!(spans, ["59s", "2m 5s", "59m", "12h", "1d 3h", "115d"]);
    }

    #[test]
    fn a_style_without_colours_paints_nothing() {
        let plain = Style { has_colours: false, columns: None };
        assert_eq!(plain.state(Standing::Paused, "paused "), "paused ");
        let coloured = Style { has_colours: true, columns: None };
        assert_eq!(coloured.state(Standing::Paused, "x"), "\u{1b}[31mx\u{1b}[0m");
    }

    #[test]
    fn names_that_differ_at_their_ends_look_different_when_cut() {
        let [eu, us] = ["acme-refunds-eu", "acme-refunds-us"].map(|name| cut_inside(name, 11));
        assert_eq!([eu.as_str(), us.as_str()], ["acme-…ds-eu", "acme-…ds-us"]);
        assert_eq!(cut_inside("acme", 11), "acme");
        assert_eq!(cut_inside("äöüäöü", 4), "äö…ü");
    }
}
