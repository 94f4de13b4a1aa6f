//! The ledger of permits: what is spent of a window, and how long it is kept.

use std::time::Duration;

use super::{Doing, Store, StoreError, micros};
use crate::refund::LimitName;

// Counted two ways, and the greater counts: the highest number of this very window, and every permit
// that may have been spent inside it, under windows of another length ($4) too.
const SPENT: &str = "
    select greatest(
        (select coalesce(max(ordinal), 0)::bigint from refundd.permits
          where limit_name = $1 and window_start = timestamptz 'epoch' + $2 * interval '1 microsecond'),
        (select count(*) from refundd.permits
          where limit_name = $1
            and window_start > timestamptz 'epoch' + ($2 - greatest($4, 1)) * interval '1 microsecond'
            and window_start < timestamptz 'epoch' + ($2 + $3) * interval '1 microsecond'))";

const PRUNE: &str = "
    delete from refundd.permits where ctid = any(array(
        select ctid from refundd.permits
         where limit_name = $1 and window_start < now() - $2 * interval '1 microsecond'
         order by window_start limit 5000))";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("spent", SPENT), ("prune", PRUNE)];

impl Store {
    /// How many permits of the window that starts at `window_start_us` are spent. `older` is the length
    /// of the windows the limit counted in before, if it was changed.
    pub async fn spent(
        &self,
        limit: &LimitName,
        window_start_us: i64,
        per: Duration,
        older_us: i64,
    ) -> Result<i32, StoreError> {
        let spent: i64 = sqlx::query_scalar(SPENT)
            .bind(limit.as_str())
            .bind(window_start_us)
            .bind(micros(per))
            .bind(if older_us == micros(per) { 0 } else { older_us })
            .fetch_one(&self.pool)
            .await
            .doing("read the ledger of permits")?;
        Ok(i32::try_from(spent).unwrap_or(i32::MAX))
    }

    /// Forgets some permits older than `keep`; answers how many, 5,000 at most.
    pub async fn prune_permits(&self, limit: &LimitName, keep: Duration) -> Result<u64, StoreError> {
        let done = sqlx::query(PRUNE).bind(limit.as_str()).bind(micros(keep)).execute(&self.pool).await;
        Ok(done.doing("prune the ledger of permits")?.rows_affected())
    }
}
