//! The judge: what producers were told, what the bank's ledger says, and how the rows stand, compared.
//!
//! refundd's own records are only ever held against the bank's ledger, never believed: whether a refund
//! was executed, and how often it was sent, is what the bank says.

use std::collections::{BTreeMap, HashMap};

use refundd::playground::bank::{Arrival, Kind, Ledger};
use refundd::playground::judge::{Judged, judge, judge_numbers};
use refundd::playground::stage::Stage;
use sqlx::{Connection, PgConnection};

use crate::lanes::{FREE, Lane, Lanes};
use crate::producer::Acknowledged;
use crate::rule::Algorithm;
use crate::world::Told;

/// What stands in Postgres in the end.
pub struct Rows {
    states: HashMap<String, String>,
    /// How many permits of each limit were spent for a refund.
    spent: HashMap<(String, String), usize>,
    /// Limit, window and number of each numbered permit.
    numbers: Vec<(String, i64, i32)>,
    pub attempts: i64,
}

impl Rows {
    pub async fn read(stage: &Stage) -> anyhow::Result<Rows> {
        let mut connection = PgConnection::connect(&stage.database_url()).await?;
        let states: Vec<(String, String)> = sqlx::query_as("select refund_ref, state from refundd.refunds")
            .fetch_all(&mut connection)
            .await?;
        let permits: Vec<(String, i64, i32, Option<String>)> = sqlx::query_as(
            "select p.limit_name, (extract(epoch from p.window_start) * 1000000)::bigint, p.ordinal, r.refund_ref
               from refundd.permits p left join refundd.refunds r on r.id = p.refund_id",
        )
        .fetch_all(&mut connection)
        .await?;
        let attempts =
            sqlx::query_scalar("select count(*) from refundd.attempts").fetch_one(&mut connection).await?;
        connection.close().await?;
        let mut spent = HashMap::new();
        let mut numbers = Vec::new();
        for (limit, window_us, ordinal, refund_ref) in permits {
            if let Some(refund_ref) = refund_ref {
                *spent.entry((limit.clone(), refund_ref)).or_default() += 1;
            }
            numbers.push((limit, window_us, ordinal));
        }
        Ok(Rows { states: states.into_iter().collect(), spent, numbers, attempts })
    }

    pub fn by_state(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for state in self.states.values() {
            *counts.entry(state.as_str()).or_default() += 1;
        }
        counts
    }
}

/// What was counted, and what was found.
#[derive(Debug, Default)]
pub struct Verdict {
    pub refunds: usize,
    pub arrivals: usize,
    pub spans: usize,
    pub plain: usize,
    pub worst: f64,
    /// Sent again after the bank had said that it had done nothing.
    pub repeats: usize,
    /// By promise; each with what it is about.
    pub violations: BTreeMap<&'static str, Vec<String>>,
}

impl Verdict {
    pub fn count(&self, promise: &str) -> usize {
        self.violations.get(promise).map_or(0, Vec::len)
    }

    pub fn add(&mut self, promise: &'static str, what: String) {
        self.violations.entry(promise).or_default().push(what);
    }
}

/// Whether these words of the bank say for certain that it executed nothing.
fn is_refusal_for_now(answered: Option<u16>) -> bool {
    matches!(answered, Some(401 | 403 | 407 | 425 | 429 | 503))
}

pub fn compare(lanes: &Lanes, told: &Acknowledged, ledger: &Ledger, rows: &Rows, faults: &[Told]) -> Verdict {
    let mut verdict =
        Verdict { refunds: rows.states.len(), arrivals: ledger.all().len(), ..Verdict::default() };
    let mut sent: HashMap<&str, Vec<&Arrival>> = HashMap::new();
    for arrival in ledger.all().iter().filter(|a| a.kind == Kind::Send && !a.refund_ref.is_empty()) {
        sent.entry(&*arrival.refund_ref).or_default().push(arrival);
    }
    for arrivals in sent.values_mut() {
        arrivals.sort_unstable_by_key(|arrival| arrival.at_us);
    }
    let never = Vec::new();
    for name in told.saved.iter().filter(|name| !rows.states.contains_key(*name)) {
        verdict.add("lost", format!("{name} was acknowledged and is not there"));
    }
    for name in sent.keys().filter(|name| !rows.states.contains_key(**name)) {
        verdict.add("lost", format!("{name} was sent and is not there"));
    }
    for name in &told.cancelled {
        if rows.states.get(name).is_some_and(|state| state != "cancelled") {
            verdict.add(
                "disagrees",
                format!("{name} was cancelled, so they said, and is {}", rows.states[name]),
            );
        }
    }
    for (name, state) in &rows.states {
        let arrivals = sent.get(name.as_str()).unwrap_or(&never);
        let executed = arrivals.iter().filter(|arrival| arrival.paid).count();
        match (state.as_str(), executed) {
            ("succeeded", 1..) | ("failed" | "cancelled", 0) | ("accepted" | "unknown" | "review", _) => {}
            ("ready" | "sending", _) => verdict.add("unfinished", format!("{name} is {state}")),
            _ => verdict.add("disagrees", format!("{name} is {state} and was executed {executed} times")),
        }
        if executed > 1 {
            verdict.add("doubled", format!("{name} was executed {executed} times"));
        }
        if state == "cancelled" && arrivals.iter().any(|arrival| !is_refusal_for_now(arrival.answered)) {
            verdict.add("disagrees", format!("{name} is cancelled, and may have been executed"));
        }
        for pair in arrivals.windows(2) {
            verdict.repeats += 1;
            if !is_refusal_for_now(pair[0].answered) {
                verdict.add("repeated", format!("{name} was sent again after {:?}", pair[0].answered));
            }
            if pair[0].ended_us.is_none_or(|ended| ended > pair[1].at_us) {
                verdict.add("two at once", name.clone());
            }
        }
    }
    for name in ledger.altered() {
        verdict.add("altered", name.to_owned());
    }
    for lane in &lanes.0 {
        permits(lane, &sent, rows, &mut verdict);
        pace(lane, ledger, rows, &mut verdict);
    }
    for fault in faults.iter().filter(|fault| fault.kind.starts_with("VIOLATION")) {
        verdict.add("others", fault.kind.clone());
    }
    verdict
}

