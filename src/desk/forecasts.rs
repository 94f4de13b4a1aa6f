//! Gathers what a forecast needs from Postgres and the nodes, and asks [`crate::forecast`].

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;

use super::channel::{RULE_UNKNOWN, UNMEASURED};
use super::inputs::ForecastInputs;
use super::plan::PlannedConfig;
use crate::forecast::{Allowance, Course, Demand, ExpectedArrival, Outlook, together};
use crate::limiter::Rule;
use crate::refund::Refund;
use crate::store::{ChannelCensus, ChannelOutlook, NodeReport, RuleInForce, Store, StoreError};

/// Inquiries get one permit in ten while refunds wait.
const WEIGHT_OF_INQUIRIES: f64 = 1.0 / 9.0;

/// What nodes measured and reported.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// How long a request keeps its slot, for each channel.
    requests: HashMap<String, Duration>,
    /// The limits for which the stricter rule of another node's file counts.
    with_stricter_rule: HashSet<String>,
}

impl Measured {
    /// From the status reports of nodes. Of several nodes the slowest counts.
    pub fn of_reports<'a>(reports: impl IntoIterator<Item = &'a NodeReport>) -> Measured {
        let mut measured = Measured::default();
        for report in reports {
            for (channel, bank) in &report.banks {
                let request = bank.status.request_ms.filter(|ms| ms.is_finite() && *ms > 0.0);
                let Some(millis) = request else { continue };
                let request = Duration::from_secs_f64(millis.min(1e9) / 1000.0);
                let slowest = measured.requests.entry(channel.clone()).or_default();
                *slowest = request.max(*slowest);
            }
            measured.with_stricter_rule.extend(report.stricter_rules.keys().cloned());
        }
        measured
    }
}

/// The forecast of all channels with a backlog.
#[derive(Debug, Default)]
pub struct Prospects {
    outlook: Outlook,
    /// The demand of each channel; `None` if nobody can say, because the rule of a limit is not known.
    demands: HashMap<String, Option<usize>>,
    /// Refunds that are sent again before the others, for each channel.
    resends: HashMap<String, u64>,
    /// Channels without limits whose requests nobody measured.
    unmeasured: HashSet<String>,
}

impl Prospects {
    /// Reads what the forecast needs about the channels of this census that have a backlog.
    pub async fn read(
        store: &Store,
        census: &[ChannelCensus],
        measured: &Measured,
    ) -> Result<Prospects, StoreError> {
        Self::of(store, &mut ForecastInputs::read(store, census).await?, measured, None).await
    }

    /// The forecast from these inputs. With a plan, it is made for the plan's limits and channels instead of those that nodes
    /// published.
    pub async fn of(
        store: &Store,
        inputs: &mut ForecastInputs,
        measured: &Measured,
        plan: Option<&PlannedConfig>,
    ) -> Result<Prospects, StoreError> {
        let mut channels = inputs.channels.clone();
        if let Some(plan) = plan {
            for channel in &mut channels {
                plan.replaces(channel);
            }
        }
        let now_us = channels.first().map_or(0, |channel| channel.now_us);
        let mut limits: Vec<String> =
            channels.iter().flat_map(|channel| channel.limits.iter().cloned()).collect();
        limits.sort();
        limits.dedup();
        let rules = match plan {
            Some(plan) => plan.rules(&limits),
            None => rules(store, limits, &inputs.shares, measured).await?,
        };
        inputs.read_spent(store, &rules, now_us).await?;
        let mut prospects = Prospects::default();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (name, rule) in &rules {
            let of_limit = inputs.spent.get(&(name.clone(), rule.to_string()));
            let of_limit = of_limit.map(Vec::as_slice).unwrap_or_default();
            places.insert(name, prospects.add(Allowance::of(rule, of_limit, now_us)));
        }
        for channel in &channels {
            let backlog = inputs.backlogs.get(&channel.channel).copied().unwrap_or(0);
            prospects.add_channel(channel, backlog, &rules, &places, measured);
        }
        Ok(prospects)
    }

    fn add(&mut self, allowance: Allowance) -> usize {
        self.outlook.limits.push(allowance);
        self.outlook.limits.len() - 1
    }

    fn add_channel(
        &mut self,
        channel: &ChannelOutlook,
        backlog: u64,
        rules: &HashMap<String, Rule>,
        places: &HashMap<&str, usize>,
        measured: &Measured,
    ) {
        let name = channel.channel.clone();
        self.resends.insert(name.clone(), channel.resends);
        let limits: Option<Vec<usize>> =
            channel.limits.iter().map(|limit| places.get(limit.as_str()).copied()).collect();
        let Some(mut limits) = limits else {
            self.demands.insert(name, None);
            return;
        };
        let rate = channel.limits.iter().filter_map(|limit| rules.get(limit)).min_by_key(|rule| rule.per);
        if let Some((climb, rule)) = channel.slow.as_ref().zip(rate) {
            limits.push(self.add(Allowance::slowed(rule.per_second(), climb)));
        }
        let can_start = !channel.is_paused && channel.nodes > 0;
        let starts_at = can_start.then(|| channel.cooling.unwrap_or_default().as_secs_f64());
        if channel.inquiries_share && channel.inquiries > 0 {
            self.outlook.demands.push(Demand {
                limits: limits.clone(),
                arrivals: vec![ExpectedArrival { at: 0.0, count: channel.inquiries as f64 }],
                weight: WEIGHT_OF_INQUIRIES,
                starts_at,
            });
        }
        match measured.requests.get(&name).zip(channel.max_in_flight) {
            Some((request, most)) => {
                let slots = most.saturating_mul(channel.nodes.max(1));
                limits.push(self.add(Allowance::slots(slots, request.as_secs_f64())));
            }
            None if limits.is_empty() && can_start => {
                self.unmeasured.insert(name.clone());
            }
            None => {}
        }
        let later: u64 = channel.later.iter().map(|(_, count)| count).sum();
        let now = backlog.saturating_sub(later) + channel.resends;
        let demand = Demand { limits, arrivals: arrivals(now, &channel.later), weight: 1.0, starts_at };
        self.demands.insert(name, Some(self.outlook.demands.len()));
        self.outlook.demands.push(demand);
    }

