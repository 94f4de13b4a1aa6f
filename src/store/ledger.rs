//! The ledger of permits: under which generation they are good, what is spent, and how long it is kept.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::{Doing, Store, StoreError, micros};
use crate::limiter::{Forgotten, Limit, Past, Permit, ServerId, Told};
use crate::refund::LimitName;

// A new rule, or a count that was lost: what was granted and not claimed before is void from here on.
// The update waits for claims under way, which hold the row; so whoever reads the permits after it
// sees all that were ever spent. Numbered permits need no new generation when the same Redis ($6) forgot: another
// one may count by another clock. $5 is how far back the new rule looks: what an older rule's permits may still matter to it outlives the rule in between.
const ADOPT: &str = "
    insert into refundd.limits as l (limit_name, rule, adopted_by, server, server_since) values ($1, $2, $3, $6, clock_timestamp())
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

// How old windows still matter: $2 is how far back the new rule looks.
const GENERATION: &str = "
    select generation, case when older_at > now() - (older_us + $2) * interval '1 microsecond' then older_us else 0 end as older_us,
           coalesce(server, '') as server, (extract(epoch from clock_timestamp() - server_since) * 1000000)::bigint as server_for_us
      from refundd.limits where limit_name = $1";

// Counted two ways, and the greater counts: the highest number of this very window, and every permit
// that may have been spent inside it, under windows of another length ($4) too.
const SPENT: &str = "
    select greatest(
        (select coalesce(max(ordinal), 0)::bigint from refundd.permits
          where limit_name = $1 and window_start = timestamptz 'epoch' + $2 * interval '1 microsecond'),
        (select count(*) from refundd.permits
          where limit_name = $1
            and window_start > timestamptz 'epoch' + ($2 - greatest($4, 1)) * interval '1 microsecond'
            and window_start < timestamptz 'epoch' + $3 * interval '1 microsecond'))";

// Of a window that is longer than a permit lives, after another server took over: what that one granted, whatever
// window its clock named, if it may have left since this window began, $4 ago.
const SPENT_ELSEWHERE: &str = "
    select count(*)
      from refundd.permits p join refundd.limits l using (limit_name)
     where p.limit_name = $1 and p.window_start > timestamptz 'epoch' + $5 * interval '1 microsecond'
       and (p.window_start >= timestamptz 'epoch' + $2 * interval '1 microsecond' and p.window_start < timestamptz 'epoch' + $3 * interval '1 microsecond'
            or p.spent_at <= l.server_since and p.spent_at > clock_timestamp() - $4 * interval '1 microsecond')";

// When the last of what another server granted has left: $3 after it was spent. It matters for $4 more. Windows up to
// $2 are over by any clock.
const REST: &str = "
    select (extract(epoch from max(p.spent_at) - clock_timestamp()) * 1000000)::bigint + $3::bigint
      from refundd.permits p join refundd.limits l using (limit_name)
     where p.limit_name = $1 and p.window_start > timestamptz 'epoch' + $2 * interval '1 microsecond'
       and p.spent_at <= l.server_since and p.spent_at > clock_timestamp() - ($3::bigint + $4::bigint) * interval '1 microsecond'";

// In groups, each counted at the latest moment one of it may have been used: from $2 on, cut at $3. The
// clock that dated them may be $5 behind the one that dates $2; what was written down less than $6 ago
// counts whatever its date. A permit opens at most $7 after it was written down, one of another service $8.
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

const TURN: &str = "select refundd.turn_permits($1 * interval '1 microsecond')";

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
    ("turn_permits", TURN),
];

/// What became of permits granted to another service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    Yes,
    /// Some number was spent before, or the generation is over: none of them is good.
    Refused,
    /// Redis's clock is too far from Postgres's.
    ClocksApart,
}

impl Store {
    /// Days that begin so shortly before another one were named by another time zone database: the same day.
    const OTHER_EDGES: i64 = 12 * 3_600_000_000;

    /// Settles under which generation a limit's permits are good from now on, after Redis forgot what it
    /// had counted or the rule changed, and reads what was spent.
    /// `tolerance` is how far Redis's clock may be from Postgres's.
    pub async fn adopt(
        &self,
        forgotten: &Forgotten,
        node: &str,
        tolerance: Duration,
    ) -> Result<Told, StoreError> {
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
        let told = self.recollect(&forgotten.limit, forgotten.now_us, forgotten.window, tolerance).await?;
        // The one we began, if we did: a newer one is for whoever began that to tell of.
        Ok(match begun {
            Some(generation) => Told { generation, server: forgotten.server.clone(), ..told },
            None => told,
        })
    }

