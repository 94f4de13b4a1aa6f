//! A refund's row, as the simulation last read it.

use refundd::refund::{RefundId, State};

use crate::clock::BEGAN_US;
use crate::wire::{Columns, number, text};

/// A refund's row, with the suspension of its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The index of its channel.
    pub channel_index: usize,
    pub state: State,
    pub version: i32,
    pub epoch: i64,
    pub due_us: i64,
    pub deadline_us: Option<i64>,
    /// The deadline by the world's clock.
    pub true_deadline: Option<i64>,
    pub lease_us: Option<i64>,
    pub uncertain_us: Option<i64>,
    /// When `uncertain_us` was written, by the world's clock.
    pub uncertain_since: i64,
    pub inquire_us: Option<i64>,
    pub inquiries: i32,
    pub paused: bool,
    pub cool_us: Option<i64>,
}

impl Row {
    /// Reads the columns of the statement [`LOOK`](crate::stage::own::LOOK).
    pub fn read(columns: &Columns) -> (RefundId, Row) {
        // Postgres counts microseconds from 2000.
        let time = |nth: usize| number(columns, nth).map(|us| us + 946_684_800_000_000 - BEGAN_US);
        let row = Row {
            channel_index: usize::try_from(number(columns, 1).unwrap()).unwrap(),
            state: text(columns, 2).parse().unwrap(),
            epoch: number(columns, 3).unwrap(),
            due_us: time(4).unwrap(),
            deadline_us: time(5),
            true_deadline: None,
            lease_us: time(6),
            uncertain_us: time(7),
            uncertain_since: 0,
            inquire_us: time(8),
            inquiries: i32::try_from(number(columns, 9).unwrap()).unwrap(),
            paused: columns[10].is_some(),
            cool_us: time(11),
            version: i32::try_from(number(columns, 12).unwrap()).unwrap(),
        };
        (RefundId(number(columns, 0).unwrap()), row)
    }
}
