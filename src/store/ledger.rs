//! The ledger of permits: the generation of each limit, the spent permits, and how long they are kept.
//!
//! Claims write the permits of refunds (`claim.rs`); this file writes only the permits of other services. The ledger
//! grants nothing: Redis grants, and the ledger takes each number once.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::{Doing, Store, StoreError, micros};
use crate::limiter::{Forgotten, LedgerCount, Limit, Past, Permit, ServerId};
use crate::refund::LimitName;

// Begins a generation after a new rule or a lost count: permits that were granted before and not claimed become void.
// The update waits for claims that are under way, because they lock the row. So a statement that reads the permits
// after this one sees every permit that was ever spent. Numbered permits need no new generation when the same
// Redis ($6) forgot. Another Redis needs one, because it may count by another clock.
// $5 is how far back the new rule looks. An older rule's permits may still count under the new rule, even when
// another rule was in force between the two.
const ADOPT: &str = "
    insert into refundd.limits as l (limit_name, rule, adopted_by, server, server_since) values ($1, $2::text::jsonb, $3, $6, clock_timestamp())
        on conflict (limit_name) do update
       set generation = l.generation + 1, rule = excluded.rule, adopted_at = now(), adopted_by = excluded.adopted_by, server = excluded.server,
           server_since = case when l.server = excluded.server then l.server_since else clock_timestamp() end,
           older_us = case
               when refundd.rule_shape(l.rule) = refundd.rule_shape(excluded.rule) then l.older_us
               when l.older_at > now() - (l.older_us + $5) * interval '1 microsecond' then greatest(l.older_us, refundd.rule_reach(l.rule, excluded.rule))
               else refundd.rule_reach(l.rule, excluded.rule) end,
           older_at = case when refundd.rule_shape(l.rule) = refundd.rule_shape(excluded.rule) then l.older_at else now() end
     where not $4 or l.rule <> excluded.rule or l.server is distinct from excluded.server
    returning generation";

// `older_us` is how far back permits of an older rule may still count; 0 for none. $2 is how far back the present
// rule looks.
const GENERATION: &str = "
    select generation, case when older_at > now() - (older_us + $2) * interval '1 microsecond' then older_us else 0 end as older_us,
           coalesce(server, '') as server, (extract(epoch from clock_timestamp() - server_since) * 1000000)::bigint as server_for_us
      from refundd.limits where limit_name = $1";

// Takes the greater of two counts: the highest number of this window, and the permits that may have been used
// inside the window. The second count includes permits of windows of another length ($4).
const SPENT: &str = "
    select greatest(
        (select coalesce(max(ordinal), 0)::bigint from refundd.permits
          where limit_name = $1 and window_start = timestamptz 'epoch' + $2 * interval '1 microsecond'),
        (select count(*) from refundd.permits
          where limit_name = $1
            and window_start > timestamptz 'epoch' + ($2 - greatest($4, 1)) * interval '1 microsecond'
            and window_start < timestamptz 'epoch' + $3 * interval '1 microsecond'))";

// For a window that is longer than a permit lives, after another Redis server took over. Counts the permits of the
// former server that may have been used since this window began, $4 ago. The window that the former server's clock
// named does not matter.
const SPENT_ELSEWHERE: &str = "
    select count(*)
      from refundd.permits p join refundd.limits l using (limit_name)
     where p.limit_name = $1 and p.window_start > timestamptz 'epoch' + $5 * interval '1 microsecond'
       and (p.window_start >= timestamptz 'epoch' + $2 * interval '1 microsecond' and p.window_start < timestamptz 'epoch' + $3 * interval '1 microsecond'
            or p.spent_at <= l.server_since and p.spent_at > clock_timestamp() - $4 * interval '1 microsecond')";

// How long until no permit of the former server can be used any more: $3 after the last one was spent. The answer
// matters for $4 more. Windows up to $2 are over by any clock.
const REST: &str = "
    select (extract(epoch from max(p.spent_at) - clock_timestamp()) * 1000000)::bigint + $3::bigint
      from refundd.permits p join refundd.limits l using (limit_name)
     where p.limit_name = $1 and p.window_start > timestamptz 'epoch' + $2 * interval '1 microsecond'
       and p.spent_at <= l.server_since and p.spent_at > clock_timestamp() - ($3::bigint + $4::bigint) * interval '1 microsecond'";

