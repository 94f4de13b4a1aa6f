//! Proofs of past periods: reads the ledger and the journal of one limit, and lets [`crate::prove`] judge.
//!
//! The command `refundd prove` and the page use it. It reads only Postgres and changes nothing.

mod limits;
pub mod report;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::prove::{Findings, History, Opening, Period, Prover, Scope, Unproven, Why};
use crate::store::{JournalCheck, JournalQuery, Provable, Replayed, Store, StoreError};
pub use limits::limits_of;
use limits::{channels_with, names_of};

/// The proof of one limit.
#[derive(Debug)]
pub struct Proved {
    pub limit: String,
    /// The names of the limit's shares, whose permits count together as the limit's. Empty if nodes do not count by shares.
    shares: Vec<String>,
    period: Period,
    history: History,
    scope: Scope,
    findings: Findings,
    journal_check: JournalCheck,
    /// The time from which the journal is whole; `None` if it is whole for the proven period.
    journal_since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitVerdict {
    Kept,
    Broken,
    /// Nothing could be proven, or some spans stay in doubt.
    Unproven,
}

impl LimitVerdict {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LimitVerdict::Kept => "held",
            LimitVerdict::Broken => "broken",
            LimitVerdict::Unproven => "unproven",
        }
    }
}

impl Proved {
    #[must_use]
    pub fn verdict(&self) -> LimitVerdict {
        let JournalCheck { without, unknown, again, first_bytes: _ } = self.journal_check;
        if self.findings.broken.count + without.count + unknown.count + again.count > 0 {
            LimitVerdict::Broken
        } else if self.scope.provable.is_empty() || self.findings.doubtful.count > 0 {
            LimitVerdict::Unproven
        } else {
            LimitVerdict::Kept
        }
    }

    /// Whether the limit held, and parts of the period could not be proven.
    fn is_held_in_part(&self) -> bool {
        self.verdict() == LimitVerdict::Kept && !self.scope.unproven.is_empty()
    }

    /// Permits for refunds under which the journal has no first byte.
    fn unused(&self) -> u64 {
        let JournalCheck { first_bytes, unknown, again, .. } = self.journal_check;
        self.findings.refunds.saturating_sub(first_bytes.saturating_sub(unknown.count.max(again.count)))
    }
}

