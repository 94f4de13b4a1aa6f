//! Bar charts of the last minutes, drawn as SVG.
//!
//! The numbers at the axes and the legend are text beside the picture, so that they stay readable at every width. Each chart
//! is drawn twice, and the style shows one of the two: all minutes on a wide screen, and the last third of them on a narrow one.

use std::fmt::Write;

use maud::{Markup, html};

use super::parts::{clock, rounded};
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
}

const HEIGHT: f64 = 100.0;
/// A narrow screen shows one part in so many.
const NARROW: usize = 3;

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
        let narrow = bars.saturating_sub(bars / NARROW);
        let second = |bar: usize| self.from + i64::try_from(bar).unwrap_or(0) * self.seconds_per_bar;
        html! {
            figure.chart {
                figcaption {
                    ul.legend {
                        @for series in &self.series { li { span class={ "key " (series.class) } {} (series.name) } }
                        @for line in &self.lines { li { span class={ "key line " (line.class) } {} (line.name) } }
                    }
                }
                div.plot {
                    div.axis aria-hidden="true" { span { (rounded(highest)) } span.unit { (self.unit) } span { "0" } }
                    @for (class, first) in [("wide", 0), ("narrow", narrow)] {
                        svg class=(class) viewBox=(format!("0 0 {} {HEIGHT}", (bars - first).max(1))) preserveAspectRatio="none"
                            role="img" aria-label=(self.label) {
                            @for (series, path) in self.series.iter().zip(self.paths(first, highest)) {
                                path class=(series.class) d=(path) {}
                            }
                            @for line in &self.lines {
                                @let y = format!("{:.2}", y_of(line.at, highest));
                                line class=(line.class) x1="0" x2=((bars - first).max(1)) y1=(y) y2=(y) vector-effect="non-scaling-stroke" {}
                            }
                        }
                    }
                }
                @for (class, first) in [("times wide", 0), ("times narrow", narrow)] {
                    div class=(class) {
                        @for bar in [first, first + (bars - first) / 2, bars] { (clock(moment(second(bar)))) }
                    }
                }
            }
        }
    }

    /// The path of each series from a bar on.
    fn paths(&self, first: usize, highest: f64) -> Vec<String> {
        let mut below = vec![0_u64; self.bars()];
        let mut paths = Vec::with_capacity(self.series.len());
        for series in &self.series {
            let mut path = String::new();
            for (nth, (below, own)) in below.iter_mut().zip(&series.bars).enumerate() {
                let (from, to) = (y_of(*below as f64, highest), y_of((*below + own) as f64, highest));
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

    #[test]
    fn a_bar_stands_on_the_bar_before_it_and_the_line_is_in_the_picture() {
        let series = |bars: &[u64]| Series { name: "n".to_owned(), class: "c", bars: bars.to_vec() };
        let chart = Chart {
            label: "l".to_owned(),
            unit: "u".to_owned(),
            from: 0,
            seconds_per_bar: 1,
            series: vec![series(&[1, 0]), series(&[3, 0])],
            lines: vec![Line { name: "limit".to_owned(), class: "limit", at: 4.0 }],
        };
        let drawn = chart.draw().into_string();
        assert!(drawn.contains("M0 100.0V75.5h1V100.0z") && drawn.contains("M0 75.5V2.0h1V75.5z"), "{drawn}");
        assert!(drawn.contains("y1=\"2.00\""), "{drawn}");
    }
}