// Counts permits from $2 on in groups. Each group counts at the latest moment at which one of its permits may have
// been used, at most $3. The clock of the permits may be $5 behind the clock of $2. A permit that was written less
// than $6 ago counts whatever its date. A refund's permit opens at most $7 after it was written, a permit of another
// service at most $8.
const HISTORY: &str = "
    select least((extract(epoch from max(window_start)) * 1000000)::bigint + $4, greatest($3, (extract(epoch from max(window_start)) * 1000000)::bigint)) as at_us,
           count(*) as spent,
           (extract(epoch from clock_timestamp() - max(spent_at + case when caller is null then $7::bigint else $8::bigint end * interval '1 microsecond'))
            * 1000000)::bigint as over_us
      from refundd.permits
     where limit_name = $1 and window_start > timestamptz 'epoch' + ($2::bigint - $5::bigint) * interval '1 microsecond'
       and (window_start > timestamptz 'epoch' + $2 * interval '1 microsecond'
            or spent_at > clock_timestamp() - $6::bigint * interval '1 microsecond')
     group by width_bucket(extract(epoch from window_start) * 1000000, $2::bigint - $5::bigint, $3::bigint, 64)
     order by 1";

const SPEND: &str = include_str!("sql/spend.sql");

const LIMITS: &str = include_str!("sql/limits_with_permits.sql");

const KEPT_FOR: &str = "select (extract(epoch from refundd.permits_are_kept_for($1 * interval '1 microsecond')) * 1000000)::bigint";

const ROTATE: &str = "select refundd.turn_permits($1 * interval '1 microsecond')";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("adopt", ADOPT),
    ("generation", GENERATION),
    ("spent", SPENT),
    ("spent_elsewhere", SPENT_ELSEWHERE),
    ("rest", REST),
    ("history", HISTORY),
    ("spend", SPEND),
    ("limits_with_permits", LIMITS),
    ("permits_are_kept_for", KEPT_FOR),
    ("rotate_permits", ROTATE),
];

/// The result of spending permits that were granted to another service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// The ledger has all the permits now.
    Yes,
    /// The ledger had a number already, or the generation is over. None of the permits is good.
    Refused,
    /// Redis's clock is too far from Postgres's clock. No permit was spent.
    ClocksApart,
}

impl Store {
    /// Two time zone databases may give one day two beginnings, at most so many us apart.
    const OTHER_EDGES: i64 = 12 * 3_600_000_000;

    /// Decides a limit's generation after Redis forgot its count or the rule changed, and counts the spent permits.
    /// `tolerance` is how far Redis's clock may be from Postgres's clock.
    pub async fn adopt(
        &self,
        forgotten: &Forgotten,
        node: &str,
        tolerance: Duration,
    ) -> Result<LedgerCount, StoreError> {
        let Limit { name, rule, .. } = forgotten.limit.as_ref();
        let begun: Option<i64> = sqlx::query_scalar(ADOPT)
            .bind(name.as_str())
            .bind(rule.to_string())
            .bind(node)
            .bind(rule.algorithm.is_numbered())
            .bind(micros(rule.memory()))
            .bind(&forgotten.server.0)
            .maybe(&self.db)
            .await
            .doing("begin a limit's generation")?;
        let count = self.count_spent(&forgotten.limit, forgotten.now_us, forgotten.window, tolerance).await?;
        // If this call began a generation, it answers that one. If there is a newer one by now, the node that began
        // the newer one restores Redis under it.
        Ok(match begun {
            Some(generation) => LedgerCount { generation, server: forgotten.server.clone(), ..count },
            None => count,
        })
    }

    /// The present generation of a limit; 0 if no node has written the limit.
    pub async fn generation(&self, limit: &LimitName) -> Result<i64, StoreError> {
        let row = sqlx::query(GENERATION).bind(limit.as_str()).bind(0i64).maybe(&self.db).await;
        Ok(row.doing("read a limit's generation")?.map_or(0, |row| row.get("generation")))
    }

    /// Counts the spent permits of a limit that still count at `now_us` of Redis's time. `window` is the running
    /// window, in us of Redis's time.
    pub async fn count_spent(
        &self,
        limit: &Limit,
        now_us: i64,
        window: (i64, i64),
        tolerance: Duration,
    ) -> Result<LedgerCount, StoreError> {
        let memory = micros(limit.rule.memory());
        let row = sqlx::query(GENERATION)
            .bind(limit.name.as_str())
            .bind(memory)
            .one(&self.db.patient())
            .await
            .doing("read a limit's generation")?;
        let (generation, older): (i64, i64) = (row.get("generation"), row.get("older_us"));
        let server = ServerId(row.get("server"));
        let mut count =
            LedgerCount { generation, window_start_us: window.0, server, ..LedgerCount::default() };
        // A claim commits before its permits open. Another service may get a permit that opens even later.
        let lead = micros(limit.ahead + Permit::LONGEST_LEAD_TIME);
        if limit.rule.window().is_some() {
            count.used = sqlx::query_scalar(SPENT)
                .bind(limit.name.as_str())
                .bind(window.0)
                .bind(window.1)
                .bind(if limit.rule.zone().is_some() { older.max(Self::OTHER_EDGES) } else { older })
                .one(&self.db.patient())
                .await
                .doing("read the ledger of permits")?;
            let server_for = row.get::<Option<i64>, _>("server_for_us").unwrap_or(i64::MAX);
            self.after_a_takeover(limit, (now_us, window), tolerance, (server_for, older), &mut count)
                .await?;
        }
        // For fixed windows: permits of windows after the running one, and permits of an older rule that may reach
        // beyond it. For the other algorithms: all permits that still count.
        let from = match limit.rule.window() {
            Some(_) if older == 0 => window.1 - 1,
            Some(_) => window.0 - older,
            None => now_us - memory - older,
        };
        // Numbered permits name their window, and their numbers keep the limit. For the other algorithms the age of
        // a permit counts, and the clock of another server does not show that age.
        let is_dated = !limit.rule.algorithm.is_numbered();
        let apart = if is_dated { 2 * micros(tolerance) } else { 0 };
        let furthest = lead.max(micros(Permit::NEXT_SLOT));
        let rows = sqlx::query(HISTORY)
            .bind(limit.name.as_str())
            .bind(from)
            .bind((now_us + micros(Permit::LIFETIME)).max(from + 1))
            .bind(older)
            .bind(apart)
            .bind(if is_dated { memory + older + furthest } else { 0 })
            .bind(lead)
            .bind(furthest)
            .all(&self.db.patient())
            .await
            .doing("read the ledger of permits")?;
        let past = |row: &PgRow| Past {
            at_us: row.get("at_us"),
            count: row.get("spent"),
            over_us: row.get::<Option<i64>, _>("over_us").map(|over| over - older),
        };
        count.history = rows.iter().map(past).collect();
        Ok(count)
    }

