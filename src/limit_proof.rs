//! Proofs of past periods: reads the ledger and the journal of one limit, and lets [`crate::prove`] judge.
//!
//! The command `refundd prove` and the page use it. It reads only Postgres and changes nothing.

mod limits;
pub mod report;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::prove::{Findings, History, Opening, Period, Prover, Scope};
use crate::store::{JournalCheck, JournalQuery, Provable, Store, StoreError};
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
pub enum Verdict {
    Kept,
    Broken,
    /// Nothing could be proven, or some spans stay in doubt.
    Unproven,
}

impl Verdict {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Kept => "held",
            Verdict::Broken => "broken",
            Verdict::Unproven => "unproven",
        }
    }
}

impl Proved {
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let JournalCheck { without, unknown, again, first_bytes: _ } = self.journal_check;
        if self.findings.broken.count + without.count + unknown.count + again.count > 0 {
            Verdict::Broken
        } else if self.scope.provable.is_empty() || self.findings.doubtful.count > 0 {
            Verdict::Unproven
        } else {
            Verdict::Kept
        }
    }

    /// Permits for refunds under which the journal has no first byte.
    fn unused(&self) -> u64 {
        let JournalCheck { first_bytes, unknown, again, .. } = self.journal_check;
        self.findings.refunds.saturating_sub(first_bytes.saturating_sub(unknown.count.max(again.count)))
    }
}

/// Proves one limit.
///
/// If a day of the period is dropped from the ledger meanwhile, the proof is made again, of the days that are left.
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
    mut now: Timestamp,
    clocks: Duration,
    tell: &mut (dyn FnMut(fmt::Arguments<'_>) + Send),
) -> Result<Proved, StoreError> {
    let names = names_of(&limit, known);
    let mut oldest = store.oldest_permit_us(&names).await?;
    loop {
        let at = Horizon { oldest, now_us: now.as_microsecond() };
        let proved = prove_from(store, known, &limit, period, at, clocks, tell).await?;
        let still_oldest = store.oldest_permit_us(&names).await?;
        // Without permits nothing could be dropped.
        if oldest.is_none() || still_oldest == oldest {
            return Ok(proved);
        }
        now = store.now().await?;
        let scope = Scope::of(period, &proved.history, still_oldest, now.as_microsecond());
        if scope.provable == proved.scope.provable {
            return Ok(proved);
        }
        tell(format_args!("limit {limit}: a day was dropped from the ledger, so the proof begins again"));
        oldest = still_oldest;
    }
}

/// The oldest permit in the ledger, and the time at which that was read.
#[derive(Debug, Clone, Copy)]
struct Horizon {
    oldest: Option<i64>,
    now_us: i64,
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
        let scope = Scope::of(period, &history, horizon.oldest, horizon.now_us);
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
