//! Reads what a forecast needs: the state of channels, the rules in force, and the permits that are spent.
//!
//! Nothing here forecasts: `desk` does.

use std::time::Duration;

use sqlx::Row;

use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError};
use crate::forecast::{Climb, SpentPermits};
use crate::limiter::Rule;
use crate::refund::{ChannelName, RefundId};

/// One channel, for a forecast.
#[derive(Debug, Clone)]
pub struct ChannelOutlook {
    pub channel: String,
    /// The limits that the nodes published.
    pub limits: Vec<String>,
    /// Whether inquiries spend permits of these limits, too.
    pub inquiries_share: bool,
    pub max_in_flight: Option<u32>,
    /// How many living nodes run it.
    pub nodes: u32,
    /// Whether it is suspended until somebody acts.
    pub is_paused: bool,
    /// How long it is suspended otherwise: by a pause with an end, or by cooling.
    pub cooling: Option<Duration>,
    pub slow: Option<Climb>,
    /// Refunds that become due later: in how long, and how many.
    pub later: Vec<(Duration, u64)>,
    /// Inquiries that are due.
    pub inquiries: u64,
    /// Refunds that may be sent again before the others.
    pub resends: u64,
    /// Postgres's time.
    pub now_us: i64,
}

/// The rule of a limit.
#[derive(Debug, Clone)]
pub struct RuleInForce {
    pub limit: String,
    /// As a node published it last; `None` if it is of another version.
    pub published: Option<Rule>,
    /// By which Redis counts.
    pub adopted: Option<Rule>,
}

const OUTLOOK: Statement = statement!(include_str!("sql/outlook.sql"));

const PUBLISHED_LIMITS: &str = "
    select c.channel,
           array(select l ->> 'name' from jsonb_array_elements(case when jsonb_typeof(c.settings -> 'limits') = 'array' then c.settings -> 'limits' end) l
                  where l ->> 'name' is not null) as limits
      from refundd.channels c where jsonb_typeof(c.settings -> 'limits') = 'array'";

const RULES_IN_FORCE: &str = "
    select a.limit_name, adopted.rule::text as adopted,
           (select r.rule::text from refundd.limit_rules r where r.limit_name = a.limit_name order by r.published_at desc limit 1) as published
      from unnest($1::text[]) as a (limit_name) left join refundd.limits adopted on adopted.limit_name = a.limit_name
     order by a.limit_name";

// The highest number of each window: one probe of the ledger's key.
const SPENT_OF_WINDOWS: &str = "
    select a.limit_name, a.window_us as at_us, last.ordinal::bigint as spent
      from unnest($1::text[], $2::bigint[]) as a (limit_name, window_us)
     cross join lateral (
         select p.ordinal from refundd.permits p
          where p.limit_name = a.limit_name and p.window_start = timestamptz 'epoch' + a.window_us * interval '1 microsecond'
          order by p.ordinal desc limit 1) last";

const SPENT_OF_SPANS: Statement = statement!(
    "
    select a.limit_name, (extract(epoch from max(p.window_start)) * 1000000)::bigint as at_us, count(*) as spent
      from unnest(:limit_name::text[], :from_us::bigint[], :step_us::bigint[]) as a (limit_name, from_us, step_us)
      join refundd.permits p on p.limit_name = a.limit_name
       and p.window_start > timestamptz 'epoch' + a.from_us * interval '1 microsecond'
     group by a.limit_name, ((extract(epoch from p.window_start) * 1000000)::bigint - a.from_us) / a.step_us
     order by a.limit_name, 2"
);

// The refunds of its channel that come before a refund that is ready: those that are due as one group, the others in
// groups as in `outlook`.
const BEFORE: &str = "
    select (extract(epoch from greatest(min(r.due_at) - now(), interval '0')) * 1000000)::bigint as in_us, count(*) as refunds
      from refundd.refunds one join refundd.refunds r on r.channel = one.channel and r.state = 'ready' and (r.due_at, r.id) < (one.due_at, one.id)
     where one.id = $1
     group by case when r.due_at <= now() then -1 else floor(8 * ln(1 + extract(epoch from r.due_at - now())::float8)) end
     order by 1";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("outlook", OUTLOOK.sql),
    ("published_limits", PUBLISHED_LIMITS),
    ("rules_in_force", RULES_IN_FORCE),
    ("spent_of_windows", SPENT_OF_WINDOWS),
    ("spent_of_spans", SPENT_OF_SPANS.sql),
    ("before", BEFORE),
];

