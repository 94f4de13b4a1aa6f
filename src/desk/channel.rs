//! One channel as people and programs see it: `refundd status`, `GET /v1/channels` and pages.

mod parts;
mod sentences;
mod standing;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::node::meter::Binds;
use crate::refund::State;
use crate::store::{BankStatus, ChannelCensus, NodeReport, ReportedBank, SuspendedBy};
pub use parts::{
    BindsSeen, BreakerStatus, CoolingStatus, LateStatus, LimitAwaited, LimitStatus, NothingAcceptedStatus,
    PauseStatus, SuspensionStatus,
};
pub use sentences::{Drain, last_seconds, meaning};
use sentences::{NO_NODE_CAN_SEND, outage_of};
pub(super) use sentences::{RULE_UNKNOWN, UNMEASURED};
pub use standing::Standing;

/// One channel. Fields marked as older names repeat another field; they go with the next version.
#[derive(Debug, PartialEq, Serialize)]
pub struct ChannelStatus {
    pub channel: String,
    /// The one word for people.
    pub state: Standing,
    /// The limits in force, empty for unlimited; null if they are not known here.
    pub limits: Option<Vec<LimitStatus>>,
    pub counts: BTreeMap<State, u64>,
    /// Refunds that are ready, due or not.
    pub backlog: u64,
    pub max_backlog: Option<u64>,
    /// Whether new refunds are refused, because the backlog is full.
    pub full: bool,
    /// An older name of `full`.
    pub backlog_full: bool,
    /// How long the longest due refund has been due; null if none is.
    pub oldest_ready_age_seconds: Option<f64>,
    /// An older name of `oldest_ready_age_seconds`.
    pub oldest_ready_seconds: Option<f64>,
    /// Ids in the bucket, as last seen; null if nobody saw it.
    pub ids_in_bucket: Option<u64>,
    /// An older name of `ids_in_bucket`.
    pub in_line: Option<u64>,
    /// Sends that the bank executed or accepted, per second over the last `observed_over_seconds`.
    pub observed_per_second: f64,
    pub observed_over_seconds: u32,
    /// Sends that wrote at least one byte.
    pub sends_last_minute: u64,
    /// Those that the bank executed or accepted.
    pub accepted_last_minute: u64,
    /// Null while the bank takes sends, or none is tried.
    pub nothing_accepted: Option<NothingAcceptedStatus>,
    /// What binds the channel: what keeps it from sending faster.
    pub binds: Binds,
    /// The limit that binds it.
    pub binds_limit: Option<String>,
    /// The share of the last `binds_over_seconds` that it waited for what binds it; null where the answer was not measured.
    pub binds_share: Option<f64>,
    /// 60, or less while the node has not watched the channel for a minute; null where `binds_share` is.
    pub binds_over_seconds: Option<u32>,
    /// The limit that makes a node wait since it last asked, and how much longer; null if none does.
    pub waits_for: Option<LimitAwaited>,
    /// What a node sees of the bank; null if none reports about it.
    pub bank: Option<BankStatus>,
    /// How long until the backlog is gone. Null if only a person can start the channel, if an outage keeps it from sending, if
    /// its bank accepts nothing, if it is unlimited and its bank was not measured, or if the rule of a limit is not known.
    pub expected_seconds_to_drain: Option<u64>,
    /// Why there is a backlog and no forecast.
    pub no_forecast_because: Option<String>,
    /// The forecast was made while it was stopped, and it is not stopped any more.
    #[serde(skip)]
    pub forecast_is_old: bool,
    /// What keeps all nodes that run it from sending, as far as their views were read. Nobody knows when it ends.
    #[serde(skip)]
    pub outage: Option<&'static str>,
    pub paused: Option<PauseStatus>,
    /// Why the breaker suspends it.
    pub breaker: Option<BreakerStatus>,
    /// Everything that suspends it, with its reason and its end.
    pub suspensions: Vec<SuspensionStatus>,
    /// Each cause that suspends it beside cooling: `all`, `person`, `credentials`, `breaker`.
    pub suspended_by: Vec<SuspendedBy>,
    pub cooling: Option<CoolingStatus>,
    /// The share of its rate that it may use for now, in percent, after the bank asked for fewer requests; null for
    /// the full rate.
    pub slowed_to_percent: Option<u32>,
    /// Refunds that will miss their deadlines at the rate of the limits; null if none will.
    pub late: Option<LateStatus>,
    /// The living nodes that run the channel.
    pub run_by: Vec<String>,
}

