//! Requests that a frozen process delayed between its last check and the write.
//!
//! Such a request had its permit at the check and arrives at the bank later. No check can prevent that. It is dated
//! by its check only if a hand froze that node after the check and the request arrived soon after the node went on.

use playground::bank::{Arrival, Kind};

use super::rows::{Made, Rows};
use crate::records::Frozen;

/// How soon after a node goes on a delayed request must arrive.
const SOON_US: i64 = 500_000;
/// How long before the freeze the check may have been. Between the two there is only the write.
const JUST_US: i64 = 100_000;

/// The journal's row about a request. Several rows may have its number, because a send that was refused for now keeps
/// the number. The nearest in time is chosen. The journal computes its dates backwards, so they may be a little late.
pub fn journal_row<'a>(arrival: &Arrival, rows: &'a Rows) -> Option<&'a Made> {
    let name = rows.refs.get(&*arrival.key)?;
    let is_of = |made: &&Made| match arrival.kind {
        Kind::Send => made.kind == "send" && i64::from(made.number) == i64::from(arrival.attempt),
        Kind::Inquiry => made.kind == "inquiry",
    };
    let made = rows.made.get(name)?.iter().filter(is_of);
    made.min_by_key(|made| rows.clock.nearest_us(made.started_us, arrival.at_us).abs_diff(arrival.at_us))
}

/// When a request was checked, if a freeze delayed it; `None` for all other requests.
pub fn checked_us(arrival: &Arrival, rows: &Rows, frozen: &[Frozen]) -> Option<i64> {
    let stops: Vec<&Frozen> =
        frozen.iter().filter(|stop| (0..SOON_US).contains(&(arrival.at_us - stop.until_us))).collect();
    if stops.is_empty() {
        return None;
    }
    let made = journal_row(arrival, rows)?;
    let of_node = |stop: &&&Frozen| made.node.split('#').next() == Some(stop.node);
    // The journal computes this date backwards from its own write, so it may be too late.
    let within = |stop: &Frozen| {
        let span = stop.from_us - JUST_US..=stop.until_us;
        let checked_us = rows.clock.meant_us(made.started_us).find(|at_us| span.contains(at_us))?;
        Some(checked_us.min(stop.from_us))
    };
    stops.iter().filter(of_node).find_map(|stop| within(stop))
}