fn micros_of(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

impl Store {
    /// What a forecast of these channels needs.
    pub async fn outlook(&self, channels: &[ChannelName]) -> Result<Vec<ChannelOutlook>, StoreError> {
        let names: Vec<&str> = channels.iter().map(ChannelName::as_str).collect();
        let query = bind!(OUTLOOK, channel: names);
        let rows = query.all(&self.db.patient()).await.doing("read what a forecast needs")?;
        let read = |row: &sqlx::postgres::PgRow| {
            let (in_us, refunds): (Vec<i64>, Vec<i64>) = (row.get("later_us"), row.get("later_refunds"));
            let slow = row.get::<Option<i32>, _>("slow_percent").map(|percent| Climb {
                percent: i64::from(percent),
                ceiling: row.get::<Option<i32>, _>("slow_ceiling").map_or(100, i64::from),
                step: row.get::<Option<i64>, _>("slow_step_us").unwrap_or(1_000_000) as f64 / 1e6,
                since: row.get::<Option<i64>, _>("slow_for_us").unwrap_or(0) as f64 / 1e6,
            });
            ChannelOutlook {
                channel: row.get("channel"),
                limits: row.get("limits"),
                inquiries_share: row.get("inquiries_share"),
                max_in_flight: row
                    .get::<Option<i32>, _>("max_in_flight")
                    .and_then(|most| u32::try_from(most).ok()),
                nodes: u32::try_from(row.get::<i64, _>("nodes")).unwrap_or(u32::MAX),
                is_paused: row.get("is_paused"),
                cooling: row.get::<Option<i64>, _>("cooling_us").map(micros_of),
                slow,
                later: in_us.into_iter().map(micros_of).zip(refunds.into_iter().map(number)).collect(),
                inquiries: number(row.get("inquiries")),
                resends: number(row.get("resends")),
                now_us: row.get("now_us"),
            }
        };
        Ok(rows.iter().map(read).collect())
    }

    /// The names of each channel's limits, as a node published them.
    pub async fn published_limits(&self) -> Result<Vec<(String, Vec<String>)>, StoreError> {
        let rows = sqlx::query(PUBLISHED_LIMITS).all(&self.db.patient()).await;
        let rows = rows.doing("read the limits of channels")?;
        Ok(rows.iter().map(|row| (row.get("channel"), row.get("limits"))).collect())
    }

    /// The rules of these limits.
    pub async fn rules_in_force(&self, limits: &[String]) -> Result<Vec<RuleInForce>, StoreError> {
        let rows = sqlx::query(RULES_IN_FORCE).bind(limits).all(&self.db.patient()).await;
        let rows = rows.doing("read the rules of limits")?;
        let rule = |text: Option<String>| text.and_then(|text| text.parse().ok());
        let read = |row: &sqlx::postgres::PgRow| RuleInForce {
            limit: row.get("limit_name"),
            published: rule(row.get("published")),
            adopted: rule(row.get("adopted")),
        };
        Ok(rows.iter().map(read).collect())
    }

    /// The permits of these limits that are spent and still count, each with its limit: of the running window, which
    /// begins at the given time, or of the last span.
    pub async fn spent_permits(
        &self,
        windows: &[(String, i64)],
        spans: &[(String, i64, i64)],
    ) -> Result<Vec<(String, SpentPermits)>, StoreError> {
        const DOING: &str = "read the ledger of permits";
        let mut rows = Vec::new();
        if !windows.is_empty() {
            let (names, starts): (Vec<&str>, Vec<i64>) =
                windows.iter().map(|(name, start)| (name.as_str(), *start)).unzip();
            let query = sqlx::query(SPENT_OF_WINDOWS).bind(names).bind(starts);
            rows.extend(query.all(&self.db.patient()).await.doing(DOING)?);
        }
        if !spans.is_empty() {
            let query = bind!(
                SPENT_OF_SPANS,
                limit_name: spans.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(),
                from_us: spans.iter().map(|(_, from, _)| *from).collect::<Vec<_>>(),
                step_us: spans.iter().map(|(.., step)| (*step).max(1)).collect::<Vec<_>>(),
            );
            rows.extend(query.all(&self.db.patient()).await.doing(DOING)?);
        }
        let read = |row: &sqlx::postgres::PgRow| {
            let spent = SpentPermits { at_us: row.get("at_us"), count: number(row.get("spent")) };
            (row.get("limit_name"), spent)
        };
        Ok(rows.iter().map(read).collect())
    }

    /// The refunds that come before a refund that is ready: in how long they are due, and how many.
    pub async fn refunds_before(&self, id: RefundId) -> Result<Vec<(Duration, u64)>, StoreError> {
        let rows = sqlx::query(BEFORE).bind(id.0).all(&self.db.patient()).await;
        let rows = rows.doing("count the refunds before a refund")?;
        Ok(rows.iter().map(|row| (micros_of(row.get("in_us")), number(row.get("refunds")))).collect())
    }
}
