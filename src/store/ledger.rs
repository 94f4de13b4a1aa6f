//! The ledger of permits: the permits of other services, and how long all permits are kept.
//!
//! Claims write the permits of refunds (`claim.rs`); this file writes only the permits of other services. The ledger
//! grants nothing: Redis grants, and the ledger takes each number once. `generation.rs` counts what is spent.

use std::time::Duration;

use sqlx::Row;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, column, statement};
use super::witness::LONG_AGO;
use super::{Doing, Store, StoreError, micros};
use crate::crash;
use crate::limiter::{Counted, Permit, PermitNumber};
use crate::refund::LimitName;

const SPEND: Statement = statement!(include_str!("sql/spend.sql"));

// After the commit that spent the permits. Claims wait for no other claim's commit this way.
const KEEPS_RULES: Statement = statement!(
    "
    select refundd.spent_permits_keep_rules(:of_limit::text[], :own_rule::text[], :stricter_rule::text[], :generation::bigint[],
                                            :lead_us::bigint[], :furthest_us::bigint[], :clock_known_us::bigint[],
                                            :limit_name::text[], :window_us::bigint[], :clock_tolerance_us::bigint, :witnessed_us::bigint) as keeps_rules"
);

const LIMITS: &str = include_str!("sql/limits_with_permits.sql");

const KEPT_FOR: &str = "select (extract(epoch from refundd.permits_are_kept_for($1 * interval '1 microsecond')) * 1000000)::bigint";

// While Postgres's clock is ahead of the time that the node carried on, nothing is dropped: the clock may just have stepped, and
// nobody has written that down. Ten seconds are far above what a busy server delays the statement by, and nothing beside a day.
// The same condition stands in journal.rs and events.rs.
const ROTATE: &str = "
    select refundd.turn_permits($1 * interval '1 microsecond')
     where $2::bigint is null or now() < timestamptz 'epoch' + $2 * interval '1 microsecond' + interval '10 seconds'";

// No permit is that old, so nothing is dropped, whatever Postgres's clock says.
const MAKE: &str = "select refundd.turn_permits(interval '100 years')";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("spend", SPEND.sql),
    ("keeps_rules", KEEPS_RULES.sql),
    ("limits_with_permits", LIMITS),
    ("permits_are_kept_for", KEPT_FOR),
    ("rotate_permits", ROTATE),
    ("make_days", MAKE),
];

/// The result of spending permits that were granted to another service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// The ledger has all the permits now.
    Yes,
    /// The ledger had a number already, the generation is over, or the permits do not keep the limit's rule. None of
    /// them is good.
    Refused,
    /// Redis's clock is too far from Postgres's clock. No permit was spent.
    ClocksApart,
    /// A person paused everything, or every channel with the limit. No permit was spent.
    Paused,
}

impl Store {
    /// Writes to the ledger the permits that were granted to another service. `channels` are those that have the limit.
    pub async fn spend(
        &self,
        permits: &[Permit],
        caller: &str,
        node: &str,
        tolerance: Duration,
        channels: &[&str],
    ) -> Result<Spent, StoreError> {
        let numbers: Vec<&PermitNumber> = permits.iter().flat_map(|permit| &permit.numbers).collect();
        let span = permits.first().and_then(|permit| permit.span);
        let query = bind!(
            SPEND,
            limit_name: column(&numbers, |number| number.limit.as_str()),
            window_us: column(&numbers, |number| number.window_start_us),
            ordinal: column(&numbers, |number| number.ordinal),
            generation: column(&numbers, |number| number.generation),
            of_limit: numbers.first().map(|number| number.limit.as_str()),
            own_rule: numbers.first().map(|number| &*number.own_rule),
            stricter_rule: numbers.first().and_then(|number| number.stricter_rule.as_deref()),
            caller: caller,
            node: node,
            opens_us: span.map_or(0, |span| span.opens_us),
            closes_us: span.map_or(0, |span| span.closes_us),
            clock_tolerance_us: micros(tolerance),
            step_matters_us: micros(Counted::STEP_MATTERS),
            channels: channels,
            witnessed_us: self.witnessed_us().unwrap_or(LONG_AGO),
        );
        let row = query.one(&self.db).await.doing("spend permits for another service")?;
        if !row.get::<bool, _>("is_timely") {
            return Ok(Spent::ClocksApart);
        }
        if !row.get::<bool, _>("is_open") {
            return Ok(Spent::Paused);
        }
        let is_whole = usize::try_from(row.get::<i64, _>("spent")) == Ok(numbers.len());
        let has_new_server = row.get("has_new_server");
        Ok(if is_whole && self.keeps_rules(&numbers, tolerance, has_new_server).await? {
            Spent::Yes
        } else {
            Spent::Refused
        })
    }

