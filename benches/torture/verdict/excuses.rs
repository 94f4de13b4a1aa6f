//! Times in which the hands did something that a check must not blame on a node.

use std::ops::Range;

use playground::judge::Intervals;

use crate::channels::TIMEOUT_US;
use crate::records::{Fault, Frozen};

/// How long after a change of Redis a permit from before it may still be used: a permit for another service opens up to
/// a second later, and nodes look at Redis's clock every second.
const SETTLES_US: i64 = 3_000_000;
/// How much later than it happens a change may show at the bank. The machine may be busy.
pub const LEEWAY_US: i64 = 3_000_000;

/// Times in which nothing but the number of one span is promised, of a limit with a burst or with windows.
///
/// - Somebody forges what Redis counts of this limit. The ledger then counts one `per` back. It does not know how full a
///   bucket was before, so a bucket may be emptied once in each span.
/// - Redis's clock changes: a hand sets it, or another server takes over, or two count at once. Windows then begin at
///   other moments, and `docs/limits.md` promises the number of two windows for one span, and nothing for longer ones.
///   Where no node has noticed a step forward, a bucket looks fuller than it is.
///
/// A Redis that lost its memory is no such time: the ledger restores a bucket with no more tokens than it had, and each
/// number of a window is spent once. What comes after such a time is judged in full. Every bucket begins with its burst
/// at most, and windows lie one `per` apart by one clock, whatever that clock shows.
pub fn unsteady(limit: &str, faults: &[Fault]) -> Intervals {
    let key = format!("{{{limit}}}");
    let unsettles = |fault: &&Fault| match (&fault.forged, fault.kind.as_str()) {
        (Some(forged), _) => forged.contains(&key),
        (None, "Redis flushed" | "Redis killed" | "Redis from an old snapshot") => false,
        // A fault of Redis that is new here counts as a change of its clock.
        (None, kind) => kind.starts_with("Redis"),
    };
    faults.iter().filter(unsettles).map(|fault| fault.from_us..fault.healed_us + SETTLES_US).collect()
}

/// Times in which a request may have begun that a hand cut in the middle: a node was killed, or the way was spoiled. A
/// node that ends in order, or stands still for a while, writes its requests to their end.
pub fn cut(faults: &[Fault]) -> Intervals {
    let cuts = |fault: &&Fault| fault.kind == "node killed" || fault.kind.starts_with("way to the bank");
    let begun = |fault: &Fault| fault.from_us - TIMEOUT_US..fault.healed_us + LEEWAY_US;
    faults.iter().filter(cuts).map(begun).collect()
}

/// Times in which the bank may not see that a node has given up: the node's process stood still and kept its
/// connections, or the way carried nothing, not even the end of a connection.
pub fn silent(faults: &[Fault], frozen: &[Frozen]) -> Intervals {
    let deaf = faults.iter().filter(|fault| fault.kind == "way to the bank deaf");
    let deaf = deaf.map(|fault| fault.from_us..fault.healed_us);
    let stops = frozen.iter().map(|stop| stop.from_us..stop.until_us);
    let late = |silent: Range<i64>| silent.start - LEEWAY_US..silent.end + LEEWAY_US;
    deaf.chain(stops).map(late).collect()
}
