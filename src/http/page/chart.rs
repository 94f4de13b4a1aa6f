//! Bar charts of the last minutes, drawn as SVG.
//!
//! The numbers at the axes and the legend are text beside the picture, so that they stay readable at every width. Each chart
//! of many bars is drawn twice, and the style shows one of the two: all minutes on a wide screen, and the last ones on a narrow
//! one. Each picture says how long it is.

use std::fmt::Write;
use std::time::Duration;

use maud::{Markup, html};

use super::parts::{clock, rounded, span};
use super::watch::moment;

/// Bars of one colour, which stand on the bars before them.
#[derive(Debug)]
pub(super) struct Series {
    pub name: String,
    pub class: &'static str,
    /// One number for each bar.
    pub bars: Vec<u64>,
}

/// A horizontal line.
#[derive(Debug)]
pub(super) struct Line {
    pub name: String,
    pub class: &'static str,
    pub at: f64,
}

/// A time in which the channel was to send nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shaded {
    pub name: &'static str,
    pub class: &'static str,
    /// Seconds since 1970.
    pub from: i64,
    pub until: i64,
}

/// Some minutes of one channel.
#[derive(Debug)]
pub(super) struct Chart {
    /// The chart in one sentence, for people who do not see it.
    pub label: String,
    /// The unit of the numbers, such as `permits a second`.
    pub unit: String,
    /// The first second, since 1970.
    pub from: i64,
    pub seconds_per_bar: i64,
    pub series: Vec<Series>,
    pub lines: Vec<Line>,
    pub spans: Vec<Shaded>,
}

const HEIGHT: f64 = 100.0;
/// The most bars that a narrow screen shows: about one in each pixel.
const MOST_NARROW: usize = 300;
/// Between two parts of a bar: about a pixel.
const GAP: f64 = 0.6;

impl Chart {
    fn bars(&self) -> usize {
        self.series.iter().map(|series| series.bars.len()).max().unwrap_or(0)
    }

    fn highest(&self) -> f64 {
        let sum =
            |nth| self.series.iter().map(|series| series.bars.get(nth).copied().unwrap_or(0)).sum::<u64>();
        let highest = (0..self.bars()).map(sum).max().unwrap_or(0) as f64;
        self.lines.iter().map(|line| line.at).fold(highest, f64::max).max(1.0)
    }

    pub(super) fn draw(&self) -> Markup {
        let (bars, highest) = (self.bars(), self.highest());
        let narrow = bars.saturating_sub(MOST_NARROW);
        // A chart of few bars is the same on every screen.
        let pictures: &[(&str, usize)] =
            if narrow == 0 { &[("all", 0)] } else { &[("wide", 0), ("narrow", narrow)] };
        html! {
            figure.chart {
                figcaption {
                    ul.legend {
                        @for series in &self.series { li { span class={ "key " (series.class) } {} (series.name) } }
                        @for line in &self.lines { li { span class={ "key line " (line.class) } {} (line.name) } }
                        @for span in &self.spans {
                            li { span class={ "key " (span.class) } {} (span.name) " " (clock(moment(span.from))) " to " (clock(moment(span.until))) }
                        }
                    }
                    @for (class, first) in pictures {
                        p class={ "small " (class) } {
                            (self.unit) ", the last " (self.minutes(bars - first))
                            @if *first > 0 { "; a wide screen shows " (self.minutes(bars)) }
                        }
                    }
                }
                div.plot {
                    div.axis aria-hidden="true" { span { (rounded(highest)) } span { (rounded(highest / 2.0)) } span { "0" } }
                    @for (class, first) in pictures { (self.picture(class, *first, highest)) }
                }
                @for (class, first) in pictures {
                    div class={ "times " (class) } {
                        @for bar in [*first, first + (bars - first) / 2, bars] { (clock(moment(self.second(bar)))) }
                    }
                }
            }
        }
    }