    /// Adds the permits of fixed windows that the former Redis server granted before the present one took over,
    /// `server_for` us ago. The former server counted by its own clock, so its windows begin at other times.
    async fn after_a_takeover(
        &self,
        limit: &Limit,
        (now_us, window): (i64, (i64, i64)),
        tolerance: Duration,
        (server_for, older): (i64, i64),
        count: &mut LedgerCount,
    ) -> Result<(), StoreError> {
        let longest = micros(limit.rule.per).max(older);
        let rest = longest.min(micros(Permit::LIFETIME)) + micros(limit.ahead + Permit::LONGEST_LEAD_TIME);
        let day = if limit.rule.zone().is_some() { Self::OTHER_EDGES } else { 0 };
        // A span that touches the end of the former server's permits then touches one window of the present server,
        // not two.
        let still = if limit.rule.per <= Permit::LIFETIME { micros(limit.rule.per) } else { 0 };
        let oldest = now_us - longest - day - rest - still - 2 * micros(tolerance);
        if server_for < rest + still {
            count.rest_us = sqlx::query_scalar(REST)
                .bind(limit.name.as_str())
                .bind(oldest)
                .bind(rest)
                .bind(still)
                .one(&self.db.patient())
                .await
                .doing("read the ledger of permits")?;
        }
        let since = now_us - window.0 + rest;
        if limit.rule.per > Permit::LIFETIME && server_for < since {
            let spent: i64 = sqlx::query_scalar(SPENT_ELSEWHERE)
                .bind(limit.name.as_str())
                .bind(window.0)
                .bind(window.1)
                .bind(since)
                .bind(oldest - longest)
                .one(&self.db.patient())
                .await
                .doing("read the ledger of permits")?;
            count.used = count.used.max(spent);
        }
        Ok(())
    }

    /// Writes to the ledger the permits that were granted to another service.
    pub async fn spend(
        &self,
        permits: &[Permit],
        caller: &str,
        node: &str,
        tolerance: Duration,
    ) -> Result<Spent, StoreError> {
        let numbers = || permits.iter().flat_map(|permit| &permit.numbers);
        let span = permits.first().and_then(|permit| permit.span);
        let row = sqlx::query(SPEND)
            .bind(numbers().map(|n| n.limit.as_str()).collect::<Vec<_>>())
            .bind(numbers().map(|n| n.window_start_us).collect::<Vec<i64>>())
            .bind(numbers().map(|n| n.ordinal).collect::<Vec<i32>>())
            .bind(numbers().map(|n| n.generation).collect::<Vec<i64>>())
            .bind(caller)
            .bind(node)
            .bind(span.map_or(0, |s| s.opens_us))
            .bind(span.map_or(0, |s| s.closes_us))
            .bind(micros(tolerance))
            .one(&self.db)
            .await
            .doing("spend permits for another service")?;
        Ok(match (row.get::<bool, _>("is_timely"), row.get::<i64, _>("spent")) {
            (false, _) => Spent::ClocksApart,
            (true, spent) if usize::try_from(spent) == Ok(numbers().count()) => Spent::Yes,
            (true, _) => Spent::Refused,
        })
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
    /// in use wait for the next call.
    pub async fn rotate_permits(&self, keep: Duration) -> Result<i32, StoreError> {
        sqlx::query_scalar(ROTATE)
            .bind(micros(keep))
            .one(&self.db.patient())
            .await
            .doing("forget the oldest days of the ledger of permits")
    }
}
