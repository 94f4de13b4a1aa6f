//! What people pause, and what they end. A request may name the suspension that it saw; then it changes no other one.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::Row;

use super::{ALL_CHANNELS, SUSPEND, SuspendedBy, Suspension, read};
use crate::store::connections::Ask;
use crate::store::named::{Statement, bind, statement};
use crate::store::{Doing, Store, StoreError, micros};

/// A person's pause of one channel or of all.
#[derive(Debug, Clone, Copy)]
pub struct Pause<'a> {
    pub reason: &'a str,
    pub who: &'a str,
    /// How long it lasts; `None` until a person ends it.
    pub lasts: Option<Duration>,
}

/// The pause that somebody saw who asks for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// They do not say: the new pause takes the place of any other.
    Unsaid,
    Nothing,
    /// The pause that began then.
    Since(Timestamp),
}

/// The result of a request to pause.
#[derive(Debug, Clone)]
pub enum Paused {
    Now,
    /// It is paused, and not by what was seen; nothing changed. `None`: that pause has ended meanwhile.
    Changed(Option<Suspension>),
    NoSuchChannel,
}

/// What a person ends, and why.
#[derive(Debug, Clone, Copy)]
pub struct SuspensionEnd<'a> {
    /// `None` for the pause of everything.
    pub channel: Option<&'a str>,
    pub by: SuspendedBy,
    pub who: &'a str,
    pub reason: Option<&'a str>,
    /// When the suspension began that the person saw, or, of a cooling, its end; `None` ends whatever is there, also the
    /// lower rate of a channel that does not cool any more.
    pub seen: Option<Timestamp>,
}

/// The result of a request to resume.
#[derive(Debug, Clone)]
pub enum Resumed {
    /// This suspension has ended.
    Now(Suspension),
    /// This suspension is there, and it is not the one that was seen; nothing changed.
    Changed(Suspension),
    /// It was not suspended for that cause; nothing changed.
    WasNot,
    NoSuchChannel,
}

pub(super) const PAUSE: Statement = statement!(
    "
    update refundd.channels
       set paused_at = now(), pause_until = now() + :lasts_us * interval '1 microsecond', pause_reason = :reason, paused_by = :who
     where channel = :channel
       and (:replaces or paused_at is null or pause_until <= now() or (extract(epoch from paused_at) * 1000000)::bigint = :seen_us::bigint)
    returning channel"
);

pub(super) const RESUME: Statement = statement!(include_str!("../sql/resume.sql"));

pub(super) const END_COOLING: Statement = statement!(include_str!("../sql/end_cooling.sql"));

pub(super) const RELEASE: Statement = statement!(
    "
    update refundd.suspensions
       set ended_at = now(), ended_by = :who, end_reason = :reason
     where channel = :channel and source = :source and ended_at is null
       and (:seen_us::bigint is null or (extract(epoch from since) * 1000000)::bigint = :seen_us)
    returning channel, reason, who, (extract(epoch from since) * 1000000)::bigint as since_us,
              (extract(epoch from until) * 1000000)::bigint as until_us,
              (extract(epoch from until - now()) * 1000000)::bigint as left_us, null::bigint as probe_us"
);

impl Store {
    /// Pauses a channel on all nodes, or gives its pause another reason and another end. `false` if the channel does
    /// not exist.
    pub async fn pause(&self, channel: &str, pause: &Pause<'_>) -> Result<bool, StoreError> {
        Ok(matches!(self.pause_seen(Some(channel), pause, Seen::Unsaid).await?, Paused::Now))
    }

