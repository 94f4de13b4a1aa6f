//! Climates: worlds in which one hazard is more frequent than elsewhere. A mistake that rarely shows is played in the
//! climate of its hazard. The properties are the same in all climates.

use playground::rule::TestAlgorithm;

use super::Fault;
use super::step::Step;

/// The inclination of a world. A field that is `None` is drawn as usual.
#[derive(Debug, Clone, Copy)]
pub struct Climate {
    pub name: &'static str,
    pub algorithms: &'static [TestAlgorithm],
    pub limits: Option<usize>,
    pub permits: Option<(u32, u32)>,
    pub per_ms: &'static [u64],
    /// In percent of `per`.
    pub lateness: &'static [u64],
    /// Every refund is saved at the start, and each channel has many slots.
    pub busy: bool,
    pub on_unknown: Option<&'static str>,
    /// The bank often leaves the result open, and the run gives it time.
    pub unsure: Option<bool>,
    /// The troubles of sends, by their numbers in `Course::draw`.
    pub bank: Option<&'static [u32]>,
    /// The troubles of inquiries, by their numbers in `Reply::draw`.
    pub inquiries: Option<&'static [u32]>,
    /// A step that comes late on all nodes.
    pub late: Option<Step>,
    pub files: Option<u8>,
    /// The longest time to open a connection, in us.
    pub dial: Option<i64>,
    /// Whether two files differ in their policies.
    pub policies: Option<bool>,
    /// The longest time to read the ledger for a restore, in us.
    pub ledger: i64,
    pub trouble: Option<u8>,
    pub pace: Option<i64>,
    /// These faults and no others.
    pub faults: Option<&'static [Fault]>,
    /// How often each of these steps is drawn, in thirds of the usual.
    pub often: &'static [(Step, u32)],
}

