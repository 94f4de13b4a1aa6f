//! Cooling and slowing: a bank asked for fewer requests.
//!
//! The claim reads the cooling, as it reads every suspension. Slowing is a share of the channel's rate, which nodes read.

use std::time::Duration;

use sqlx::Row;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, micros};
use crate::refund::ChannelName;

/// A bank's answer that asks for fewer requests.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// The wait that the bank named, if it named one.
    pub named: Option<Duration>,
    /// The bank's answer, for people.
    pub reason: &'a str,
    /// Whether the channel's rate is lowered, too.
    pub slow: bool,
    /// The time between two permits of the channel's shortest limit; `None` where it is unlimited.
    pub spacing: Option<Duration>,
    /// The step in which the rate climbs back; `None` where the channel is unlimited.
    pub step: Option<Duration>,
    /// How long the channel cools at most if the bank names no wait.
    pub cool_down: Duration,
    /// How long ago the refused request began. If it began before the last cooling ended, its refusal is not a new one.
    pub age: Duration,
}

const REFUSED: Statement = statement!(include_str!("sql/refused.sql"));

// Keeps the cooling after its end for as long as `refused` takes a refusal for a repeated one. Nodes of the last version did not
// write how long that is: thirty steps.
const CLEAR_COOLING: &str = "
    update refundd.channels
       set cool_until = null, cool_reason = null, refusals = 0,
           slow_percent = case when refundd.slow_share(slow_percent, slow_ceiling, slow_step_us, slow_since) is not null then slow_percent end,
           slow_since = case when refundd.slow_share(slow_percent, slow_ceiling, slow_step_us, slow_since) is not null then slow_since end
     where cool_until < now() - greatest(interval '10 seconds', coalesce(repeated_within_us, slow_step_us * 30, 0) * interval '1 microsecond')
        or (slow_percent is not null and cool_until is null
            and refundd.slow_share(slow_percent, slow_ceiling, slow_step_us, slow_since) is null)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("refused", REFUSED.sql), ("clear_cooling", CLEAR_COOLING)];

impl Store {
    /// Writes that a bank asked for fewer requests. The channel cools on all nodes and then runs at a lower rate.
    /// Answers how long it cools from now on, and whether the refusal is a new one; `None` if the channel does not
    /// exist, or a person ended its cooling after the refused request began.
    pub async fn refused(
        &self,
        channel: &ChannelName,
        refusal: &Refusal<'_>,
    ) -> Result<Option<(Duration, bool)>, StoreError> {
        let query = bind!(
            REFUSED,
            channel: channel.as_str(),
            named_us: refusal.named.map(micros),
            reason: refusal.reason,
            slows: refusal.slow,
            spacing_us: refusal.spacing.map(|spacing| micros(spacing).max(1)),
            step_us: refusal.step.map(|step| micros(step).max(1)),
            cool_down_us: micros(refusal.cool_down),
            age_us: micros(refusal.age),
        );
        let row = query.maybe(&self.db).await.doing("write that a bank asked for fewer requests")?;
        Ok(row.map(|row| {
            let left = u64::try_from(row.get::<i64, _>("left_us")).unwrap_or(0);
            (Duration::from_micros(left), !row.get::<bool, _>("is_same"))
        }))
    }

    /// Clears cooling that ended some time ago, and slowing that is over.
    pub async fn clear_cooling(&self) -> Result<(), StoreError> {
        sqlx::query(CLEAR_COOLING).run(&self.db).await.doing("clear cooling that is over")?;
        Ok(())
    }
}