/// Whether every request was made under a permit of its own.
fn permits(lane: &Lane, sent: &HashMap<&str, Vec<&Arrival>>, rows: &Rows, verdict: &mut Verdict) {
    for (name, arrivals) in sent {
        if !lane.channels.contains(&&*arrivals[0].channel) {
            continue;
        }
        let spent = rows.spent.get(&(lane.limit.to_owned(), (*name).to_owned())).copied().unwrap_or(0);
        if spent < arrivals.len() {
            verdict.add("without a permit", format!("{name}: {} requests, {spent} permits", arrivals.len()));
        }
    }
}

/// Whether any span held more than its limit.
fn pace(lane: &Lane, ledger: &Ledger, rows: &Rows, verdict: &mut Verdict) {
    let judged: Vec<Judged> = if lane.rule.algorithm == Algorithm::FixedWindow {
        // Its windows are Redis's, whose clock is set: its numbers are judged.
        let of_it = rows.numbers.iter().filter(|(limit, _, _)| limit == lane.limit);
        judge_numbers(of_it.map(|(_, window_us, ordinal)| (*window_us, *ordinal)), lane.rule.law())
    } else {
        let times: Vec<i64> =
            lane.channels.iter().flat_map(|channel| ledger.arrivals(channel)).map(|a| a.at_us).collect();
        judge(&times, &lane.periods)
    };
    for judged in judged {
        verdict.spans += 1;
        verdict.plain += usize::from(judged.plain);
        verdict.worst = verdict.worst.max(judged.share());
        if judged.is_above() {
            let Judged { start_us, per, count, most, .. } = judged;
            verdict.add(
                "over the limit",
                format!("{}: {count} of {most} within {per:?} from {start_us}", lane.limit),
            );
        }
    }
}

/// The longest time from the end of a fault of each kind to the next request of any channel, and to the
/// first moment by which every limited channel had sent.
pub fn pauses(lanes: &Lanes, ledger: &Ledger, faults: &[Told]) -> BTreeMap<String, (usize, i64, i64)> {
    let channels: Vec<&str> = lanes.channels().into_iter().filter(|name| *name != FREE).collect();
    let mut times: HashMap<&str, Vec<i64>> = HashMap::new();
    for arrival in ledger.all() {
        if let Some(channel) = channels.iter().find(|channel| ***channel == *arrival.channel) {
            times.entry(channel).or_default().push(arrival.at_us);
        }
    }
    for times in times.values_mut() {
        times.sort_unstable();
    }
    let last = ledger.all().iter().map(|arrival| arrival.at_us).max().unwrap_or(0);
    let mut longest: BTreeMap<String, (usize, i64, i64)> = BTreeMap::new();
    for fault in faults {
        let next = |times: &Vec<i64>| {
            times.get(times.partition_point(|at| *at <= fault.healed_us)).map(|at| at - fault.healed_us)
        };
        let waits: Vec<i64> = times.values().filter_map(next).collect();
        let of = longest.entry(fault.kind.clone()).or_default();
        of.0 += 1;
        // At the very end nothing is left to be sent.
        if fault.healed_us + 20_000_000 < last {
            of.1 = of.1.max(waits.iter().copied().min().unwrap_or(0));
            of.2 = of.2.max(waits.iter().copied().max().unwrap_or(0));
        }
    }
    longest
}
