//! The generation of each limit, and the count of its spent permits that restores Redis.
//!
//! A new generation makes the permits void that were granted before and not claimed. The count looks as far back as a
//! spent permit still counts under the present rule.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, micros};
use crate::limiter::{Forgotten, LedgerCount, Limit, Permit, ServerId, SpentGroup};
use crate::refund::LimitName;

// Begins a generation after a new rule or a lost count: permits that were granted before and not claimed become void.
// The update waits for claims that are under way, because they lock the row. So a statement that reads the permits
// after this one sees every permit that was ever spent. Numbered permits need no new generation when the same
// Redis (`:server`) forgot. Another Redis needs one, because it may count by another clock.
// `:memory_us` is how far back the new rule looks. An older rule's permits may still count under the new rule, even when
// another rule was in force between the two.
const ADOPT: Statement = statement!(
    "
    insert into refundd.limits as l (limit_name, rule, adopted_by, server, server_since) values (:limit_name, :rule::text::jsonb, :node, :server, clock_timestamp())
        on conflict (limit_name) do update
       set generation = l.generation + 1, rule = excluded.rule, adopted_at = now(), adopted_by = excluded.adopted_by, server = excluded.server,
           server_since = case when l.server = excluded.server then l.server_since else clock_timestamp() end,
           older_us = case
               when refundd.rule_shape(l.rule) = refundd.rule_shape(excluded.rule) then l.older_us
               when l.older_at > now() - (l.older_us + :memory_us) * interval '1 microsecond' then greatest(l.older_us, refundd.rule_reach(l.rule, excluded.rule))
               else refundd.rule_reach(l.rule, excluded.rule) end,
           older_at = case when refundd.rule_shape(l.rule) = refundd.rule_shape(excluded.rule) then l.older_at else now() end
     where not :is_numbered or l.rule <> excluded.rule or l.server is distinct from excluded.server
    returning generation"
);

// `older_us` is how far back permits of an older rule may still count; 0 for none. $2 is how far back the present
// rule looks.
const GENERATION: &str = "
    select generation, case when older_at > now() - (older_us + $2) * interval '1 microsecond' then older_us else 0 end as older_us,
           coalesce(server, '') as server, (extract(epoch from clock_timestamp() - server_since) * 1000000)::bigint as server_for_us
      from refundd.limits where limit_name = $1";

// Takes the greater of two counts: the highest number of this window, and the permits that may have been used
// inside the window. The second count includes permits of windows of another length (`:older_us`).
const SPENT: Statement = statement!(
    "
    select greatest(
        (select coalesce(max(ordinal), 0)::bigint from refundd.permits
          where limit_name = :limit_name and window_start = timestamptz 'epoch' + :start_us * interval '1 microsecond'),
        (select count(*) from refundd.permits
          where limit_name = :limit_name
            and window_start > timestamptz 'epoch' + (:start_us - greatest(:older_us, 1)) * interval '1 microsecond'
            and window_start < timestamptz 'epoch' + :end_us * interval '1 microsecond')) as spent"
);

// For a window that is longer than a permit lives, after another Redis server took over. Counts the permits of the
// former server that may have been used since this window began, `:since_us` ago. The window that the former server's
// clock named does not matter.
const SPENT_ELSEWHERE: Statement = statement!(
    "
    select count(*) as spent
      from refundd.permits p join refundd.limits l using (limit_name)
     where p.limit_name = :limit_name and p.window_start > timestamptz 'epoch' + :oldest_us * interval '1 microsecond'
       and (p.window_start >= timestamptz 'epoch' + :start_us * interval '1 microsecond' and p.window_start < timestamptz 'epoch' + :end_us * interval '1 microsecond'
            or p.spent_at <= l.server_since and p.spent_at > clock_timestamp() - :since_us * interval '1 microsecond')"
);

// How long until no permit of the former server can be used any more: `:rest_us` after the last one was spent. The
// answer matters for `:still_us` more. Windows up to `:oldest_us` are over by any clock.
const REST: Statement = statement!(
    "
    select (extract(epoch from max(p.spent_at) - clock_timestamp()) * 1000000)::bigint + :rest_us::bigint as rest_us
      from refundd.permits p join refundd.limits l using (limit_name)
     where p.limit_name = :limit_name and p.window_start > timestamptz 'epoch' + :oldest_us * interval '1 microsecond'
       and p.spent_at <= l.server_since and p.spent_at > clock_timestamp() - (:rest_us::bigint + :still_us::bigint) * interval '1 microsecond'"
);

