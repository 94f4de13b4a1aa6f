//! Counts permits that lapse one after the other. Then the node sends less than the limit allows, so this file
//! reports the cause to people.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::attempt::ClaimTimes;
use crate::channel::Channel;
use crate::limiter::Span;
use crate::lock::Lock;
use crate::node::Node;

/// How many permits lapsed in a row on this node.
#[derive(Debug, Default)]
pub(super) struct Lapses(Mutex<u32>);

impl Lapses {
    /// This many in a row are reported.
    const MANY: u32 = 5;

    /// Notes a permit that was used in time.
    pub fn used(&self, node: &Node, channel: &Channel) {
        let lapsed = std::mem::take(&mut *self.0.locked());
        if lapsed >= Self::MANY {
            node.status_report.note_lapses(&channel.name, None);
            tracing::info!(
                channel.name = %channel.name,
                "Permits of channel `{}` are used in time again", channel.name,
            );
        }
    }

    /// Notes a permit that lapsed unused.
    pub fn lapsed(&self, node: &Node, channel: &Channel, span: Span, claim_times: ClaimTimes) {
        let mut lapsed = self.0.locked();
        *lapsed = lapsed.saturating_add(1);
        if *lapsed < Self::MANY {
            return;
        }
        let first = *lapsed == Self::MANY;
        drop(lapsed);
        let ahead = channel.limits.iter().map(|limit| limit.ahead).min().unwrap_or_default();
        let cause = cause(ahead, span, claim_times, Instant::now());
        if first {
            tracing::warn!(
                channel.name = %channel.name,
                "Permits of channel `{}` expire unused: {cause}",
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

    #[test]
    fn the_cause_is_the_claim_where_that_took_too_long_and_the_node_otherwise() {
        let (ahead, now) = (Duration::from_millis(50), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        let span = Span { opens_us: 0, closes_us: 0, opens: at(50), closes: at(60) };
        let slow = ClaimTimes { claiming: now, claimed: at(70) };
        assert_eq!(cause(ahead, span, slow, at(71)), "claims take 70 ms, `ahead` is 50 ms");
        let quick = ClaimTimes { claiming: now, claimed: at(5) };
        let said = cause(ahead, span, quick, at(75));
        assert!(
            said.starts_with("requests leave 25 ms after their permits open, which are good for 10 ms"),
            "{said}"
        );
    }
}