/// Proves one limit.
///
/// If a day of the period is dropped from the ledger meanwhile, the proof is made again, of the days that are left. On a standby
/// nothing is proven of the time that it has not replayed.
///
/// `clocks` is the largest difference between Redis's clock and Postgres's clock. `tell` hears now and then how far the
/// proof is.
///
/// # Errors
/// When Postgres fails.
pub async fn prove_one(
    store: &Store,
    known: &Provable,
    limit: String,
    period: Period,
    now: Timestamp,
    clocks: Duration,
    tell: &mut (dyn FnMut(fmt::Arguments<'_>) + Send),
) -> Result<Proved, StoreError> {
    let names = names_of(&limit, known);
    let mut at = Horizon::read(store, &names, now, clocks).await?;
    loop {
        let proved = prove_from(store, known, &limit, period, at, clocks, tell).await?;
        let still_oldest = store.oldest_permit_us(&names).await?;
        // Without permits nothing could be dropped.
        if at.oldest.is_none() || still_oldest == at.oldest {
            return Ok(proved);
        }
        at = Horizon::read(store, &names, store.now().await?, clocks).await?;
        if at.scope(period, &proved.history).provable == proved.scope.provable {
            return Ok(proved);
        }
        tell(format_args!("limit {limit}: a day was dropped from the ledger, so the proof begins again"));
    }
}

/// Of which time a server has the ledger.
#[derive(Debug, Clone, Copy)]
struct Horizon {
    /// The oldest permit in the ledger.
    oldest: Option<i64>,
    /// The time at which that was read. On a standby, the time of the ledger that it has.
    now_us: i64,
    /// The ledger and the journal have everything that is dated before this; `i64::MAX` on a primary.
    whole_us: i64,
}

/// What is dated so long before the last commit that a standby has is there, too: a node gives up such a statement after 3.5 s.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

impl Horizon {
    /// Reads of which time the server has the ledger under these names. `now` is the server's time.
    async fn read(
        store: &Store,
        names: &[String],
        now: Timestamp,
        clocks: Duration,
    ) -> Result<Horizon, StoreError> {
        // Before the ledger, so that the ledger has at least what was replayed until then.
        let replayed = store.replayed().await?;
        let oldest = store.oldest_permit_us(names).await?;
        let now_us = now.as_microsecond();
        // Permits are dated by Redis's clock.
        let not_settled = i64::try_from((clocks + SETTLED_AFTER).as_micros()).unwrap_or(i64::MAX);
        Ok(match replayed {
            None => Horizon { oldest, now_us, whole_us: i64::MAX },
            Some(Replayed { until_us }) => Horizon {
                oldest,
                now_us: now_us.min(until_us),
                whole_us: until_us.saturating_sub(not_settled),
            },
        })
    }

    /// What can be proven of a period.
    fn scope(self, period: Period, history: &History) -> Scope {
        let seen = Period { to_us: period.to_us.min(self.whole_us), ..period };
        let mut scope = Scope::of(seen, history, self.oldest, self.now_us);
        if seen != period {
            let unseen = Period { from_us: period.from_us.max(self.whole_us), ..period };
            scope.unproven.push(Unproven { period: unseen, why: Why::NotReplayed });
        }
        scope
    }
}

async fn prove_from(
    store: &Store,
    known: &Provable,
    limit: &str,
    period: Period,
    horizon: Horizon,
    clocks: Duration,
    tell: &mut (dyn FnMut(fmt::Arguments<'_>) + Send),
) -> Result<Proved, StoreError> {
    let mut history = store.rules(limit).await?;
    for zone in history.zones() {
        let days = store.agreed_days(&zone).await?;
        history.agree_on(zone, days);
    }
    let prepare = move || {
        if let Some(oldest) = horizon.oldest {
            history.began_before(oldest);
        }
        let scope = horizon.scope(period, &history);
        let prover = Prover::new(&history, &scope, clocks);
        (history, scope, prover)
    };
    // A slowed channel has 20,000 rules a day, which would delay every other task on this thread.
    let prepared = tokio::task::spawn_blocking(prepare).await;
    let (history, scope, mut prover) = match prepared {
        Ok(prepared) => prepared,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The program ends.
        Err(_) => std::future::pending().await,
    };
    let (names, mut journal_check) = (names_of(limit, known), JournalCheck::default());
    if !scope.provable.is_empty() {
        let (mut openings, reads) = (0_u64, prover.reads());
        let see = |opening: &Opening| {
            prover.see(opening);
            openings += 1;
            tell(format_args!("limit {limit}: {openings} times with permits counted"));
        };
        store.each_opening(&names, reads, see).await?;
        let question = JournalQuery {
            names: &names,
            permits: scope.counted,
            requests: scope.provable,
            sends_of: &channels_with(limit, &known.channels),
            inquiries_of: &channels_with(limit, &known.inquiries),
        };
        let seen = |line, last| {
            tell(format_args!("limit {limit}: the journal compared up to line {line} of {last}"));
        };
        journal_check = store.check_journal(&question, seen).await?;
    }
    let journal_since = store.journal_since().await?;
    let journal_since = journal_since.filter(|since| since.as_microsecond() > scope.counted.from_us);
    let (limit, findings, shares) = (limit.to_owned(), prover.finish(), names.into_iter().skip(1).collect());
    Ok(Proved { limit, shares, period, history, scope, findings, journal_check, journal_since })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_proves_nothing_of_the_time_that_it_may_not_have_replayed() {
        let rule = r#"{"algorithm":"fixed_window","permits":3,"per_us":1000000,"lateness_us":20000}"#;
        let history = History::new([(0, rule.to_owned(), "node-a".to_owned())]);
        let (hour, second) = (3_600_000_000, 1_000_000);
        let period = Period { from_us: 10 * hour, to_us: 11 * hour };
        let at =
            |whole_us| Horizon { oldest: Some(hour), now_us: 11 * hour, whole_us }.scope(period, &history);
        let primary = at(i64::MAX);
        assert_eq!((primary.provable, primary.unproven), (period, Vec::new()));
        let replayed = 11 * hour - 90 * second;
        let lagging = at(replayed);
        assert_eq!(lagging.provable, Period { to_us: replayed, ..period });
        let rest = Unproven { period: Period { from_us: replayed, ..period }, why: Why::NotReplayed };
        assert_eq!(lagging.unproven, [rest]);
        let far_behind = at(9 * hour);
        assert!(far_behind.provable.is_empty(), "{far_behind:?}");
        assert_eq!(far_behind.unproven, [Unproven { period, why: Why::NotReplayed }]);
    }
}