// Counts permits from `:from_us` on in groups. Each group counts at the latest moment at which one of its permits may
// have been used, at most `:to_us`. The clock of the permits may be `:apart_us` behind the clock of `:from_us`. A permit
// that was written less than `:undated_us` ago counts whatever its date. A refund's permit opens at most `:lead_us` after
// it was written, a permit of another service at most `:furthest_us`. The ledger's own count after a claim takes the latest of
// these moments for a permit of another clock, and the next permit is written up to `:lead_us` before it opens: so that much
// is added, and that count refuses nothing that Redis grants now.
const HISTORY: Statement = statement!(
    "
    select least((extract(epoch from max(window_start)) * 1000000)::bigint + :older_us, greatest(:to_us, (extract(epoch from max(window_start)) * 1000000)::bigint)) as at_us,
           count(*) as spent,
           (extract(epoch from clock_timestamp() - max(spent_at + (case when caller is null then :lead_us::bigint else :furthest_us::bigint end + :lead_us) * interval '1 microsecond'))
            * 1000000)::bigint as over_us
      from refundd.permits
     where limit_name = :limit_name and window_start > timestamptz 'epoch' + (:from_us::bigint - :apart_us::bigint) * interval '1 microsecond'
       and (window_start > timestamptz 'epoch' + :from_us * interval '1 microsecond'
            or spent_at > clock_timestamp() - :undated_us::bigint * interval '1 microsecond')
     group by width_bucket(extract(epoch from window_start) * 1000000, :from_us::bigint - :apart_us::bigint, :to_us::bigint, 64)
     order by 1"
);

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("adopt", ADOPT.sql),
    ("generation", GENERATION),
    ("spent", SPENT.sql),
    ("spent_elsewhere", SPENT_ELSEWHERE.sql),
    ("rest", REST.sql),
    ("history", HISTORY.sql),
];

impl Store {
    /// Two time zone databases may give one day two beginnings, at most so many us apart.
    const OTHER_EDGES: i64 = 12 * 3_600_000_000;
    /// How long after it opened a permit of an older rule may reach the bank: its life, and as long again for the way.
    const STILL_ON_THE_WAY: Duration = Duration::from_secs(2 * Permit::LIFETIME.as_secs());

    /// Decides a limit's generation after Redis forgot its count or the rule changed, and counts the spent permits.
    /// `tolerance` is how far Redis's clock may be from Postgres's clock.
    pub async fn adopt(
        &self,
        forgotten: &Forgotten,
        node: &str,
        tolerance: Duration,
    ) -> Result<LedgerCount, StoreError> {
        let Limit { name, rule, .. } = forgotten.limit.as_ref();
        let query = bind!(
            ADOPT,
            limit_name: name.as_str(),
            rule: rule.to_string(),
            node: node,
            is_numbered: rule.algorithm.is_numbered(),
            memory_us: micros(rule.memory()),
            server: forgotten.server.0,
        );
        let begun = query.maybe(&self.db).await.doing("begin a limit's generation")?;
        let count = self.count_spent(&forgotten.limit, forgotten.now_us, forgotten.window, tolerance).await?;
        // If this call began a generation, it answers that one. If there is a newer one by now, the node that began
        // the newer one restores Redis under it.
        Ok(match begun {
            Some(row) => LedgerCount {
                generation: row.get("generation"),
                server: forgotten.server.clone(),
                asked_to_restore_us: Some(forgotten.now_us),
                ..count
            },
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
            let query = bind!(
                SPENT,
                limit_name: limit.name.as_str(),
                start_us: window.0,
                end_us: window.1,
                older_us: if limit.rule.zone().is_some() { older.max(Self::OTHER_EDGES) } else { older },
            );
            let spent = query.one(&self.db.patient()).await.doing("read the ledger of permits")?;
            count.used = spent.get("spent");
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
        let query = bind!(
            HISTORY,
            limit_name: limit.name.as_str(),
            from_us: from,
            to_us: (now_us + micros(Permit::LIFETIME)).max(from + 1),
            older_us: older,
            apart_us: apart,
            undated_us: if is_dated { memory + older + furthest } else { 0 },
            lead_us: lead,
            furthest_us: furthest,
        );
        let rows = query.all(&self.db.patient()).await.doing("read the ledger of permits")?;
        // By Postgres's clock, a permit of an old window ends with its life, and not with the window.
        let still = older.min(micros(Self::STILL_ON_THE_WAY));
        let past = |row: &PgRow| SpentGroup {
            at_us: row.get("at_us"),
            count: row.get("spent"),
            over_us: row.get::<Option<i64>, _>("over_us").map(|over| over - still),
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
            let query = bind!(
                REST,
                limit_name: limit.name.as_str(),
                oldest_us: oldest,
                rest_us: rest,
                still_us: still,
            );
            let row = query.one(&self.db.patient()).await.doing("read the ledger of permits")?;
            count.rest_us = row.get("rest_us");
        }
        let since = now_us - window.0 + rest;
        if limit.rule.per > Permit::LIFETIME && server_for < since {
            let query = bind!(
                SPENT_ELSEWHERE,
                limit_name: limit.name.as_str(),
                start_us: window.0,
                end_us: window.1,
                since_us: since,
                oldest_us: oldest - longest,
            );
            let row = query.one(&self.db.patient()).await.doing("read the ledger of permits")?;
            count.used = count.used.max(row.get("spent"));
        }
        Ok(())
    }
}