    /// The bars from the first one on, before the grid and the lines.
    fn picture(&self, class: &str, first: usize, highest: f64) -> Markup {
        let bars = self.bars();
        let width = (bars - first).max(1);
        let x = |second: i64| {
            let bar = (second - self.second(first)) as f64 / self.seconds_per_bar as f64;
            bar.clamp(0.0, width as f64)
        };
        let (from, until) = (self.second(first), self.second(bars));
        let label = match first {
            0 => self.label.clone(),
            first => format!("The last {} of this chart. {}", self.minutes(bars - first), self.label),
        };
        html! {
            svg class=(class) viewBox=(format!("0 0 {width} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
                @for span in self.spans.iter().filter(|span| span.until > from) {
                    @let (from, until) = (x(span.from), x(span.until));
                    rect class=(span.class) x=(format!("{from:.2}")) width=(format!("{:.2}", until - from)) height=(HEIGHT) {}
                }
                @for (series, path) in self.series.iter().zip(self.paths(first, highest)) {
                    path class=(series.class) d=(path) {}
                }
                line.grid x1="0" x2=(width) y1=(HEIGHT / 2.0) y2=(HEIGHT / 2.0) vector-effect="non-scaling-stroke" {}
                @for minute in (from / 60 + 1)..=(until - 1) / 60 {
                    @let x = format!("{:.2}", x(minute * 60));
                    line.grid x1=(x) x2=(x) y1="0" y2=(HEIGHT) vector-effect="non-scaling-stroke" {}
                }
                @for line in &self.lines {
                    @let y = format!("{:.2}", y_of(line.at, highest));
                    line class=(line.class) x1="0" x2=(width) y1=(y) y2=(y) vector-effect="non-scaling-stroke" {}
                }
            }
        }
    }

    fn second(&self, bar: usize) -> i64 {
        self.from + i64::try_from(bar).unwrap_or(0) * self.seconds_per_bar
    }

    /// The length of so many bars, in words.
    fn minutes(&self, bars: usize) -> String {
        span(Duration::from_secs(self.second(bars).abs_diff(self.from)))
    }

    /// The path of each series from a bar on.
    fn paths(&self, first: usize, highest: f64) -> Vec<String> {
        let mut below = vec![0_u64; self.bars()];
        let mut paths = Vec::with_capacity(self.series.len());
        for series in &self.series {
            let mut path = String::new();
            for (nth, (below, own)) in below.iter_mut().zip(&series.bars).enumerate() {
                let (mut from, to) = (y_of(*below as f64, highest), y_of((*below + own) as f64, highest));
                // A gap tells two parts of a bar apart, also for people who do not see their colours.
                if *below > 0 && from - to > 2.0 * GAP {
                    from -= GAP;
                }
                if *own > 0 && nth >= first {
                    let _ = write!(path, "M{} {from:.1}V{to:.1}h1V{from:.1}z", nth - first);
                }
                *below += own;
            }
            paths.push(path);
        }
        paths
    }
}

/// Where a number stands. A line at the highest number stays inside the picture.
fn y_of(number: f64, highest: f64) -> f64 {
    HEIGHT - number / highest * (HEIGHT - 2.0)
}

/// The sums of consecutive seconds. `seconds` are pairs of a second and its number; those outside the chart do not count.
pub(super) fn bars(
    seconds: impl Iterator<Item = (i64, u64)>,
    from: i64,
    until: i64,
    seconds_per_bar: i64,
) -> Vec<u64> {
    let count = usize::try_from((until - from + seconds_per_bar - 1) / seconds_per_bar).unwrap_or(0);
    let mut bars = vec![0; count];
    for (second, number) in seconds.filter(|(second, _)| (from..until).contains(second)) {
        if let Some(bar) =
            usize::try_from((second - from) / seconds_per_bar).ok().and_then(|nth| bars.get_mut(nth))
        {
            *bar += number;
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_summed_into_bars_and_others_do_not_count() {
        let seconds = [(99, 7), (100, 1), (101, 2), (103, 4), (104, 8), (105, 7)];
        assert_eq!(bars(seconds.into_iter(), 100, 105, 1), [1, 2, 0, 4, 8]);
        assert_eq!(bars(seconds.into_iter(), 100, 105, 2), [3, 4, 8]);
    }

    fn chart(series: Vec<Series>) -> Chart {
        let lines = vec![Line { name: "limit".to_owned(), class: "limit", at: 4.0 }];
        let (label, unit) = ("l".to_owned(), "u".to_owned());
        Chart { label, unit, from: 60, seconds_per_bar: 1, series, lines, spans: Vec::new() }
    }

    fn series(bars: &[u64]) -> Series {
        Series { name: "n".to_owned(), class: "c", bars: bars.to_vec() }
    }

    #[test]
    fn a_bar_stands_on_the_bar_before_it_with_a_gap_and_the_line_is_in_the_picture() {
        let drawn = chart(vec![series(&[1, 0]), series(&[3, 0])]).draw().into_string();
        assert!(drawn.contains("M0 100.0V75.5h1V100.0z") && drawn.contains("M0 74.9V2.0h1V74.9z"), "{drawn}");
        assert!(drawn.contains("y1=\"2.00\""), "{drawn}");
    }

    #[test]
    fn a_picture_says_how_many_minutes_it_shows_at_each_width() {
        let drawn = chart(vec![series(&[1; 900])]).draw().into_string();
        let (wide, narrow) = drawn.split_once("<svg class=\"narrow\"").unwrap();
        for (part, words) in [
            (wide, "<p class=\"small wide\">u, the last 15\u{a0}min</p>"),
            (wide, "<p class=\"small narrow\">u, the last 5\u{a0}min; a wide screen shows 15\u{a0}min</p>"),
            (wide, "viewBox=\"0 0 900 100\""),
            (narrow, "viewBox=\"0 0 300 100\""),
            (narrow, "aria-label=\"The last 5\u{a0}min of this chart. l\""),
        ] {
            assert!(part.contains(words), "{words}: {drawn}");
        }
        // A line in the middle, and one at each minute between the ends.
        assert_eq!(
            (wide.matches("line class=\"grid\"").count(), narrow.matches("line class=\"grid\"").count()),
            (15, 5)
        );
        let few = chart(vec![series(&[1; 15])]).draw().into_string();
        assert!(!few.contains("narrow") && few.contains("viewBox=\"0 0 15 100\""), "{few}");
    }

    #[test]
    fn a_span_is_shaded_as_far_as_the_picture_goes_and_its_times_are_written() {
        let spans = vec![Shaded { name: "paused", class: "paused", from: 0, until: 70 }];
        let drawn = Chart { spans, ..chart(vec![series(&[1; 20])]) }.draw().into_string();
        assert!(drawn.contains("<rect class=\"paused\" x=\"0.00\" width=\"10.00\""), "{drawn}");
        assert!(drawn.contains("paused <time") && drawn.contains("00:01:10 UTC"), "{drawn}");
    }
}
