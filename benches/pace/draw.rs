//! Draws `docs/pace.svg`: a strip of arrivals for each limiter, and bars of the fullest rolling second against the
//! limit.
//!
//! The picture has its own background and colours for light and dark mode, so it is readable on any page.

use std::fmt::Write;

use playground::rule::TestAlgorithm;

use super::case::{Case, Kind};
use super::judge::Measured;

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 24.0;
/// The left edge of strips and bars, right of the names.
const LEFT: f64 = 150.0;
const STRIP_S: f64 = 4.0;
const STRIP_WIDTH: f64 = 660.0;
const STRIP_ROW: f64 = 46.0;
const STRIP_HEIGHT: f64 = 30.0;
const BAR_ROW: f64 = 40.0;
const BAR_HEIGHT: f64 = 11.0;
const PANELS: [u32; 3] = [1, 50, 1_000];
const PANEL: f64 = 262.0;
/// The width of a bar with the ratio 1.
const ONE: f64 = 96.0;

const STYLE: &str = "
  .ground { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2328; font: 13px system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif }
  .head { font-size: 15px; font-weight: 600 }
  .small { font-size: 11.5px; fill: #59636e }
  .end { text-anchor: end }
  .tick { stroke: #0550ae; stroke-width: 1; fill: none }
  .edge { stroke: #8c959f; stroke-width: 1; stroke-dasharray: 2 3; fill: none }
  .within { fill: #d7ecdc } .over { fill: #ffdfc2 }
  .few { fill: #0550ae } .many { fill: #6cb0f5 }
  .few.high { fill: #b04a00 } .many.high { fill: #f0a35e }
  .limit { stroke: #1f2328; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc } .small { fill: #9ea7b3 }
    .tick { stroke: #79c0ff } .edge { stroke: #656c76 }
    .within { fill: #163d24 } .over { fill: #5a3108 }
    .few { fill: #58a6ff } .many { fill: #1f5d9e }
    .few.high { fill: #f0883e } .many.high { fill: #9b5a1e }
    .limit { stroke: #f0f6fc }
  }
";

/// The whole picture as SVG.
pub fn picture(all: &[Measured]) -> String {
    let mut svg = String::new();
    let strips: Vec<&Measured> =
        Kind::all().filter_map(|kind| find(all, Case { kind, permits: 50, nodes: 3 })).collect();
    let top = MARGIN + 16.0;
    text(&mut svg, "head", MARGIN, top, "Arrivals at the bank: 50 a second, backlog waiting, three nodes");
    text(
        &mut svg,
        "small",
        MARGIN,
        top + 19.0,
        "Four seconds around the fullest rolling second, which is shaded; dashed: the bank's whole seconds. \
         Each line is a first byte.",
    );
    let mut y = top + 36.0;
    for one in &strips {
        strip(&mut svg, one, y);
        y += STRIP_ROW;
    }
    y += 34.0;
    text(&mut svg, "head", MARGIN, y, "Fullest rolling second ÷ limit");
    legend(&mut svg, y);
    y += 26.0;
    for (panel, permits) in PANELS.into_iter().enumerate() {
        let x = LEFT + panel as f64 * PANEL;
        let title =
            if permits == 1_000 { "1,000 a second".to_owned() } else { format!("{permits} a second") };
        text(&mut svg, "small", x, y, &title);
    }
    y += 8.0;
    let bars_top = y;
    for kind in Kind::all() {
        if all.iter().any(|one| one.case.kind == kind) {
            text(&mut svg, "end", LEFT - 12.0, y + BAR_ROW / 2.0 + 4.0, label(kind));
            for (panel, permits) in PANELS.into_iter().enumerate() {
                bars(&mut svg, all, kind, permits, LEFT + panel as f64 * PANEL, y);
            }
            y += BAR_ROW;
        }
    }
    for panel in 0..PANELS.len() {
        let x = LEFT + panel as f64 * PANEL + ONE;
        let _ = writeln!(svg, r#"<path class="limit" d="M{x:.1} {bars_top:.1}V{y:.1}"/>"#);
    }
    let height = y + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\" \
         aria-label=\"Arrivals at the bank under each limiter, and their fullest rolling second against the limit\">\n\
         <style>{STYLE}</style>\n\
         <rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{:.0}\" rx=\"8\"/>\n{svg}</svg>\n",
        WIDTH - 1.0,
        height - 1.0,
    )
}

fn find(all: &[Measured], case: Case) -> Option<&Measured> {
    all.iter().find(|one| one.case == case)
}

/// The name of a limiter: refundd's names from the configuration, and the peer's own name.
fn label(kind: Kind) -> &'static str {
    kind.algorithm().map_or("BullMQ limiter", TestAlgorithm::name)
}

fn strip(svg: &mut String, one: &Measured, y: f64) {
    let second = STRIP_WIDTH / STRIP_S;
    let from_us = one.last_worst_from_us - 1_500_000;
    let place = |at_us: i64| LEFT + (at_us - from_us) as f64 / 1e6 * second;
    let class = if one.worst_rolling_span > one.case.permits as usize { "over" } else { "within" };
    let _ = writeln!(
        svg,
        r#"<rect class="{class}" x="{:.1}" y="{:.1}" width="{second:.1}" height="{:.1}"/>"#,
        place(one.last_worst_from_us),
        y - 3.0,
        STRIP_HEIGHT + 6.0,
    );
    let first_edge = from_us - from_us.rem_euclid(1_000_000) + 1_000_000;
    for edge in (0..4).map(|n| first_edge + n * 1_000_000) {
        let _ = writeln!(
            svg,
            r#"<path class="edge" d="M{:.1} {:.1}v{:.1}"/>"#,
            place(edge),
            y - 3.0,
            STRIP_HEIGHT + 6.0
        );
    }
    let until_us = from_us + 4_000_000;
    let mut ticks = String::new();
    for at_us in one.arrivals_us.iter().filter(|at| (from_us..until_us).contains(*at)) {
        let _ = write!(ticks, "M{:.1} {y:.1}v{STRIP_HEIGHT}", place(*at_us));
    }
    let _ = writeln!(svg, r#"<path class="tick" d="{ticks}"/>"#);
    text(svg, "end", LEFT - 12.0, y + STRIP_HEIGHT / 2.0 + 4.0, label(one.case.kind));
    let caption = format!("{} in the fullest", one.worst_rolling_span);
    text(svg, "", LEFT + STRIP_WIDTH + 14.0, y + STRIP_HEIGHT / 2.0 + 4.0, &caption);
}

fn legend(svg: &mut String, y: f64) {
    for (class, x, words) in [("few", 560.0, "3 nodes"), ("many", 650.0, "20 nodes")] {
        let _ =
            writeln!(svg, r#"<rect class="{class}" x="{x}" y="{:.1}" width="16" height="10"/>"#, y - 10.0);
        text(svg, "small", x + 22.0, y, words);
    }
    let _ = writeln!(svg, r#"<path class="limit" d="M748 {:.1}v14"/>"#, y - 12.0);
    text(svg, "small", 756.0, y, "the limit");
}

/// The bars of one limiter at one rate: 3 nodes above 20 nodes.
fn bars(svg: &mut String, all: &[Measured], kind: Kind, permits: u32, x: f64, y: f64) {
    for (row, (class, nodes)) in [("few", 3), ("many", 20)].into_iter().enumerate() {
        let Some(one) = find(all, Case { kind, permits, nodes }) else { continue };
        let ratio = one.worst_rolling_span as f64 / f64::from(permits);
        let high = if ratio > 1.0 { " high" } else { "" };
        let top = y + 6.0 + row as f64 * (BAR_HEIGHT + 3.0);
        let width = ratio * ONE;
        let _ = writeln!(
            svg,
            r#"<rect class="{class}{high}" x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{BAR_HEIGHT}"/>"#
        );
        text(svg, "small", x + width.max(ONE) + 7.0, top + BAR_HEIGHT - 1.0, &format!("{ratio:.3}"));
    }
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, words: &str) {
    let _ = writeln!(svg, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{words}</text>"#);
}