    /// Pauses a channel on all nodes, unless it is paused and not by what was seen. Without a channel it pauses everything: all
    /// channels, also those that are added later, and permits for other services.
    pub async fn pause_seen(
        &self,
        channel: Option<&str>,
        pause: &Pause<'_>,
        seen: Seen,
    ) -> Result<Paused, StoreError> {
        let &Pause { reason, who, lasts } = pause;
        let (lasts_us, replaces) = (lasts.map(micros), seen == Seen::Unsaid);
        let seen_us = match seen {
            Seen::Since(since) => Some(since.as_microsecond()),
            Seen::Unsaid | Seen::Nothing => None,
        };
        let (by, query) = match channel {
            Some(channel) => (
                SuspendedBy::Person,
                bind!(
                    PAUSE,
                    channel: channel,
                    reason: reason,
                    who: who,
                    lasts_us: lasts_us,
                    replaces: replaces,
                    seen_us: seen_us,
                ),
            ),
            None => (
                SuspendedBy::All,
                bind!(
                    SUSPEND,
                    channel: ALL_CHANNELS,
                    source: SuspendedBy::All.as_str(),
                    lasts_us: lasts_us,
                    reason: reason,
                    who: who,
                    kind: None::<&str>,
                    probe_us: None::<i64>,
                    age_us: None::<i64>,
                    replaces: replaces,
                    seen_us: seen_us,
                ),
            ),
        };
        if query.maybe(&self.db).await.doing("pause a channel, or all")?.is_some() {
            return Ok(Paused::Now);
        }
        if !self.is_known(channel).await? {
            return Ok(Paused::NoSuchChannel);
        }
        Ok(Paused::Changed(self.suspension_by(channel, by).await?))
    }

    /// Ends a person's pause of one channel, whoever paused it. The channel may still be suspended for another cause.
    pub async fn resume(
        &self,
        channel: &str,
        who: &str,
        reason: Option<&str>,
    ) -> Result<Resumed, StoreError> {
        self.release(channel, SuspendedBy::Person, who, reason).await
    }

    /// Ends what suspends one channel for this cause.
    pub async fn release(
        &self,
        channel: &str,
        by: SuspendedBy,
        who: &str,
        reason: Option<&str>,
    ) -> Result<Resumed, StoreError> {
        self.end(&SuspensionEnd { channel: Some(channel), by, who, reason, seen: None }).await
    }

    /// Ends a suspension, if it is the one that was seen. When the pause of everything ends, channels that are paused on their
    /// own stay so.
    pub async fn end(&self, ending: &SuspensionEnd<'_>) -> Result<Resumed, StoreError> {
        let &SuspensionEnd { channel, by, who, reason, seen } = ending;
        let seen_us = seen.map(Timestamp::as_microsecond);
        let of_its_row = match (by, channel) {
            (SuspendedBy::Person, Some(channel)) => {
                Some(bind!(RESUME, channel: channel, who: who, reason: reason, seen_us: seen_us))
            }
            (SuspendedBy::Cooling, Some(channel)) => {
                Some(bind!(END_COOLING, channel: channel, who: who, reason: reason, seen_us: seen_us))
            }
            _ => None,
        };
        if let Some(query) = of_its_row {
            let row = query.maybe(&self.db).await.doing("resume a channel")?;
            return Ok(match row {
                None => Resumed::NoSuchChannel,
                Some(row) if !row.get::<bool, _>("was_suspended") => Resumed::WasNot,
                Some(row) if row.get("is_ended") => Resumed::Now(read(&row, by)),
                Some(row) => Resumed::Changed(read(&row, by)),
            });
        }
        if let Some(ended) = self.release_seen(ending).await? {
            return Ok(Resumed::Now(ended));
        }
        if seen.is_some()
            && let Some(other) = self.suspension_by(channel, by).await?
        {
            return Ok(Resumed::Changed(other));
        }
        Ok(if self.is_known(channel).await? { Resumed::WasNot } else { Resumed::NoSuchChannel })
    }

    /// Ends a suspension of the table of suspensions, if it is the one that was seen.
    pub(in crate::store) async fn release_seen(
        &self,
        ending: &SuspensionEnd<'_>,
    ) -> Result<Option<Suspension>, StoreError> {
        let &SuspensionEnd { channel, by, who, reason, seen } = ending;
        let query = bind!(
            RELEASE,
            channel: channel.unwrap_or(ALL_CHANNELS),
            source: by.as_str(),
            who: who,
            reason: reason,
            seen_us: seen.map(Timestamp::as_microsecond),
        );
        let row = query.maybe(&self.db).await.doing("end a suspension")?;
        Ok(row.map(|row| read(&row, by)))
    }

    async fn is_known(&self, channel: Option<&str>) -> Result<bool, StoreError> {
        match channel {
            Some(channel) => self.is_channel(channel).await,
            None => Ok(true),
        }
    }

    /// What suspends a channel, or everything, for this cause now.
    async fn suspension_by(
        &self,
        channel: Option<&str>,
        by: SuspendedBy,
    ) -> Result<Option<Suspension>, StoreError> {
        Ok(self.suspensions_of(channel).await?.into_iter().find(|one| one.by == by))
    }
}
