//! Named points between the steps of the money path, at which a test ends the process as `kill -9` would.
//!
//! They exist in debug builds only; in a release build a point is nothing. `REFUNDD_CRASH_AT=claimed` ends
//! the process the first time it comes by `claimed`, `REFUNDD_CRASH_AT=claimed:3` the third time.

/// Every point, in the order in which a refund comes by them; then those of what is done beside.
pub const POINTS: &[(&str, &str)] = &[
    ("saving", "a refund came by HTTP and is about to be saved"),
    ("saved", "it is saved, and the answer not given"),
    ("feeding", "due rows were read and not put in line"),
    ("fed", "they stand in line"),
    ("taking", "a take is about to be asked for"),
    ("taken", "permits are granted and ids have left the line, nothing is claimed"),
    (
        "taken_more",
        "more ids have left the line for permits that are left over, nothing is claimed for those",
    ),
    ("claimed", "the claim is committed, nothing is sent"),
    ("sending", "the permit's span has begun, no byte has left"),
    ("sent", "the first bytes of the request have left"),
    ("answered", "the bank has answered, and nobody here has read what"),
    ("judged", "the answer is understood and not handed to the settler"),
    ("settling", "outcomes are about to be written"),
    ("settled", "they are written"),
    ("holding_back", "the bank asked us to wait, and no other node knows"),
    ("held_back", "the channel cools down for all nodes"),
    ("inquiring", "permits are granted for inquiries and ids have left their line, nothing is leased"),
    ("inquired", "the inquiries are leased, nothing is asked"),
    ("told", "the bank has said what became of a refund, and it is not written down"),
    ("resolved", "it is written down"),
    ("taking_back", "a claim's commit was not seen, and it is about to be taken back"),
    ("taken_back", "it is taken back"),
    ("lapsing", "leases that are over are about to become unknown"),
    ("lapsed", "they are unknown"),
    ("bringing_back", "stranded rows were found and not put in line"),
    ("brought_back", "they stand in front of the line"),
    ("adopting", "Redis forgot a limit, and the ledger has not been asked"),
    ("adopted", "a generation has begun, and Redis has not been told"),
    ("reminded", "Redis has been told"),
    ("spending", "permits are granted to another service and not written down"),
    ("spent", "they are written down, and the service has not been told"),
];

/// Ends the process here if a test wants it to.
#[cfg(debug_assertions)]
pub fn point(name: &'static str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static WANTED: LazyLock<Option<(String, AtomicU32)>> = LazyLock::new(|| {
        let wanted = std::env::var("REFUNDD_CRASH_AT").ok()?;
        let (name, nth) = wanted.split_once(':').unwrap_or((&wanted, "1"));
        Some((name.to_owned(), AtomicU32::new(nth.parse().ok()?)))
    });
    debug_assert!(POINTS.iter().any(|(known, _)| *known == name), "{name} is not on the list");
    if let Some((wanted, left)) = &*WANTED
        && wanted == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        // Nothing is flushed, no destructor runs, no peer is told.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort();
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
pub const fn point(_: &'static str) {}
