//! Counts the permits that lapse and those that are used. While most lapse, the node sends less than the limit allows, so
//! this file reports the cause to people.
//!
//! A single permit that is used in time ends no report: where 99 of 100 lapse, the log would change its mind each time.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::attempt::ClaimTimes;
use crate::channel::Channel;
use crate::limiter::Span;
use crate::lock::Lock;
use crate::node::Node;

/// How the permits of one channel do on this node.
#[derive(Debug, Default)]
pub(super) struct Lapses(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Permits that lapsed, none of them used between.
    in_a_row: u32,
    /// Permits of the present span, and when it began.
    lapsed: u32,
    used: u32,
    since: Option<Instant>,
    is_reported: bool,
}

/// What one more permit shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    BeginToLapse,
    Lapse,
    UsedAgain,
}

impl Counts {
    /// This many in a row are reported.
    const MANY: u32 = 5;
    /// A report ends after such a span in which no more permits lapsed than were used.
    const SPAN: Duration = Duration::from_mins(1);

    fn note(&mut self, is_used: bool, now: Instant) -> Shown {
        let since = *self.since.get_or_insert(now);
        let is_over = now.saturating_duration_since(since) >= Self::SPAN;
        let ends = is_over && self.is_reported && self.lapsed <= self.used;
        if is_over {
            (self.lapsed, self.used, self.since) = (0, 0, Some(now));
        }
        let count = if is_used { &mut self.used } else { &mut self.lapsed };
        *count = count.saturating_add(1);
        self.in_a_row = if is_used { 0 } else { self.in_a_row.saturating_add(1) };
        if ends && self.in_a_row < Self::MANY {
            self.is_reported = false;
            return Shown::UsedAgain;
        }
        if is_used || (self.in_a_row < Self::MANY && !self.is_reported) {
            return Shown::Nothing;
        }
        if std::mem::replace(&mut self.is_reported, true) { Shown::Lapse } else { Shown::BeginToLapse }
    }
}

impl Lapses {
    /// Notes a permit that was used in time.
    pub fn used(&self, node: &Node, channel: &Channel) {
        let shown = self.0.locked().note(true, Instant::now());
        Self::end(shown, node, channel);
    }

    fn end(shown: Shown, node: &Node, channel: &Channel) {
        if shown != Shown::UsedAgain {
            return;
        }
        node.status_report.note_lapses(&channel.name, None);
        tracing::info!(
            channel.name = %channel.name,
            "Permits of channel `{}` are used in time again", channel.name,
        );
    }

    /// Notes a permit that lapsed unused.
    pub fn lapsed(&self, node: &Node, channel: &Channel, span: Span, claim_times: ClaimTimes) {
        let now = Instant::now();
        let shown = self.0.locked().note(false, now);
        Self::end(shown, node, channel);
        if !matches!(shown, Shown::BeginToLapse | Shown::Lapse) {
            return;
        }
        let ahead = channel.limits.iter().map(|limit| limit.ahead).min().unwrap_or_default();
        let cause = cause(ahead, span, claim_times, now);
        if shown == Shown::BeginToLapse {
            tracing::warn!(
                channel.name = %channel.name,
                "Permits of channel `{}` expire unused, and little or nothing is sent: {cause}",
                channel.name,
            );
        }
        node.status_report.note_lapses(&channel.name, Some(cause));
    }
}

/// Why a permit lapsed, for people.
fn cause(ahead: Duration, span: Span, claim_times: ClaimTimes, now: Instant) -> String {
    let millis = |span: Duration| span.as_micros().div_ceil(1000);
    if claim_times.claimed >= span.closes {
        let took = millis(claim_times.claimed - claim_times.claiming);
        return format!("claims take {took} ms, `ahead` is {} ms", millis(ahead));
    }
    let late = millis(now.saturating_duration_since(span.opens.max(claim_times.claimed)));
    let life = millis(span.closes.saturating_duration_since(span.opens));
    format!(
        "requests leave {late} ms after their permits open, which are good for {life} ms: the node is short of \
         processor time, or `lateness` is too small"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::Slept;

    #[test]
    fn a_few_permits_used_among_many_that_lapse_do_not_make_the_log_change_its_mind() {
        let (mut counts, began) = (Counts::default(), Instant::now());
        let mut reports = Vec::new();
        // Ten a second, of which one in a hundred is used, and after three minutes all.
        for nth in 0..3000 {
            let is_used = nth % 100 == 99 || nth >= 1800;
            let shown = counts.note(is_used, began + Duration::from_millis(nth * 100));
            if matches!(shown, Shown::BeginToLapse | Shown::UsedAgain) {
                reports.push((nth, shown));
            }
        }
        assert_eq!(reports[0], (4, Shown::BeginToLapse));
        assert_eq!(reports[1..].iter().map(|(_, shown)| *shown).collect::<Vec<_>>(), [Shown::UsedAgain]);
        assert!((1800..=3000).contains(&reports[1].0), "{reports:?}");
        assert_eq!(counts.note(false, began + Duration::from_hours(1)), Shown::Nothing, "one lapse is none");
    }

    #[test]
    fn the_cause_is_the_claim_where_that_took_too_long_and_the_node_otherwise() {
        let (ahead, now) = (Duration::from_millis(50), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        let span = Span { opens_us: 0, closes_us: 0, opens: at(50), closes: at(60) };
        let slow = ClaimTimes { claiming: now, slept: Slept::now(), claimed: at(70) };
        assert_eq!(cause(ahead, span, slow, at(71)), "claims take 70 ms, `ahead` is 50 ms");
        let quick = ClaimTimes { claiming: now, slept: Slept::now(), claimed: at(5) };
        let said = cause(ahead, span, quick, at(75));
        assert!(
            said.starts_with("requests leave 25 ms after their permits open, which are good for 10 ms"),
            "{said}"
        );
    }
}
