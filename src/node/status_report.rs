//! The status report: how a node's channels get on with their limits and their banks, as the node last saw them.
//!
//! It names the limit that makes a channel wait, the stricter rules of other nodes' files, the unreachable banks and
//! the distances of banks. It is mostly for people. Two things are decided by it. While the address for sends is
//! unreachable, inquiries yield to active sends only ([`crate::bucket::Yield`]). And a forecast takes from it the measured
//! time of a request, and which limits have a stricter rule.

mod bank_report;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use super::meter::{Binds, Meter, MeterReading};
use crate::bank::AddressTimes;
use crate::bucket::{LimitWait, StricterRule};
use crate::lock::Lock;
use crate::refund::{ChannelName, LimitName};
use crate::store::{NodeReport, ReportedBank, ReportedWait};
pub use bank_report::BankReport;

#[derive(Debug, Default)]
struct Inner {
    waits: HashMap<ChannelName, (LimitName, Instant)>,
    stricter_rules: HashMap<LimitName, String>,
    banks: HashMap<ChannelName, BankReport>,
    /// The meters of the channels whose workers run.
    meters: HashMap<ChannelName, Weak<Meter>>,
}

impl Inner {
    fn reading_of(&self, channel: &ChannelName) -> Option<MeterReading> {
        let round_trip = self.banks.get(channel).and_then(|bank| bank.reading.round_trip);
        Some(self.meters.get(channel)?.upgrade()?.read(round_trip))
    }

    /// What is reported of a channel, without distances that were measured too long ago.
    fn reported(&self, channel: &ChannelName, now: Instant) -> ReportedBank {
        let mut bank = self.banks.get(channel).cloned().unwrap_or_default();
        bank.forget_old_distance(now);
        let meter = self.reading_of(channel).unwrap_or_default();
        let is_bound = meter.binds != Binds::Nothing;
        ReportedBank {
            status: bank.status(&meter),
            binds: is_bound.then(|| meter.binds.as_str().to_owned()),
            binds_share: is_bound.then(|| (meter.share * 100.0).round() / 100.0),
            binds_over_seconds: is_bound.then(|| MeterReading::over(meter.watched.as_secs())),
            binds_limit: meter.limit.as_ref().map(ToString::to_string),
        }
    }
}

/// The status report of one node. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct StatusReport(Arc<Mutex<Inner>>);

impl StatusReport {
    /// Only waits longer than this are reported. Every channel has shorter waits all the time.
    const LONG: Duration = Duration::from_secs(30);

