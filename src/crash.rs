//! Named points between the steps of the money path, at which a test ends the process as `kill -9` would.
//!
//! They exist in debug builds only; in a release build a point does nothing. `REFUNDD_CRASH_AT=claimed` ends the
//! process when it reaches `claimed` for the first time, and `REFUNDD_CRASH_AT=claimed:3` when it does so for the
//! third time.

/// Every crash point with its meaning: first the points of a refund in their order, then the points of other work.
pub const POINTS: &[(&str, &str)] = &[
    ("saving", "a refund arrived by HTTP and is about to be saved"),
    ("saved", "the refund is saved, and the caller has no answer"),
    ("feeding", "due rows are read, and their ids are not in the bucket"),
    ("fed", "the ids are in the bucket"),
    ("taking", "a take is about to be sent to Redis"),
    ("taken", "permits are granted and ids have left the bucket, and nothing is claimed"),
    (
        "taken_more",
        "more ids have left the bucket for left-over permits, and nothing is claimed for these ids",
    ),
    (
        "prefetched",
        "ids have left the bucket for the next claim of a channel without limits, and nothing is claimed for these ids",
    ),
    ("counting", "permits are spent and committed, and the ledger has not counted them"),
    ("claimed", "the claim is committed, and nothing is sent"),
    ("sending", "the permit's span has begun, and no byte has left"),
    ("sent", "the first bytes of the request have left"),
    ("answered", "the bank has answered, and the answer is not read"),
    ("judged", "the outcome is known, and the settler does not have it"),
    ("settling", "outcomes are about to be written"),
    ("settled", "outcomes are written"),
    ("suspending", "the bank asked to slow down, and no other node knows"),
    ("suspended", "the channel cools down for all nodes"),
    ("inquiring", "permits are granted for inquiries and ids have left their bucket, and nothing is leased"),
    ("inquired", "the inquiries are leased, and nothing is sent"),
    ("inquiry_answered", "the bank has answered an inquiry, and the answer is not written"),
    ("resolved", "the inquiry's outcome is written"),
    ("taking_back", "a claim's commit was not seen, and the claim is about to be taken back"),
    ("taken_back", "the claim is taken back"),
    ("lapsing", "refunds whose leases are over are about to become unknown"),
    ("lapsed", "these refunds are unknown"),
    ("bringing_back", "stranded rows are known, and their ids are not in the bucket"),
    ("brought_back", "their ids are at the front of the bucket"),
    ("adopting", "Redis forgot a limit, and the ledger is not read"),
    ("adopted", "a generation has begun, and Redis does not have it"),
    ("restored", "Redis is restored"),
    ("spending", "permits are granted to another service, and they are not in the ledger"),
    ("spent", "these permits are in the ledger, and the service has no answer"),
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
        // The kill flushes nothing, runs no destructor and closes no connection in order.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort();
    }
}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
pub const fn point(_: &'static str) {}