    /// Under which generation a limit's permits are good.
    pub async fn generation(&self, limit: &LimitName) -> Result<i64, StoreError> {
        let row = sqlx::query(GENERATION).bind(limit.as_str()).bind(0i64).maybe(&self.db).await;
        Ok(row.doing("read a limit's generation")?.map_or(0, |row| row.get("generation")))
    }

    /// Reads what was spent of a limit that matters at `now_us` of Redis's time.
    pub async fn recollect(
        &self,
        limit: &Limit,
        now_us: i64,
        window: (i64, i64),
        tolerance: Duration,
    ) -> Result<Told, StoreError> {
        let memory = micros(limit.rule.memory());
        let row = sqlx::query(GENERATION)
            .bind(limit.name.as_str())
            .bind(memory)
            .one(&self.db.patient())
            .await
            .doing("read a limit's generation")?;
        let (generation, older): (i64, i64) = (row.get("generation"), row.get("older_us"));
        let server = ServerId(row.get("server"));
        let mut told = Told { generation, window_start_us: window.0, server, ..Told::default() };
        // A claim is made ahead of the moment at which its permits open; another service may be granted a slot further ahead.
        let lead = micros(limit.ahead + Permit::MOST_HASTE);
        if limit.rule.window().is_some() {
            told.used = sqlx::query_scalar(SPENT)
                .bind(limit.name.as_str())
                .bind(window.0)
                .bind(window.1)
                .bind(if limit.rule.zone().is_some() { older.max(Self::OTHER_EDGES) } else { older })
                .one(&self.db.patient())
                .await
                .doing("read the ledger of permits")?;
            let server_for = row.get::<Option<i64>, _>("server_for_us").unwrap_or(i64::MAX);
            self.after_a_takeover(limit, (now_us, window), tolerance, (server_for, older), &mut told).await?;
        }
        // Of fixed windows, what lies beyond the one that runs, or may come to under an older rule; of the
        // others, all that still counts.
        let from = match limit.rule.window() {
            Some(_) if older == 0 => window.1 - 1,
            Some(_) => window.0 - older,
            None => now_us - memory - older,
        };
        // Windows are named by their clock, and their numbers keep the limit; of the others the age
        // counts, which a clock of another server does not tell.
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
        told.history = rows.iter().map(past).collect();
        Ok(told)
    }

    /// What another server granted of fixed windows before this one took over, `server_for` us ago. It went by that
    /// server's clock, and its windows lie elsewhere.
    async fn after_a_takeover(
        &self,
        limit: &Limit,
        (now_us, window): (i64, (i64, i64)),
        tolerance: Duration,
        (server_for, older): (i64, i64),
        told: &mut Told,
    ) -> Result<(), StoreError> {
        let longest = micros(limit.rule.per).max(older);
        let rest = longest.min(micros(Permit::LIFETIME)) + micros(limit.ahead + Permit::MOST_HASTE);
        let day = if limit.rule.zone().is_some() { Self::OTHER_EDGES } else { 0 };
        // A span that meets the end of what the other server granted meets one window of this one, not two.
        let still = if limit.rule.per <= Permit::LIFETIME { micros(limit.rule.per) } else { 0 };
        let oldest = now_us - longest - day - rest - still - 2 * micros(tolerance);
        if server_for < rest + still {
            told.rest_us = sqlx::query_scalar(REST)
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
            told.used = told.used.max(spent);
        }
        Ok(())
    }

    /// Spends permits that were granted to another service.
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

    /// Every limit of which permits are kept.
    pub async fn limits_with_permits(&self) -> Result<Vec<LimitName>, StoreError> {
        let names: Vec<String> = sqlx::query_scalar(LIMITS)
            .all(&self.db.patient())
            .await
            .doing("list the limits of the ledger")?;
        Ok(names.iter().map(|name| LimitName::stored(name)).collect())
    }

    /// How long permits are kept where the file says `keep`: not shorter than the limits of all nodes need.
    pub async fn permits_are_kept_for(&self, keep: Duration) -> Result<Duration, StoreError> {
        let us: i64 = sqlx::query_scalar(KEPT_FOR)
            .bind(micros(keep))
            .one(&self.db.patient())
            .await
            .doing("read how long permits count")?;
        Ok(Duration::from_micros(u64::try_from(us).unwrap_or_default()))
    }

    /// Makes the tables of the ledger's next days, and forgets the days that ended longer than `keep` ago;
    /// answers how many days were dropped. The database keeps what may still count, whatever `keep` is. What stands in the way is left for the next call.
    pub async fn turn_permits(&self, keep: Duration) -> Result<i32, StoreError> {
        sqlx::query_scalar(TURN)
            .bind(micros(keep))
            .one(&self.db.patient())
            .await
            .doing("forget the oldest days of the ledger of permits")
    }
}