impl ChannelStatus {
    /// The status from the census alone, without what nodes see.
    pub fn of(census: &ChannelCensus) -> Self {
        let counts: BTreeMap<_, _> =
            State::ALL.into_iter().map(|s| (s, census.counts.get(&s).copied().unwrap_or(0))).collect();
        let backlog = counts.get(&State::Ready).copied().unwrap_or(0);
        let oldest = census.oldest_ready_age.map(|age| age.as_secs_f64());
        let (observed_per_second, observed_over_seconds) = census.observed();
        let causes = census.suspensions.iter().map(|one| one.by);
        let mut status = ChannelStatus {
            channel: census.channel.clone(),
            state: Standing::of(census),
            limits: None,
            counts,
            backlog,
            max_backlog: census.max_backlog,
            full: census.full,
            backlog_full: census.full,
            oldest_ready_age_seconds: oldest,
            oldest_ready_seconds: oldest,
            ids_in_bucket: None,
            in_line: None,
            observed_per_second,
            observed_over_seconds,
            sends_last_minute: census.sends_last_minute,
            accepted_last_minute: census.accepted_last_minute,
            nothing_accepted: census.nothing_accepted.as_ref().map(NothingAcceptedStatus::from),
            binds: Binds::Nothing,
            binds_limit: None,
            binds_share: None,
            binds_over_seconds: None,
            waits_for: None,
            bank: None,
            expected_seconds_to_drain: census.drain.map(|drain| drain.as_secs_f64().ceil()).map(whole),
            no_forecast_because: None,
            forecast_is_old: census.forecast_is_old,
            outage: None,
            paused: census.pause().and_then(PauseStatus::of),
            suspensions: census.suspensions.iter().cloned().map(SuspensionStatus::from).collect(),
            breaker: census.suspension(SuspendedBy::Breaker).and_then(BreakerStatus::of),
            suspended_by: causes.filter(|by| *by != SuspendedBy::Cooling).collect(),
            cooling: census.suspension(SuspendedBy::Cooling).and_then(CoolingStatus::of),
            slowed_to_percent: census.slowed,
            late: census.late.map(|(refunds, from)| LateStatus { refunds, from }),
            run_by: census.run_by.clone(),
        };
        status.judge();
        status
    }

    /// Adds the depth of the bucket.
    pub fn note_depth(&mut self, ids: Option<u64>) {
        (self.ids_in_bucket, self.in_line) = (ids, ids);
    }

    /// Adds what one node sees. The reports of other nodes are not read.
    pub fn note_own_node(&mut self, bank: BankStatus, seen: BindsSeen, redis_is_away: bool) {
        self.outage = outage_of(Some(&bank), redis_is_away);
        self.note_nodes(vec![bank], vec![seen], redis_is_away);
    }

    /// Adds what nodes see: of several nodes, one whose bank is in the trouble that counts, and the wait with the largest share.
    fn note_nodes(&mut self, banks: Vec<BankStatus>, seen: Vec<BindsSeen>, redis_is_away: bool) {
        let of = |bank: &BankStatus| Standing::of_node(bank.unreachable.as_deref(), bank.blocked.as_deref());
        let trouble = Standing::of_nodes(banks.iter().map(of), redis_is_away);
        // No bank has the trouble if nothing is wrong, or if Redis is away and no claim has failed yet.
        let place = banks.iter().position(|bank| of(bank) == trouble).unwrap_or(0);
        self.bank = banks.into_iter().nth(place);
        self.state = self.state.with_nodes(trouble);
        self.note_binds(seen);
        self.judge();
    }

