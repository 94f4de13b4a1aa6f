//! Small parts of pages: times, lengths of time, counts, rates and amounts, each with its unit.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};

use crate::refund::State;
pub(super) use crate::refund::thousands as whole;

/// A moment in UTC. The script puts the reader's own time before it.
pub(super) fn time(at: Timestamp) -> Markup {
    html! {
        time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()) { (at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()) }
    }
}

/// A moment in UTC with its milliseconds, for the order of things that happened in one second.
pub(super) fn exact(at: Timestamp) -> Markup {
    html! {
        time datetime=(at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()) { (at.strftime("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()) }
    }
}

/// The time of day in UTC, where the day is clear.
pub(super) fn clock(at: Timestamp) -> Markup {
    html! {
        time.clock datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()) { (at.strftime("%H:%M:%S UTC").to_string()) }
    }
}

/// A length of time by its two greatest units. A number and its unit stay on one line.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |great: u64, name: &str, small: u64, other: &str| match small {
        0 => format!("{great}\u{a0}{name}"),
        small => format!("{great}\u{a0}{name} {small}\u{a0}{other}"),
    };
    match seconds {
        0 => format!("{}\u{a0}s", rounded(span.as_secs_f64())),
        1..60 => format!("{seconds}\u{a0}s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// A count with its noun.
pub(super) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", whole(number))
}

/// A number with at most two digits behind the point.
pub(super) fn rounded(number: f64) -> String {
    let text = if number >= 100.0 { format!("{number:.0}") } else { format!("{number:.2}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The unit of time in which people read a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PerUnit {
    pub name: &'static str,
    seconds: f64,
}

impl PerUnit {
    /// The shortest unit in which this rate is at least one.
    pub(super) fn of(per_second: f64) -> PerUnit {
        let units = [("second", 1.0), ("minute", 60.0), ("hour", 3600.0), ("day", 86_400.0)];
        let fits = units.iter().find(|(_, seconds)| per_second * seconds >= 0.999);
        let (name, seconds) = *fits.unwrap_or(&units[3]);
        PerUnit { name, seconds }
    }

    pub(super) fn rate(self, per_second: f64) -> String {
        rounded(per_second * self.seconds)
    }
}

/// How good or bad something is; it decides the colour, which never stands without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Plain,
    Warning,
    Bad,
}

impl Tone {
    pub(super) fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Plain => "plain",
            Tone::Warning => "warning",
            Tone::Bad => "bad",
        }
    }
}

/// A word in a coloured frame.
pub(super) fn badge(tone: Tone, word: &str) -> Markup {
    html! { span class={ "badge " (tone.class()) } { (word) } }
}

/// The state of a refund.
pub(super) fn state(state: State) -> Markup {
    let tone = match state {
        State::Succeeded => Tone::Good,
        State::Ready | State::Sending | State::Accepted | State::Cancelled => Tone::Plain,
        State::Unknown => Tone::Warning,
        State::Review | State::Failed => Tone::Bad,
    };
    badge(tone, state.as_str())
}

/// The reason of a refund: the words for people first, and behind them the code that programs read.
pub(super) fn reason(reason: &str) -> Markup {
    let is_code =
        |code: &str| !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    html! {
        @match reason.split_once(": ").filter(|(code, words)| is_code(code) && !words.is_empty()) {
            Some((code, words)) => { (foreign(words)) " " code.at { (code) } }
            None => (foreign(reason)),
        }
    }
}

/// The line about what is new in a list that the page leaves as it is, because people choose in it. The script fills it in.
pub(super) fn news(noun: &str) -> Markup {
    html! { p #news.notice role="status" data-noun=(noun) hidden {} }
}

/// Nothing to show: a dash for the eye, the word for a screen reader.
pub(super) fn none(word: &str) -> Markup {
    html! { span.none { span aria-hidden="true" { "–" } span.hidden { (word) } } }
}

/// A text that came from outside. Its direction does not change that of the texts beside it.
pub(super) fn foreign(text: &str) -> Markup {
    html! { bdi { (text) } }
}

/// A text that came from outside, in which moments stand as `2026-03-29T14:00:00Z`, also as `until=2026-03-29T14:00:00Z`. They
/// become times as everywhere on the page.
pub(super) fn with_times(text: &str) -> Markup {
    html! {
        bdi {
            @for word in text.split_inclusive(' ') {
                @let (key, rest) = word.split_at(word.find('=').map_or(0, |at| at + 1));
                @let moment = rest.trim_end_matches([' ', ':', ',', ';', '.']);
                @match moment.parse().ok().filter(|_| moment.contains('T')) {
                    Some(at) => { (key) (time(at)) (rest[moment.len()..]) }
                    None => (word),
                }
            }
        }
    }
}

/// The head of a table. On a narrow screen the style makes a card of each row; the roles keep it a table for screen readers.
pub(super) fn head(caption: &str, names: &[&str]) -> Markup {
    html! {
        caption.hidden { (caption) }
        thead role="rowgroup" {
            tr role="row" { @for name in names { th scope="col" role="columnheader" { (name) } } }
        }
    }
}

/// A cell of a table, in the column with this name.
pub(super) fn cell(name: &str, content: &Markup) -> Markup {
    html! { td role="cell" data-name=(name) { div { (content) } } }
}

/// A bar that shows a share of a whole. The number stands beside it, so it says nothing to a screen reader.
pub(super) fn bar(share: f64) -> Markup {
    let width = format!("{:.1}", share.clamp(0.0, 1.0) * 100.0);
    html! {
        svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect.whole width="100" height="6" {}
            rect.share width=(width) height="6" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_with_their_units_as_people_write_them() {
        for (millis, text) in [
            (400, "0.4 s"),
            (42_000, "42 s"),
            (725_000, "12 min 5 s"),
            (7_980_000, "2 h 13 min"),
            (7_200_000, "2 h"),
            (270_000_000, "3 d 3 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)).replace('\u{a0}', " "), text);
        }
        assert_eq!((whole(7), whole(1_234_567)), ("7".to_owned(), "1,234,567".to_owned()));
        assert_eq!((count(1, "refund"), count(0, "refund")), ("1 refund".to_owned(), "0 refunds".to_owned()));
    }

    #[test]
    fn moments_in_a_text_become_times_and_other_words_stay() {
        let text = "paused at 2026-03-29T14:00:00Z: until=2026-03-29T16:00:00.5+02:00 <b> T5 2026";
        let shown = with_times(text).into_string();
        let time = |at: &str, text: &str| format!("<time datetime=\"{at}\">{text}</time>");
        let first = time("2026-03-29T14:00:00Z", "2026-03-29 14:00:00 UTC");
        let second = first.clone();
        let expected = format!("<bdi>paused at {first}: until={second} &lt;b&gt; T5 2026</bdi>");
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_reason_has_its_words_before_its_code() {
        let shown = reason("bank_trouble: HTTP 500, error \"<b>\"").into_string();
        assert_eq!(
            shown,
            "<bdi>HTTP 500, error &quot;&lt;b&gt;&quot;</bdi> <code class=\"at\">bank_trouble</code>"
        );
        for whole in ["the bank said: no", "lease_lapsed", "Bad: x", "code: "] {
            assert_eq!(reason(whole).into_string(), format!("<bdi>{whole}</bdi>"));
        }
    }

    #[test]
    fn the_times_of_a_story_tell_two_moments_of_one_second_apart() {
        let at = |text: &str| exact(text.parse().unwrap()).into_string();
        assert_eq!(
            at("2026-03-29T14:00:00.0421Z"),
            "<time datetime=\"2026-03-29T14:00:00.042Z\">2026-03-29 14:00:00.042 UTC</time>"
        );
        assert_ne!(at("2026-03-29T14:00:00.042Z"), at("2026-03-29T14:00:00.043Z"));
    }

    #[test]
    fn a_rate_is_read_in_the_shortest_unit_in_which_it_is_one() {
        for (per_second, unit, text) in [
            (20.0, "second", "20"),
            (1.0, "second", "1"),
            (0.5, "minute", "30"),
            (1.0 / 86_400.0, "day", "1"),
        ] {
            let of = PerUnit::of(per_second);
            assert_eq!((of.name, of.rate(per_second)), (unit, text.to_owned()));
        }
        assert_eq!(PerUnit::of(20.0).rate(18.416), "18.42");
    }
}