    /// How long until the backlog of each channel is gone. Channels of which nobody can say it are missing or `None`.
    pub fn ends(&self) -> HashMap<String, Option<Duration>> {
        let gone_at = self.outlook.gone_at();
        let end = |(name, demand): (&String, &Option<usize>)| {
            let is_known = !self.unmeasured.contains(name);
            let at = demand.and_then(|nth| gone_at.get(nth).copied().flatten()).filter(|_| is_known);
            (name.clone(), at.and_then(span))
        };
        self.demands.iter().map(end).collect()
    }

    /// How the refunds of each channel leave. `None` for channels of which nobody can say it.
    pub fn departures(&self) -> HashMap<String, Option<Departures>> {
        let courses = self.outlook.courses();
        let departures = |(name, demand): (&String, &Option<usize>)| {
            let is_known = !self.unmeasured.contains(name);
            let course = demand.and_then(|nth| courses.get(nth)).filter(|_| is_known).cloned();
            let resends = self.resends.get(name).copied().unwrap_or(0);
            (name.clone(), course.map(|course| Departures { course, resends }))
        };
        self.demands.iter().map(departures).collect()
    }

    /// The place of a refund in its channel's order, and how long until it is sent, or why nobody can say it. `before` are the
    /// refunds before it, in how long they are due and how many.
    pub fn of_refund(
        mut self,
        refund: &Refund,
        before: &[(Duration, u64)],
        now: Timestamp,
    ) -> (u64, Result<Duration, &'static str>) {
        let resends = self.resends.get(&refund.channel).copied().unwrap_or(0);
        let due_in = Duration::try_from(refund.due_at.duration_since(now)).unwrap_or_default();
        let place = resends + before.iter().map(|(_, count)| count).sum::<u64>() + 1;
        let Some(nth) = self.demands.get(&refund.channel).copied().flatten() else {
            return (place, Err(RULE_UNKNOWN));
        };
        if self.unmeasured.contains(&refund.channel) {
            return (place, Err(UNMEASURED));
        }
        let mut order: Vec<(Duration, u64)> = vec![(Duration::ZERO, resends)];
        order.extend(before);
        order.push((due_in, 1));
        order.sort_unstable();
        if let Some(demand) = self.outlook.demands.get_mut(nth) {
            demand.arrivals = arrivals(0, &order);
        }
        let gone_at = self.outlook.gone_at().get(nth).copied().flatten();
        let sent_at = gone_at.and_then(span).map(|at| at.max(due_in));
        (place, sent_at.ok_or("it is suspended, or no living node runs its channel"))
    }
}

/// How the refunds of one channel leave.
#[derive(Debug, Clone)]
pub struct Departures {
    course: Course,
    /// Refunds that are sent again before the others.
    resends: u64,
}

impl Departures {
    /// How long until the backlog is gone; `None` if that needs a person.
    pub fn end(&self) -> Option<Duration> {
        self.course.gone_at().and_then(span)
    }

    /// How many of these refunds leave after their deadlines: each has its place among those that are ready, and the time
    /// to its deadline in seconds.
    pub fn late(&self, deadlines: &[(u64, f64)]) -> u64 {
        let is_late = |(place, deadline): &&(u64, f64)| {
            self.course.sent_at(self.resends + place).is_none_or(|sent_at| sent_at > *deadline)
        };
        deadlines.iter().filter(is_late).count() as u64
    }
}

fn arrivals(now: u64, later: &[(Duration, u64)]) -> Vec<ExpectedArrival> {
    let now = ExpectedArrival { at: 0.0, count: now as f64 };
    let later =
        later.iter().map(|(at, count)| ExpectedArrival { at: at.as_secs_f64(), count: *count as f64 });
    std::iter::once(now).chain(later).collect()
}

fn span(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

/// The rules in force of these limits: as published, or as counted where another file's stricter rule counts. Of limits
/// that nodes count by shares, the shares that nodes have count together.
async fn rules(
    store: &Store,
    limits: Vec<String>,
    shares: &HashMap<String, Vec<String>>,
    measured: &Measured,
) -> Result<HashMap<String, Rule>, StoreError> {
    let of_limit = |limit: &String| shares.get(limit).map(Vec::as_slice).unwrap_or_default();
    // All shares of a limit have one rule.
    let counted: Vec<String> =
        limits.iter().map(|limit| of_limit(limit).first().unwrap_or(limit).clone()).collect();
    let rules = store.rules_in_force(&counted).await?;
    let mut rules: HashMap<String, RuleInForce> =
        rules.into_iter().map(|one| (one.limit.clone(), one)).collect();
    let rule = |(limit, counted): (String, String)| {
        let one = rules.remove(&counted)?;
        let has_stricter_rule = measured.with_stricter_rule.contains(&limit);
        let rule =
            if has_stricter_rule { one.adopted.or(one.published) } else { one.published.or(one.adopted) };
        let own = of_limit(&limit);
        let rule = if own.is_empty() { rule? } else { together(&rule?, own.len()) };
        Some((limit, rule))
    };
    Ok(limits.into_iter().zip(counted).filter_map(rule).collect())
}
