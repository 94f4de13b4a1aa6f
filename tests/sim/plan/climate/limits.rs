//! Climates of limits: what Redis forgets, whose clock is set, and who else takes permits.

use playground::rule::TestAlgorithm;

use super::{Climate, USUAL};
use crate::plan::Fault;
use crate::plan::step::Step;

const SPANS: &[TestAlgorithm] =
    &[TestAlgorithm::SlidingLog, TestAlgorithm::SlidingWindow, TestAlgorithm::TokenBucket];

/// Each restore of these begins a generation.
const OF_AGE: &[TestAlgorithm] = &[
    TestAlgorithm::SlidingLog,
    TestAlgorithm::SlidingWindow,
    TestAlgorithm::TokenBucket,
    TestAlgorithm::Paced,
];

pub const ALL: &[Climate] = &[
    // The numbers of permits are granted twice, under two limits that Redis forgets at once.
    Climate {
        name: "numbers twice",
        algorithms: &[TestAlgorithm::FixedWindow],
        limits: Some(2),
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        // Another server would begin a new generation. The same server, flushed, hands out its numbers again.
        faults: Some(&[Fault::Flush]),
        often: &[(Step::Flush, 27), (Step::Restart, 0), (Step::Claim, 1), (Step::Cancel, 0)],
        ..USUAL
    },
    Climate {
        name: "Redis forgets",
        algorithms: SPANS,
        limits: Some(1),
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        faults: Some(&[Fault::Flush]),
        often: &[(Step::Flush, 18), (Step::Claim, 1), (Step::Take, 9), (Step::Chore, 9)],
        ..USUAL
    },
    // Reading the ledger takes longer than a node has for a restore before another node may try.
    Climate {
        name: "the ledger is slow",
        algorithms: OF_AGE,
        limits: Some(1),
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        ledger: 930_000,
        faults: Some(&[Fault::Flush, Fault::Crash]),
        often: &[(Step::Flush, 18), (Step::Take, 9)],
        ..USUAL
    },
    Climate {
        name: "Redis remembers what was",
        algorithms: SPANS,
        limits: Some(1),
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        faults: Some(&[Fault::Restore, Fault::Fork]),
        often: &[(Step::Snapshot, 27), (Step::Restore, 27), (Step::Take, 9)],
        ..USUAL
    },
    Climate {
        name: "clock set, windows",
        algorithms: &[TestAlgorithm::FixedWindow],
        limits: Some(1),
        permits: Some((4, 6)),
        per_ms: &[1_000, 3_000],
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        trouble: Some(0),
        faults: Some(&[Fault::Clock]),
        often: &[(Step::SetClock, 6), (Step::Take, 9), (Step::Save, 9)],
        ..USUAL
    },
    Climate {
        name: "taken over, windows",
        algorithms: &[TestAlgorithm::FixedWindow],
        limits: Some(1),
        permits: Some((4, 6)),
        per_ms: &[1_000, 3_000],
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        trouble: Some(0),
        faults: Some(&[Fault::Takeover]),
        often: &[(Step::Takeover, 6), (Step::Take, 9), (Step::Save, 9)],
        ..USUAL
    },
    Climate {
        name: "clock set, spans",
        algorithms: SPANS,
        limits: Some(1),
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        trouble: Some(0),
        faults: Some(&[Fault::Clock]),
        often: &[(Step::SetClock, 9), (Step::Take, 9), (Step::Save, 9)],
        ..USUAL
    },
    // Nodes come and go. A node that starts may take before the nodes that know the clock take again.
    Climate {
        name: "clock set, new nodes",
        algorithms: SPANS,
        limits: Some(1),
        per_ms: &[1_000, 3_000],
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        trouble: Some(0),
        faults: Some(&[Fault::Clock, Fault::Crash]),
        often: &[
            (Step::SetClock, 9),
            (Step::Take, 9),
            (Step::Save, 9),
            (Step::Crash, 27),
            (Step::Start, 27),
            (Step::Heartbeat, 27),
        ],
        ..USUAL
    },
    Climate {
        name: "limits used up",
        algorithms: SPANS,
        limits: Some(2),
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        trouble: Some(0),
        faults: Some(&[]),
        ..USUAL
    },
    Climate {
        name: "buckets used up",
        algorithms: &[TestAlgorithm::TokenBucket],
        limits: Some(1),
        permits: Some((8, 10)),
        per_ms: &[1_000, 3_000],
        lateness: &[40],
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        trouble: Some(0),
        pace: Some(100_000),
        faults: Some(&[]),
        often: &[(Step::Take, 9), (Step::Pass, 12)],
        ..USUAL
    },
    // Other services take permits up to a second ahead, and another Redis server takes over.
    Climate {
        name: "permits for others",
        algorithms: &[TestAlgorithm::Paced],
        limits: Some(1),
        permits: Some((1, 2)),
        per_ms: &[1_000],
        lateness: &[4],
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        trouble: Some(0),
        faults: Some(&[Fault::Acquire, Fault::Takeover, Fault::Crash]),
        often: &[
            (Step::Acquire, 27),
            (Step::Spend, 9),
            (Step::Takeover, 27),
            (Step::Take, 9),
            (Step::Save, 9),
        ],
        ..USUAL
    },
    // Permits of another service are written to the ledger after Redis forgot them.
    Climate {
        name: "others and a flush",
        algorithms: SPANS,
        limits: Some(1),
        lateness: &[40],
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        faults: Some(&[Fault::Acquire, Fault::Flush]),
        often: &[(Step::Acquire, 27), (Step::Spend, 1), (Step::Flush, 18), (Step::Take, 9), (Step::Chore, 9)],
        ..USUAL
    },
];