/// No inclination: the climate that `make sim` plays.
pub const USUAL: Climate = Climate {
    name: "usual",
    algorithms: &TestAlgorithm::ALL,
    limits: None,
    permits: None,
    per_ms: &[500, 1_000, 3_000, 12_000],
    lateness: &[4, 15, 40],
    busy: false,
    on_unknown: None,
    unsure: None,
    bank: None,
    inquiries: None,
    late: None,
    files: None,
    dial: None,
    policies: None,
    ledger: 0,
    trouble: None,
    pace: None,
    faults: None,
    often: &[],
};

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
    USUAL,
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
    Climate {
        name: "left to people",
        on_unknown: Some("review"),
        unsure: Some(true),
        bank: Some(&[0, 1, 3]),
        faults: Some(&[Fault::Cancel]),
        often: &[(Step::Cancel, 27), (Step::ShowUnknown, 27), (Step::Decide, 1)],
        ..USUAL
    },
    Climate {
        name: "decided on an old page",
        on_unknown: Some("review"),
        unsure: Some(true),
        bank: Some(&[0, 1, 3]),
        faults: Some(&[]),
        often: &[(Step::ShowUnknown, 27), (Step::Decide, 27)],
        ..USUAL
    },
    // Ids enter a bucket while the bank knows the key, and are claimed after that.
    Climate {
        name: "keys forgotten",
        limits: Some(0),
        on_unknown: Some("resend"),
        unsure: Some(true),
        bank: Some(&[0, 1]),
        late: Some(Step::Claim),
        pace: Some(4_000_000),
        faults: Some(&[Fault::Crash]),
        often: &[(Step::ShowUnknown, 1), (Step::Feed, 9), (Step::FindStranded, 9), (Step::Plan, 0)],
        ..USUAL
    },
    // Ids are read as due, sent by another node, and only then put into a bucket.
    Climate {
        name: "filled late",
        limits: Some(0),
        on_unknown: Some("review"),
        unsure: Some(true),
        bank: Some(&[0, 1]),
        late: Some(Step::Fill),
        pace: Some(1_000_000),
        faults: Some(&[]),
        often: &[(Step::ShowUnknown, 0), (Step::Feed, 27), (Step::Take, 9), (Step::Decide, 0)],
        ..USUAL
    },
    Climate {
        name: "sent again",
        on_unknown: Some("resend"),
        unsure: Some(true),
        bank: Some(&[0, 1, 3]),
        trouble: Some(25),
        faults: Some(&[]),
        often: &[(Step::TakeBack, 9), (Step::Feed, 9), (Step::Take, 9)],
        ..USUAL
    },
    // Inquiry outcomes are settled long after a person had the refund sent again.
    Climate {
        name: "asked and overtaken",
        limits: Some(0),
        on_unknown: Some("inquire"),
        unsure: Some(true),
        bank: Some(&[2, 5]),
        inquiries: Some(&[0, 1, 2, 5]),
        late: Some(Step::SettleInquiry),
        faults: Some(&[]),
        often: &[(Step::Decide, 27), (Step::SettleInquiry, 0), (Step::Take, 9), (Step::Feed, 9)],
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
    Climate {
        name: "files differ",
        limits: Some(1),
        files: Some(2),
        policies: Some(false),
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        dial: Some(0),
        trouble: Some(0),
        faults: Some(&[Fault::Reload]),
        often: &[(Step::Reload, 27), (Step::Take, 27), (Step::Save, 9)],
        ..USUAL
    },
    Climate {
        name: "policies differ",
        files: Some(2),
        policies: Some(true),
        unsure: Some(true),
        faults: Some(&[Fault::Reload, Fault::Crash]),
        often: &[(Step::Reload, 27), (Step::Start, 9)],
        ..USUAL
    },
    Climate {
        name: "slow to connect",
        limits: Some(1),
        busy: true,
        unsure: Some(false),
        bank: Some(&[]),
        dial: Some(500_000),
        trouble: Some(0),
        faults: Some(&[]),
        ..USUAL
    },
    Climate {
        name: "asked and silent",
        on_unknown: Some("inquire"),
        unsure: Some(true),
        bank: Some(&[0, 1, 2, 3]),
        inquiries: Some(&[0, 1]),
        pace: Some(4_000_000),
        faults: Some(&[]),
        ..USUAL
    },
    Climate {
        name: "asked behind a proxy",
        on_unknown: Some("inquire"),
        unsure: Some(true),
        bank: Some(&[0, 1, 2, 3]),
        inquiries: Some(&[12]),
        pace: Some(4_000_000),
        faults: Some(&[]),
        ..USUAL
    },
    Climate {
        name: "moved to another bank",
        limits: Some(0),
        unsure: Some(true),
        bank: Some(&[0, 1, 6]),
        inquiries: Some(&[]),
        faults: Some(&[Fault::Move]),
        pace: Some(4_000_000),
        often: &[(Step::Move, 9), (Step::Decide, 1), (Step::ShowUnknown, 1)],
        ..USUAL
    },
    // Leases and deadlines run while Postgres's clock is set forward and back.
    Climate {
        name: "Postgres's clock set",
        limits: Some(0),
        unsure: Some(true),
        bank: Some(&[0, 1, 2, 3]),
        faults: Some(&[Fault::PostgresClock, Fault::Crash]),
        pace: Some(4_000_000),
        often: &[
            (Step::SetPostgresClock, 27),
            (Step::Heartbeat, 1),
            (Step::Lapse, 9),
            (Step::Expire, 9),
            (Step::Crash, 9),
            (Step::Start, 9),
            (Step::Decide, 1),
        ],
        ..USUAL
    },
    // Postgres's clock is set while a bank that did nothing is asked and says so.
    Climate {
        name: "Postgres's clock set, graces",
        limits: Some(0),
        on_unknown: Some("inquire"),
        unsure: Some(true),
        bank: Some(&[2, 5]),
        inquiries: Some(&[]),
        faults: Some(&[Fault::PostgresClock, Fault::Crash]),
        pace: Some(4_000_000),
        often: &[
            (Step::SetPostgresClock, 27),
            (Step::Heartbeat, 1),
            (Step::Crash, 27),
            (Step::Start, 27),
            (Step::ShowUnknown, 1),
            (Step::Decide, 0),
        ],
        ..USUAL
    },
    // Postgres's clock is set while a bank knows a key for a while.
    Climate {
        name: "Postgres's clock set, keys",
        limits: Some(0),
        on_unknown: Some("resend"),
        unsure: Some(true),
        bank: Some(&[0, 1]),
        faults: Some(&[Fault::PostgresClock, Fault::Crash]),
        pace: Some(4_000_000),
        often: &[
            (Step::SetPostgresClock, 27),
            (Step::Heartbeat, 1),
            (Step::ShowUnknown, 1),
            (Step::Feed, 9),
            (Step::FindStranded, 9),
            (Step::Plan, 0),
        ],
        ..USUAL
    },
    // Nodes are taken for dead and come back.
    Climate {
        name: "taken for dead",
        limits: Some(0),
        unsure: Some(true),
        bank: Some(&[0, 1]),
        pace: Some(4_000_000),
        faults: Some(&[Fault::Retire, Fault::Crash]),
        often: &[(Step::Heartbeat, 3), (Step::Retire, 27), (Step::Start, 27)],
        ..USUAL
    },
    Climate {
        name: "answers without a body",
        limits: Some(0),
        unsure: Some(true),
        bank: Some(&[2, 14]),
        faults: Some(&[]),
        ..USUAL
    },
];

/// The climate of that name. Panics if there is none.
pub fn named(name: &str) -> Climate {
    *ALL.iter().find(|climate| climate.name == name).unwrap_or_else(|| panic!("no climate is called {name}"))
}