    /// Adds what binds the channel on each node; the wait with the largest share counts. A suspended channel is bound by that.
    pub fn note_binds(&mut self, seen: Vec<BindsSeen>) {
        let is_suspended = self.state.suspended().is_some();
        let seen = seen.into_iter().filter(|seen| seen.binds != Binds::Nothing && !is_suspended);
        if let Some(most) = seen.max_by(|a, b| a.part_of_a_minute().total_cmp(&b.part_of_a_minute())) {
            self.binds = most.binds;
            self.binds_share = Some((most.share * 100.0).round() / 100.0);
            self.binds_over_seconds = Some(most.over_seconds);
            self.binds_limit = most.limit;
        }
    }

    /// Adds what the status reports of nodes say about this channel.
    pub fn note_reports(&mut self, reports: &[(String, NodeReport)]) {
        self.outage = self.outage_of_all(reports);
        let reports = || reports.iter().map(|(_, report)| report);
        let name = self.channel.as_str();
        let banks: Vec<&ReportedBank> = reports().filter_map(|report| report.banks.get(name)).collect();
        let seen = banks.iter().filter_map(|bank| BindsSeen::read(bank)).collect();
        let statuses = banks.iter().map(|bank| bank.status.clone()).collect();
        let wait = reports().find_map(|report| report.waits.get(name));
        self.waits_for =
            wait.map(|wait| LimitAwaited { limit: wait.limit.clone(), seconds: wait.seconds as f64 });
        for limit in self.limits.iter_mut().flatten() {
            limit.stricter_rule =
                reports().find_map(|report| report.stricter_rules.get(&limit.limit)).cloned();
        }
        let redis_is_away = reports().any(|report| report.redis.is_some());
        self.note_nodes(statuses, seen, redis_is_away);
    }

    /// The outage that every living node that runs the channel reports. While one of them can send, the channel goes on, however
    /// seldom it sends. A node without a report is well: it has nothing to report.
    fn outage_of_all(&self, reports: &[(String, NodeReport)]) -> Option<&'static str> {
        let of_node = |node: &String| {
            // A report has the node's name without the number of its process.
            let name = node.split_once('#').map_or(node.as_str(), |(name, _)| name);
            let (_, report) = reports.iter().find(|(reporting, _)| reporting == name)?;
            let bank = report.banks.get(&self.channel).map(|bank| &bank.status);
            outage_of(bank, report.redis.is_some())
        };
        let outages: Vec<&'static str> = self.run_by.iter().map(of_node).collect::<Option<_>>()?;
        let first = *outages.first()?;
        Some(if outages.iter().all(|one| *one == first) { first } else { NO_NODE_CAN_SEND })
    }

    /// Decides what binds a channel that is suspended, whether there is a forecast, and why there is none.
    fn judge(&mut self) {
        if let Some(binds) = self.state.suspended() {
            (self.binds, self.binds_limit) = (binds, None);
            (self.binds_share, self.binds_over_seconds) = (None, None);
            // A node that asks for no permit waits for none.
            self.waits_for = None;
        }
        // The count knows nothing of what nodes see, so it has a forecast also for a channel that cannot send.
        if self.backlog > 0 && self.why_stopped().is_some() {
            self.expected_seconds_to_drain = None;
        }
        self.no_forecast_because = self.why_no_forecast();
    }

    pub fn count(&self, state: State) -> u64 {
        self.counts.get(&state).copied().unwrap_or(0)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of seconds, rounded up; the cast gives the nearest integer that exists"
)]
fn whole(seconds: f64) -> u64 {
    seconds as u64
}

#[cfg(test)]
mod tests;