    /// Notes the `wait` of a take, and the `stricter_rules` of other nodes for the channel's `limits`. Returns
    /// whether the stricter rules differ from those noted before.
    pub fn note<'l>(
        &self,
        channel: &ChannelName,
        limits: impl Iterator<Item = &'l LimitName>,
        wait: Option<&LimitWait>,
        stricter_rules: &[StricterRule],
    ) -> bool {
        let mut inner = self.inner();
        match wait {
            Some(wait) => {
                inner.waits.insert(channel.clone(), (wait.limit.clone(), Instant::now() + wait.span));
            }
            None => drop(inner.waits.remove(channel)),
        }
        let mut changed = false;
        for limit in limits {
            let by = stricter_rules.iter().find(|rule| rule.limit == *limit).map(|rule| &rule.by);
            if inner.stricter_rules.get(limit) != by {
                changed = true;
                match by {
                    Some(by) => drop(inner.stricter_rules.insert(limit.clone(), by.clone())),
                    None => drop(inner.stricter_rules.remove(limit)),
                }
            }
        }
        changed
    }

    /// Forgets the stricter rules of limits for which none can be in force, and returns these limits. An idle channel takes
    /// nothing, so [`StatusReport::note`] does not hear that its rule is over.
    pub fn end_stricter_rules(&self, can_be_in_force: impl Fn(&LimitName) -> bool) -> Vec<LimitName> {
        let mut inner = self.inner();
        let over = inner.stricter_rules.extract_if(|limit, _| !can_be_in_force(limit));
        over.map(|(limit, _)| limit).collect()
    }

    /// The limit that a channel waits for, and how much longer; `None` if it does not wait.
    pub fn wait_of(&self, channel: &ChannelName) -> Option<(LimitName, Duration)> {
        let inner = self.inner();
        let (limit, until) = inner.waits.get(channel)?;
        let left = until.checked_duration_since(Instant::now())?;
        Some((limit.clone(), left))
    }

    /// The stricter rule of another node's file, if such a rule is in force for a limit.
    pub fn stricter_rule(&self, limit: &LimitName) -> Option<String> {
        self.inner().stricter_rules.get(limit).cloned()
    }

    /// Notes how other nodes count a limit of which this node has no share for that reason; `None` when it need not wait for
    /// them. Workers note stricter rules of shares under the names of the shares, never under this one.
    pub fn note_other_shares(&self, limit: &LimitName, by: Option<String>) {
        let mut inner = self.inner();
        match by {
            Some(by) => drop(inner.stricter_rules.insert(limit.clone(), by)),
            None => drop(inner.stricter_rules.remove(limit)),
        }
    }

    /// Notes why no connection for sends can be opened; `None` when one can.
    pub fn note_unreachable(&self, channel: &ChannelName, why: Option<&str>) {
        self.change(channel, |bank| bank.unreachable = why.map(ToOwned::to_owned));
    }

    /// Notes why no connection for inquiries can be opened; `None` when one can.
    pub fn note_unreachable_to_ask(&self, channel: &ChannelName, why: Option<&str>) {
        self.change(channel, |bank| bank.unreachable_to_ask = why.map(ToOwned::to_owned));
    }

    /// Notes why permits lapse one after the other; `None` when they no longer do.
    pub fn note_lapses(&self, channel: &ChannelName, why: Option<String>) {
        self.change(channel, |bank| bank.lapses = why);
    }

    /// Notes that no refund of a channel can be taken or claimed, by what, and why; `None` when one can.
    pub fn note_blocked(&self, channel: &ChannelName, blocked: Option<(&'static str, String)>) {
        self.change(channel, |bank| bank.note_blocked(blocked));
    }

    /// The blocked channels, and by what they are blocked.
    pub fn blocked(&self) -> Vec<(ChannelName, &'static str)> {
        let inner = self.inner();
        inner.banks.iter().filter_map(|(name, bank)| Some((name.clone(), bank.blocked()?.by))).collect()
    }

    /// The first blocked channel by name, and the reason; `None` while no channel is blocked.
    pub fn first_blocked(&self) -> Option<(ChannelName, String)> {
        let inner = self.inner();
        inner.banks.iter().filter_map(|(name, bank)| Some((name.clone(), bank.blocked()?.why.clone()))).min()
    }

    /// The channels that wait long for a limit, and how much longer.
    pub fn long_waits(&self) -> HashMap<ChannelName, Duration> {
        let (inner, now) = (self.inner(), Instant::now());
        let waits = inner.waits.iter().map(|(name, (_, until))| (name, until.saturating_duration_since(now)));
        waits.filter(|(_, left)| *left > Self::LONG).map(|(name, left)| (name.clone(), left)).collect()
    }

    /// Notes the distance of a bank just measured, and why a `lateness` is too small for it.
    pub fn note_distance(&self, channel: &ChannelName, reading: AddressTimes, lateness: Option<String>) {
        self.change(channel, |bank| bank.note_distance(reading, lateness));
    }

    fn change(&self, channel: &ChannelName, change: impl FnOnce(&mut BankReport)) {
        let mut inner = self.inner();
        if let Some(bank) = inner.banks.get_mut(channel) {
            change(bank);
            return;
        }
        let mut bank = BankReport::default();
        change(&mut bank);
        // The last worker of a channel that is gone ends its notes, and leaves no entry behind.
        if bank != BankReport::default() {
            inner.banks.insert(channel.clone(), bank);
        }
    }

    /// The meter of a channel. It lives as long as a worker of the channel keeps it.
    pub fn meter(&self, channel: &ChannelName) -> Arc<Meter> {
        let mut inner = self.inner();
        if let Some(meter) = inner.meters.get(channel).and_then(Weak::upgrade) {
            return meter;
        }
        let meter = Arc::new(Meter::new(Instant::now()));
        inner.meters.insert(channel.clone(), Arc::downgrade(&meter));
        meter
    }

    /// What binds a channel on this node, and how long its bank takes.
    pub fn reading_of(&self, channel: &ChannelName) -> MeterReading {
        self.inner().reading_of(channel).unwrap_or_default()
    }

    /// The channels that something binds on this node, and what.
    pub fn bound(&self) -> Vec<(ChannelName, Binds)> {
        let inner = self.inner();
        let bound =
            inner.meters.keys().filter_map(|name| Some((name.clone(), inner.reading_of(name)?.binds)));
        bound.filter(|(_, binds)| *binds != Binds::Nothing).collect()
    }

    /// Removes everything about a channel.
    pub fn forget(&self, channel: &ChannelName) {
        let mut inner = self.inner();
        inner.waits.remove(channel);
        inner.banks.remove(channel);
        inner.meters.remove(channel);
    }

    /// Removes everything about a channel's bank.
    pub fn forget_bank(&self, channel: &ChannelName) {
        self.inner().banks.remove(channel);
    }

    /// What this node sees of a channel's bank.
    pub fn bank_of(&self, channel: &ChannelName) -> BankReport {
        self.inner().banks.get(channel).cloned().unwrap_or_default()
    }

    /// The report, without short waits and old distances. `redis_trouble` says why Redis does not answer or refuses.
    pub fn report(&self, redis_trouble: Option<&str>) -> NodeReport {
        let (inner, now) = (self.inner(), Instant::now());
        let waits = inner.waits.iter().filter_map(|(channel, (limit, until))| {
            let left = until.checked_duration_since(now).filter(|left| *left > Self::LONG)?;
            let wait = ReportedWait { limit: limit.to_string(), seconds: left.as_secs() };
            Some((channel.to_string(), wait))
        });
        let stricter_rules = inner.stricter_rules.iter().map(|(limit, by)| (limit.to_string(), by.clone()));
        let is_alive = |name: &&ChannelName| inner.meters.get(*name).is_some_and(|m| m.strong_count() > 0);
        let channels: BTreeSet<&ChannelName> =
            inner.banks.keys().chain(inner.meters.keys().filter(is_alive)).collect();
        let banks = channels.into_iter().map(|name| (name.to_string(), inner.reported(name, now)));
        NodeReport {
            redis: redis_trouble.map(ToOwned::to_owned),
            waits: waits.collect(),
            stricter_rules: stricter_rules.collect(),
            banks: banks.collect(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_is_forgotten_is_reported_no_more_and_its_last_worker_leaves_no_note() {
        let (report, acme) = (StatusReport::default(), ChannelName::new("acme").unwrap());
        let meter = report.meter(&acme);
        report.note_unreachable(&acme, Some("connection refused"));
        assert_eq!(report.report(None).banks.len(), 1);
        report.forget(&acme);
        assert_eq!(report.report(None).banks.len(), 0);
        report.note_unreachable_to_ask(&acme, None);
        drop(meter);
        assert_eq!(report.report(None).banks.len(), 0);
        // A worker that ends without a reload.
        drop(report.meter(&acme));
        assert_eq!(report.report(None).banks.len(), 0);
    }
}
