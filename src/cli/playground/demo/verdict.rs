//! The verdict: what the bank's ledger says about every promise. Pure.
//!
//! The module takes only the states from refundd's own records.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::scene::CHANNELS;
use crate::refund::State;
use playground::bank::Ledger;

/// The result of the demo, by the bank's ledger.
#[derive(Debug, Serialize)]
pub(super) struct DemoResult {
    pub seconds: f64,
    /// Refunds acknowledged by a COMMIT or a 2xx.
    pub saved: usize,
    /// Requests that reached the bank.
    pub sent: usize,
    pub paid: usize,
    /// Refunds that were acknowledged, and neither paid nor refused nor shown to a person.
    pub lost: usize,
    /// Refunds paid more than once.
    pub doubled: usize,
    /// Refunds sent again although the first send may have worked.
    pub repeated: usize,
    /// Refunds shown to a person, because the node that sent them died before it read the answer.
    pub shown: usize,
    /// The refunds in `shown` that the bank paid.
    pub shown_and_paid: usize,
    /// Rows that differ from the bank's ledger.
    pub disagreeing: usize,
    pub channels: Vec<ChannelCount>,
    /// Every refund came to an end in time, and the nodes stopped cleanly.
    pub finished: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct ChannelCount {
    pub channel: &'static str,
    pub limit_per_second: Option<u32>,
    pub sent: usize,
    pub worst_second: usize,
    /// The used share of the permits between the first arrival and the last.
    pub share_used: Option<f64>,
    pub per_second: Option<f64>,
}

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn judge(
    ledger: &Ledger,
    saved: &[String],
    rows: &HashMap<String, State>,
    finished: bool,
    took: Duration,
) -> DemoResult {
    let unpaid: HashSet<&str> = ledger.lost(saved.iter().map(String::as_str)).into_iter().collect();
    let state = |name: &String| rows.get(name).copied();
    let is_shown = |name: &String| matches!(state(name), Some(State::Review | State::Unknown));
    let shown: Vec<&String> = saved.iter().filter(|name| is_shown(name)).collect();
    let settled_otherwise = |name: &String| matches!(state(name), Some(State::Failed | State::Cancelled));
    let channels = CHANNELS.iter().map(|channel| ChannelCount {
        channel: channel.name,
        limit_per_second: channel.permits,
        sent: ledger.arrivals(channel.name).count(),
        worst_second: ledger.worst_aligned_window(channel.name, SECOND).map_or(0, |w| w.count),
        share_used: channel
            .permits
            .and_then(|permits| ledger.usage(channel.name, SECOND, permits))
            .map(|u| u.share),
        per_second: ledger.rate(channel.name),
    });
    // A 429 executed nothing, and the bank asks for another send. So a send after a 429 is no repeat.
    let executed: HashSet<&str> = ledger.all().iter().filter(|a| a.paid).map(|a| &*a.refund_ref).collect();
    let repeated = ledger
        .repeated()
        .into_iter()
        .filter(|(name, times)| executed.contains(name) && *times > 1 + slow_down_answers(ledger, name));
    DemoResult {
        seconds: took.as_secs_f64(),
        saved: saved.len(),
        sent: ledger.all().len(),
        paid: ledger.paid_by_key().values().sum(),
        lost: saved
            .iter()
            .filter(|n| unpaid.contains(n.as_str()) && !is_shown(n) && !settled_otherwise(n))
            .count(),
        doubled: ledger.doubled().len(),
        repeated: repeated.count(),
        shown: shown.len(),
        shown_and_paid: shown.iter().filter(|name| !unpaid.contains(name.as_str())).count(),
        disagreeing: saved
            .iter()
            .filter(|name| match state(name) {
                Some(State::Succeeded) => unpaid.contains(name.as_str()),
                Some(State::Failed | State::Cancelled) => !unpaid.contains(name.as_str()),
                Some(State::Review | State::Unknown | State::Ready | State::Sending | State::Accepted) => {
                    false
                }
                None => true,
            })
            .count(),
        channels: channels.collect(),
        finished,
    }
}

fn slow_down_answers(ledger: &Ledger, refund_ref: &str) -> usize {
    ledger.all().iter().filter(|a| &*a.refund_ref == refund_ref && a.answered == Some(429)).count()
}

impl DemoResult {
    /// Whether every promise was kept.
    pub fn kept(&self) -> bool {
        let within = self
            .channels
            .iter()
            .all(|channel| channel.limit_per_second.is_none_or(|n| channel.worst_second <= n as usize));
        within
            && self.finished
            && self.lost == 0
            && self.doubled == 0
            && self.repeated == 0
            && self.disagreeing == 0
    }
}

impl fmt::Display for DemoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |ok: bool| if ok { "kept  " } else { "BROKEN" };
        writeln!(f, "\nThe bank's verdict, by its own ledger, after {:.0} s\n", self.seconds)?;
        writeln!(
            f,
            "  {:<11} {:>10} {:>8} {:>14} {:>12} {:>11}",
            "channel", "limit", "arrived", "worst second", "share used", "pace"
        )?;
        for channel in &self.channels {
            writeln!(
                f,
                "  {:<11} {:>10} {:>8} {:>14} {:>12} {:>11}",
                channel.channel,
                channel.limit_per_second.map_or("unlimited".to_owned(), |n| format!("{n}/s")),
                channel.sent,
                channel
                    .limit_per_second
                    .map_or("-".to_owned(), |n| format!("{} of {n}", channel.worst_second)),
                channel.share_used.map_or("-".to_owned(), |s| format!("{:.0} %", s * 100.0)),
                channel.per_second.map_or("-".to_owned(), |p| format!("{p:.1}/s")),
            )?;
        }
        let within = self
            .channels
            .iter()
            .all(|channel| channel.limit_per_second.is_none_or(|n| channel.worst_second <= n as usize));
        writeln!(f, "\n  {}  no second above its limit", mark(within))?;
        writeln!(
            f,
            "  {}  nothing lost: {} saved, {} paid, {} shown to a person, {} lost",
            mark(self.lost == 0),
            self.saved,
            self.paid - self.shown_and_paid,
            self.shown,
            self.lost
        )?;
        writeln!(
            f,
            "  {}  nothing twice: {} paid twice, {} sent again blindly",
            mark(self.doubled == 0 && self.repeated == 0),
            self.doubled,
            self.repeated
        )?;
        writeln!(f, "  {}  rows and ledger agree: {} differ", mark(self.disagreeing == 0), self.disagreeing)?;
        writeln!(f, "  {}  everything came to an end, and the nodes stopped cleanly", mark(self.finished))?;
        if self.shown > 0 {
            let paid = match self.shown_and_paid {
                0 => "The bank had paid none of them this time, which\n  no node could know.".to_owned(),
                n => format!(
                    "The bank had paid {n} of them:\n  sending those again would have paid them twice."
                ),
            };
            writeln!(
                f,
                "\n  {} refunds were in the killed node's hands. refundd does not guess with money: it shows\n  them to a person (`refundd review`). {paid}",
                self.shown
            )?;
        }
        write!(f, "\n  {}", if self.kept() { "Every promise was kept." } else { "A PROMISE WAS BROKEN." })
    }
}
