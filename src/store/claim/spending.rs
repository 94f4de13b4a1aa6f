//! The part that the claims of sends and of inquiries share: the parameters and the rows of `gate.sql`, `permits.sql` and
//! `unlimited.sql`.

use std::collections::{HashMap, HashSet};

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::Claimed;
use crate::limiter::{Permit, PermitNumber};
use crate::refund::RefundId;
use crate::store::StoreError;
use crate::store::named::Statement;

/// A claim's ids and permits, in the form of the parameters of `permits.sql`.
pub(in crate::store) struct Spending<'a> {
    pub ids: Vec<i64>,
    /// Each number, with the place of its permit among the permits, counted from 1.
    pub numbers: Vec<(i64, &'a PermitNumber)>,
    pub opens_us: Option<i64>,
    pub closes_us: Option<i64>,
    /// The limits and their generations, empty without limits. All permits of one take have the same generations.
    pub generations: &'a [PermitNumber],
}

impl<'a> Spending<'a> {
    pub(in crate::store) fn of(taken: &'a [(RefundId, Permit)], more: &[RefundId]) -> Self {
        let spans = || taken.iter().filter_map(|(_, permit)| permit.span);
        let first: &[PermitNumber] = taken.first().map_or(&[], |(_, permit)| &permit.numbers);
        let mut seen = HashSet::new();
        Spending {
            ids: taken
                .iter()
                .map(|(id, _)| id.0)
                .chain(more.iter().map(|id| id.0))
                .filter(|id| seen.insert(*id))
                .collect(),
            numbers: (1..)
                .zip(taken)
                .flat_map(|(place, (_, permit))| permit.numbers.iter().map(move |n| (place, n)))
                .collect(),
            opens_us: spans().map(|s| s.opens_us).max(),
            closes_us: spans().map(|s| s.closes_us).min(),
            generations: first,
        }
    }
}

/// The two statements of one kind of claim.
pub(in crate::store) struct ClaimStatements {
    /// With `permits.sql`.
    pub limited: Statement,
    /// With `unlimited.sql`.
    pub unlimited: Statement,
}

/// Makes the [`ClaimStatements`] of a text.
macro_rules! claim_statements {
    ($text:expr) => {
        ClaimStatements {
            limited: statement!(
                $text,
                concat!(include_str!("sql/parts/gate.sql"), include_str!("sql/parts/permits.sql"))
            ),
            unlimited: statement!(
                $text,
                concat!(include_str!("sql/parts/gate.sql"), include_str!("sql/parts/unlimited.sql"))
            ),
        }
    };
}
pub(in crate::store) use claim_statements;

/// Binds the parameters that all claims have, and those that follow, to the statement for permits with or without
/// numbers.
macro_rules! bind_claim {
    ($statements:expr, $request:expr, $spending:expr, $($name:ident: $value:expr),+ $(,)?) => {
        if $spending.generations.is_empty() {
            bind!(
                $statements.unlimited,
                id: $spending.ids,
                channel: $request.channel.as_str(),
                node: $request.node,
                lease_us: micros($request.lease),
                endpoint: $request.bank_address.endpoint,
                inquiry: $request.bank_address.inquiry,
                $($name: $value),+
            )
        } else {
            bind!(
                $statements.limited,
                id: $spending.ids,
                channel: $request.channel.as_str(),
                node: $request.node,
                lease_us: micros($request.lease),
                endpoint: $request.bank_address.endpoint,
                inquiry: $request.bank_address.inquiry,
                place: column(&$spending.numbers, |(place, _)| *place),
                limit_name: column(&$spending.numbers, |(_, number)| number.limit.as_str()),
                window_us: column(&$spending.numbers, |(_, number)| number.window_start_us),
                ordinal: column(&$spending.numbers, |(_, number)| number.ordinal),
                numbers_each: i64::try_from($spending.generations.len()).unwrap_or(i64::MAX),
                opens_us: $spending.opens_us,
                closes_us: $spending.closes_us,
                clock_tolerance_us: micros($request.clock_tolerance),
                step_matters_us: micros(crate::limiter::Counted::STEP_MATTERS),
                generation_of: column($spending.generations, |number| number.limit.as_str()),
                generation: column($spending.generations, |number| number.generation),
                own_rule: column($spending.generations, |number| &*number.own_rule),
                stricter_rule: column($spending.generations, |number| number.stricter_rule.as_deref()),
                $($name: $value),+
            )
        }
    };
}
pub(in crate::store) use bind_claim;

/// Whether another Redis server took over one of the limits a short while ago.
pub(in crate::store) fn has_new_server(rows: &[PgRow]) -> bool {
    rows.iter().any(|row| row.get("has_new_server"))
}

/// Sorts the rows of a claim into leased, unspent, beyond, spent before and stale.
pub(in crate::store) fn read_claimed<T>(
    rows: &[PgRow],
    taken: &[(RefundId, Permit)],
    read: impl Fn(&PgRow) -> Result<T, StoreError>,
) -> Result<Claimed<T>, StoreError> {
    let mut claimed = Claimed {
        leased: Vec::new(),
        permits: HashMap::new(),
        unspent: Vec::new(),
        beyond: Vec::new(),
        spent_before: Vec::new(),
        stale: Vec::new(),
        is_suspended: false,
        clocks_apart: false,
        outdated: false,
        is_address_lost: false,
        overspent: Vec::new(),
    };
    let mut rows: Vec<(Option<usize>, &PgRow)> = rows
        .iter()
        .map(|row| {
            let place = row.get::<Option<i64>, _>("place").and_then(|place| usize::try_from(place).ok());
            (place.and_then(|place| place.checked_sub(1)), row)
        })
        .collect();
    rows.sort_by_key(|(place, _)| *place);
    let mut given = 0;
    for (place, row) in rows {
        let id = RefundId(row.get("requested_id"));
        claimed.is_suspended |= !row.get::<bool, _>("is_open");
        claimed.clocks_apart |= !row.get::<bool, _>("is_timely");
        claimed.outdated |= !row.get::<bool, _>("is_current");
        claimed.is_address_lost |= !row.get::<bool, _>("has_address");
        let is_leased = row.get::<Option<i64>, _>("id").is_some();
        let permit = match place {
            Some(place) => Some(taken.get(place).map(|(_, permit)| permit)),
            // A channel without limits has permits without numbers; any of them will do.
            None => is_leased.then(|| taken.first().map(|(_, permit)| permit)),
        };
        given += usize::from(matches!(permit, Some(Some(_))));
        match (is_leased, permit) {
            (true, Some(Some(permit))) => {
                claimed.leased.push(read(row)?);
                claimed.permits.insert(id, permit.clone());
            }
            (_, None) => claimed.stale.push(id),
            (_, Some(None)) => claimed.beyond.push(id),
            (false, Some(Some(_))) => claimed.spent_before.push(id),
        }
    }
    if claimed.is_refused() {
        claimed.spent_before.clear();
    } else {
        claimed.unspent = taken.iter().skip(given).map(|(_, permit)| permit.clone()).collect();
    }
    Ok(claimed)
}
