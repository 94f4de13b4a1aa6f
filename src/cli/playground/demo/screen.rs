//! The output of the demo: on a terminal a table that redraws itself, elsewhere plain lines.
//!
//! The verdict is not drawn here.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use super::scene::CHANNELS;
use crate::lock::Lock;
use crate::refund::State;
use crate::store::ChannelCensus;
use playground::bank::Ledger;

#[derive(Debug)]
enum Kind {
    /// Redraws in place.
    Terminal,
    /// A line now and then.
    Plain,
    /// Prints nothing before the verdict.
    Silent,
}

/// The place where the demo is shown.
#[derive(Debug)]
pub(super) struct Screen {
    kind: Kind,
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    events: Vec<String>,
    drawn: bool,
    last_line: Option<Duration>,
    now: Duration,
}

/// How often plain lines are printed.
const EVERY: Duration = Duration::from_secs(4);
/// How many seconds the bars of the pace show.
const WIDTH: i64 = 30;

impl Screen {
    pub fn new(json: bool, plain: bool) -> Self {
        let kind = match (json, plain || !std::io::stdout().is_terminal()) {
            (true, _) => Kind::Silent,
            (false, true) => Kind::Plain,
            (false, false) => Kind::Terminal,
        };
        Screen { kind, shown: Mutex::default() }
    }

    fn shown(&self) -> std::sync::MutexGuard<'_, Shown> {
        self.shown.locked()
    }

    /// Shows an event.
    pub fn say(&self, text: &str) {
        let mut shown = self.shown();
        let line = format!("{:>5.1} s  {text}", shown.now.as_secs_f64());
        match self.kind {
            Kind::Silent => {}
            Kind::Terminal if shown.drawn => shown.events.push(line),
            Kind::Terminal | Kind::Plain => println!("{line}"),
        }
    }

    /// Begins to draw the table.
    pub fn begin(&self) {
        if matches!(self.kind, Kind::Terminal) {
            // Switches to the alternate screen and hides the cursor. `leave` brings the old content back.
            print!("\x1b[?1049h\x1b[?25l");
            self.shown().drawn = true;
        }
    }

    /// Gives the terminal back and prints the events on it.
    pub fn leave(&self) {
        let mut shown = self.shown();
        if shown.drawn {
            shown.drawn = false;
            println!("\x1b[?25h\x1b[?1049l{}", shown.events.join("\n"));
        }
    }

    pub fn draw(&self, now: Duration, ledger: &Ledger, census: &[ChannelCensus], nodes: &[&str]) {
        let mut shown = self.shown();
        shown.now = now;
        match self.kind {
            Kind::Silent => {}
            Kind::Plain => {
                if shown.last_line.is_none_or(|at| now >= at + EVERY) {
                    shown.last_line = Some(now);
                    for channel in &CHANNELS {
                        println!("{:>5.1} s  {}", now.as_secs_f64(), plain_line(channel, ledger, census));
                    }
                }
            }
            Kind::Terminal => {
                let page = page(now, ledger, census, nodes, &shown.events);
                print!("\x1b[H{}\x1b[J", page.replace('\n', "\x1b[K\n"));
                let _ = std::io::stdout().flush();
            }
        }
    }
}

fn counts(census: &[ChannelCensus], channel: &str, state: State) -> u64 {
    census.iter().find(|c| c.channel == channel).and_then(|c| c.counts.get(&state).copied()).unwrap_or(0)
}

/// Arrivals in each of the last seconds; the current second is the last entry.
fn pace(ledger: &Ledger, channel: &str) -> Vec<usize> {
    let last = ledger.all().last().map_or(0, |a| a.at_us / 1_000_000);
    let mut seconds = vec![0; usize::try_from(WIDTH).unwrap_or(0)];
    for arrival in ledger.arrivals(channel) {
        let ago = last - arrival.at_us / 1_000_000;
        if let Some(place) = usize::try_from(WIDTH - 1 - ago).ok().and_then(|at| seconds.get_mut(at)) {
            *place += 1;
        }
    }
    seconds
}

fn plain_line(channel: &super::scene::DemoChannel, ledger: &Ledger, census: &[ChannelCensus]) -> String {
    let seconds = pace(ledger, channel.name);
    let last = seconds[seconds.len() - 2];
    let worst = ledger.worst_aligned_window(channel.name, Duration::from_secs(1)).map_or(0, |w| w.count);
    format!(
        "{:<10} {:<12} waiting {:>5}  arrived {:>5}  last second {:>4}  worst second {}",
        channel.name,
        channel.about,
        counts(census, channel.name, State::Ready),
        ledger.arrivals(channel.name).count(),
        last,
        channel.permits.map_or_else(|| worst.to_string(), |n| format!("{worst} of {n}")),
    )
}

fn page(
    now: Duration,
    ledger: &Ledger,
    census: &[ChannelCensus],
    nodes: &[&str],
    events: &[String],
) -> String {
    let mut page = String::new();
    let _ = writeln!(
        page,
        "\x1b[1mrefundd demo\x1b[0m   {:>4.0} s   nodes: {}\n",
        now.as_secs_f64(),
        nodes.join(", ")
    );
    let _ = writeln!(
        page,
        "\x1b[2m{:<10} {:<12} {:>8} {:>8} {:>8} {:>7}  {:>9}  arrivals in each second, at the bank\x1b[0m",
        "channel", "limit", "waiting", "sending", "arrived", "review", "worst"
    );
    for channel in &CHANNELS {
        let worst = ledger.worst_aligned_window(channel.name, Duration::from_secs(1)).map_or(0, |w| w.count);
        let seconds = pace(ledger, channel.name);
        let top =
            channel.permits.map_or_else(|| seconds.iter().copied().max().unwrap_or(1), |n| n as usize).max(1);
        let over = channel.permits.is_some_and(|n| worst > n as usize);
        let _ = writeln!(
            page,
            "{:<10} {:<12} {:>8} {:>8} {:>8} {:>7}  {}{:>9}\x1b[0m  {}",
            channel.name,
            channel.about,
            counts(census, channel.name, State::Ready),
            counts(census, channel.name, State::Sending),
            ledger.arrivals(channel.name).count(),
            counts(census, channel.name, State::Review) + counts(census, channel.name, State::Unknown),
            if over { "\x1b[31m" } else { "\x1b[32m" },
            channel.permits.map_or_else(|| worst.to_string(), |n| format!("{worst} of {n}")),
            bars(&seconds, top),
        );
    }
    let _ = writeln!(page);
    for event in events {
        let _ = writeln!(page, "{event}");
    }
    page
}

/// One bar for each second. A full bar is a window that was used up; `!` is a window above the limit.
fn bars(seconds: &[usize], top: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    seconds.iter().map(|n| if *n > top { '!' } else { BARS[(n * 8).div_ceil(top).min(8)] }).collect()
}
