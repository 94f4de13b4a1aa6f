//! Requests that a stopped process held back between its last check and the write.
//!
//! Such a request had its permit when it was checked and comes to the bank later; no check can prevent it. It
//! is dated by its check if, and only if, this campaign stopped that very node after the check, and the
//! request came as soon as the node went on.

use playground::bank::{Arrival, Kind};

use super::rows::{Made, Rows};
use crate::world::Frozen;

/// How soon after a node goes on what it held back must be there.
const SOON_US: i64 = 500_000;
/// How long before the stop it may have been checked: between the two there is only the write.
const JUST_US: i64 = 100_000;

/// The journal's line about a request: of those with its number, since one that was refused for now keeps it, the
/// nearest. The journal reckons its dates backwards, and may say a little too late.
pub fn line<'a>(arrival: &Arrival, rows: &'a Rows) -> Option<&'a Made> {
    let name = rows.refs.get(&*arrival.key)?;
    let is_of = |made: &&Made| match arrival.kind {
        Kind::Send => made.kind == "send" && i64::from(made.number) == i64::from(arrival.attempt),
        Kind::Inquiry => made.kind == "inquiry",
    };
    let made = rows.made.get(name)?.iter().filter(is_of);
    made.min_by_key(|made| made.started_us.abs_diff(arrival.at_us))
}

/// When it was checked, for a request that came late by a stop.
pub fn checked_us(arrival: &Arrival, rows: &Rows, frozen: &[Frozen]) -> Option<i64> {
    let stops: Vec<&Frozen> =
        frozen.iter().filter(|stop| (0..SOON_US).contains(&(arrival.at_us - stop.until_us))).collect();
    if stops.is_empty() {
        return None;
    }
    let made = line(arrival, rows)?;
    let of_node = |stop: &&&Frozen| made.node.split('#').next() == Some(stop.node);
    // The journal reckons backwards from when it was written, and may say too late.
    let held_back = |stop: &&&Frozen| (stop.from_us - JUST_US..=stop.until_us).contains(&made.started_us);
    let stop = stops.iter().filter(of_node).find(held_back)?;
    Some(made.started_us.min(stop.from_us))
}
