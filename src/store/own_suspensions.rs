//! Suspensions by refundd itself: the bank does not take the credentials, or the breaker tripped; and the breaker's probes.
//!
//! The nodes decide when a breaker trips. A person ends such a suspension by [`Store::release`].

use std::time::Duration;

use jiff::Timestamp;

use super::connections::{Ask, Run};
use super::named::bind;
use super::suspensions::{SUSPEND, SuspendedBy, SuspensionEnd};
use super::{Doing, Store, StoreError, micros, timestamp};
use crate::refund::ChannelName;

/// A suspension by refundd itself.
#[derive(Debug, Clone, Copy)]
pub enum OwnSuspension<'a> {
    Credentials {
        /// How long ago the refused request began.
        age: Duration,
    },
    Breaker {
        /// The kind of outcome that tripped it.
        kind: &'a str,
        /// The time until the first probe.
        probe: Duration,
        /// How long ago it tripped.
        age: Duration,
    },
}

const RESERVE_PROBE: &str = "
    update refundd.suspensions
       set probe_by = $2, probe_until = now() + $3 * interval '1 microsecond', probe_at = now() + $3 * interval '1 microsecond'
     where channel = $1 and source = 'breaker' and ended_at is null
       -- Nobody plans a probe later than that: the clock was set back, or a reload lowered `probe`. `clock_timestamp()` is read under
       -- the row's lock: another node may have reserved this probe after this statement began.
       and (probe_at <= now() or probe_at > clock_timestamp() + $3 * interval '1 microsecond')
    returning (extract(epoch from since) * 1000000)::bigint as since_us";

const SWITCH_BREAKERS_OFF: &str = "
    update refundd.suspensions
       set ended_at = now(), ended_by = $2, end_reason = 'the configuration switches the breaker off'
     where channel = any($1) and source = 'breaker' and ended_at is null
    returning channel";

const NOTE_REACH: &str = "select refundd.note_reach($1, $2, $3)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("reserve_probe", RESERVE_PROBE),
    ("switch_breakers_off", SWITCH_BREAKERS_OFF),
    ("note_reach", NOTE_REACH),
];

impl Store {
    /// Suspends a channel on all nodes, for a cause that refundd found itself; `false` if it was suspended for that
    /// cause already, or the last such suspension ended after `age` began: after the refused request, or the trip.
    pub async fn suspend(
        &self,
        channel: &ChannelName,
        own: OwnSuspension<'_>,
        reason: &str,
        node: &str,
    ) -> Result<bool, StoreError> {
        let (by, age, kind, probe) = match own {
            OwnSuspension::Credentials { age } => (SuspendedBy::Credentials, age, None, None),
            OwnSuspension::Breaker { kind, probe, age } => {
                (SuspendedBy::Breaker, age, Some(kind), Some(probe))
            }
        };
        let query = bind!(
            SUSPEND,
            channel: channel.as_str(),
            source: by.as_str(),
            lasts_us: None::<i64>,
            reason: reason,
            who: node,
            kind: kind,
            probe_us: probe.map(micros),
            age_us: Some(micros(age)),
            replaces: false,
            seen_us: None::<i64>,
        );
        Ok(query.maybe(&self.db).await.doing("suspend a channel")?.is_some())
    }

    /// Reserves the probe that is due for this node. Answers when the suspension began that the probe may end; `None` if no
    /// probe is due, or another node has it. The reservation lasts for `probe`, and the next probe is due then.
    pub async fn reserve_probe(
        &self,
        channel: &ChannelName,
        node: &str,
        probe: Duration,
    ) -> Result<Option<Timestamp>, StoreError> {
        let query = sqlx::query(RESERVE_PROBE).bind(channel.as_str()).bind(node).bind(micros(probe));
        let row = query.maybe(&self.db).await.doing("reserve a probe")?;
        Ok(row.and_then(|row| timestamp(&row, "since_us")))
    }

    /// Ends the breaker's suspension that began at `since`, after a probe of this node that succeeded; `false` if that
    /// suspension is over.
    pub async fn end_breaker(
        &self,
        channel: &ChannelName,
        node: &str,
        since: Timestamp,
    ) -> Result<bool, StoreError> {
        let ending = SuspensionEnd {
            channel: Some(channel.as_str()),
            by: SuspendedBy::Breaker,
            who: node,
            reason: Some("the probe succeeded"),
            seen: Some(since),
        };
        Ok(self.release_seen(&ending).await?.is_some())
    }

    /// Ends the breaker's suspensions of channels whose configuration has no breaker; answers which it ended.
    pub async fn switch_breakers_off(
        &self,
        channels: &[&str],
        node: &str,
    ) -> Result<Vec<String>, StoreError> {
        let query = sqlx::query_scalar(SWITCH_BREAKERS_OFF).bind(channels).bind(node);
        query.all(&self.db).await.doing("switch breakers off")
    }

    /// Writes the event that a node cannot reach a channel's bank, or that it can again.
    pub async fn note_reach(
        &self,
        channel: &ChannelName,
        node: &str,
        trouble: Option<&str>,
    ) -> Result<(), StoreError> {
        let query = sqlx::query(NOTE_REACH).bind(channel.as_str()).bind(node).bind(trouble);
        query.run(&self.db).await.doing("write that a bank is unreachable")?;
        Ok(())
    }
}