    /// Whether the ledger keeps the limits' rules around permits that are spent and committed. It counts only for
    /// permits whose numbers alone do not keep them.
    /// `has_new_server` as in [`Counted::is_needed`].
    pub(super) async fn keeps_rules(
        &self,
        numbers: &[&PermitNumber],
        tolerance: Duration,
        has_new_server: bool,
    ) -> Result<bool, StoreError> {
        let counted: Vec<&PermitNumber> =
            numbers.iter().copied().filter(|number| number.counted.is_needed(has_new_server)).collect();
        let mut limits = counted.clone();
        limits.sort_by(|a, b| a.limit.cmp(&b.limit));
        limits.dedup_by(|a, b| a.limit == b.limit);
        if limits.is_empty() {
            return Ok(true);
        }
        crash::point("counting");
        let query = bind!(
            KEEPS_RULES,
            of_limit: column(&limits, |number| number.limit.as_str()),
            own_rule: column(&limits, |number| &*number.own_rule),
            stricter_rule: column(&limits, |number| number.stricter_rule.as_deref()),
            generation: column(&limits, |number| number.generation),
            lead_us: column(&limits, |number| micros(number.counted.lead)),
            furthest_us: column(&limits, |number| micros(number.counted.lead.max(Permit::NEXT_SLOT))),
            clock_known_us: column(&limits, |number| number.counted.clock_known.map(micros)),
            limit_name: column(&counted, |number| number.limit.as_str()),
            window_us: column(&counted, |number| number.window_start_us),
            clock_tolerance_us: micros(tolerance),
            witnessed_us: self.witnessed_us().unwrap_or_default(),
        );
        Ok(query.one(&self.db).await.doing("count the permits of a limit")?.get("keeps_rules"))
    }

    /// Every limit with permits in the ledger.
    pub async fn limits_with_permits(&self) -> Result<Vec<LimitName>, StoreError> {
        let names: Vec<String> = sqlx::query_scalar(LIMITS)
            .all(&self.db.patient())
            .await
            .doing("list the limits of the ledger")?;
        Ok(names.iter().map(|name| LimitName::stored(name)).collect())
    }

    /// How long the ledger keeps permits if the configuration says `keep`: at least as long as the limits of all
    /// nodes need them.
    pub async fn permits_are_kept_for(&self, keep: Duration) -> Result<Duration, StoreError> {
        let us: i64 = sqlx::query_scalar(KEPT_FOR)
            .bind(micros(keep))
            .one(&self.db.patient())
            .await
            .doing("read how long permits count")?;
        Ok(Duration::from_micros(u64::try_from(us).unwrap_or_default()))
    }

    /// Makes the tables of the ledger's next days, and drops the days that ended longer than `keep` ago; answers
    /// how many days it dropped. The database keeps permits that may still count, whatever `keep` is. Days that are
    /// in use wait for the next call. So does everything while the clock witness has not confirmed Postgres's clock.
    pub async fn rotate_permits(&self, keep: Duration) -> Result<i32, StoreError> {
        let Ok(witnessed_us) = self.witnessed_us() else { return Ok(0) };
        let dropped = sqlx::query_scalar(ROTATE)
            .bind(micros(keep))
            .bind(witnessed_us)
            .maybe(&self.db.patient())
            .await
            .doing("forget the oldest days of the ledger of permits")?;
        Ok(dropped.unwrap_or_default())
    }

    /// Makes the tables of the ledger's next days and drops none, also before the first comparison with the clock witness. While
    /// another table is in use, the missing ones wait for the next call.
    pub async fn make_days(&self) -> Result<(), StoreError> {
        sqlx::query(MAKE).run(&self.db).await.doing("make the ledger's next days")?;
        Ok(())
    }
}
