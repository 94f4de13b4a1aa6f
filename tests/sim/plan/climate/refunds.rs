//! Climates of refunds: banks, people, files and nodes.

use super::{Climate, USUAL};
use crate::plan::Fault;
use crate::plan::step::Step;

pub const ALL: &[Climate] = &[
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
