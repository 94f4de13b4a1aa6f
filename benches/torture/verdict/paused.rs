//! Judges pauses: while a person's pause lasts, no request of the channel arrives, neither a send nor an inquiry.

use playground::bank::Ledger;

use super::rows::Rows;
use super::{Verdict, late};
use crate::channels;
use crate::paused::LongPause;
use crate::records::Frozen;

/// How long after a pause a request may arrive whose claim began before it. Its first byte leaves within a second of the
/// claim: the lease of 8 s lasts for the time-out and 5 s more. A slow way holds it back for up to 2.5 s more.
const UNDER_WAY_US: i64 = 6_000_000;

pub fn judge(pauses: &[LongPause], ledger: &Ledger, rows: &Rows, frozen: &[Frozen], verdict: &mut Verdict) {
    for pause in pauses {
        let stopped = pause.from_us + UNDER_WAY_US..pause.until_us.unwrap_or(i64::MAX);
        let within = ledger.all().iter().filter(|arrival| stopped.contains(&arrival.at_us));
        for arrival in within {
            let is_of_it = channels::named(&arrival.channel).is_some_and(|of| of.name == pause.channel);
            // A stopped process may hold a request back for longer between its last check and the write.
            let was_checked_before =
                || late::checked_us(arrival, rows, frozen).is_some_and(|at_us| !stopped.contains(&at_us));
            if is_of_it && !was_checked_before() {
                let after_ms = (arrival.at_us - pause.from_us) / 1_000;
                verdict.add(
                    "while paused",
                    format!(
                        "{:?} of {} to {}, {after_ms} ms after the pause",
                        arrival.kind, arrival.key, pause.channel
                    ),
                );
            }
        }
    }
}
