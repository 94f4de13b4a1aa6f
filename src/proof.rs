//! Proofs of past periods: reads the ledger and the journal of one limit, and lets [`crate::prove`] judge.
//!
//! The command `refundd prove` and the page use it. It reads only Postgres and changes nothing.

mod limits;
pub mod report;

use std::fmt;
use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use jiff::{SpanRelativeTo, Timestamp};

use crate::prove::{Findings, History, Opening, Period, Prover, Scope};
use crate::store::{JournalCheck, JournalQuery, Provable, Store, StoreError};
pub use limits::limits_of;
use limits::{channels_with, names_of};

/// A moment as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    At(Timestamp),
    Ago(Duration),
}

impl When {
    /// Reads RFC 3339, a span back from now, or `now`.
    ///
    /// # Errors
    /// With the second half of a message.
    pub fn read(text: &str) -> Result<When, String> {
        let text = text.trim();
        if text == "now" {
            return Ok(When::Ago(Duration::ZERO));
        }
        if let Ok(at) = text.parse() {
            return Ok(When::At(at));
        }
        let how =
            "write RFC 3339 such as 2026-03-29T12:00:00Z, a span back from now such as \"2h\", or \"now\"";
        // The parser takes 21:40:31 for a span of more than 21 hours. A person means a time of day, and does not say of which
        // day.
        if text.contains(':') {
            let lacks = if text.contains(['T', 't', ' ']) { "has no offset" } else { "has no date" };
            return Err(format!("{lacks}; {how}"));
        }
        let span = SpanParser::new().parse_span(text).map_err(|_| format!("is not a time; {how}"))?;
        if span.get_years() != 0 || span.get_months() != 0 {
            return Err("months and years have no fixed length; write days, of 24 hours each".to_owned());
        }
        if text.starts_with('+') {
            return Err(format!("lies in the future; {how}"));
        }
        let length = span.abs().to_duration(SpanRelativeTo::days_are_24_hours()).ok();
        length
            .and_then(|length| Duration::try_from(length).ok())
            .map(When::Ago)
            .ok_or_else(|| format!("is too long to count; {how}"))
    }

    /// Microseconds since 1970.
    ///
    /// # Errors
    /// When the moment is before the calendar begins.
    pub fn us(self, now: Timestamp) -> Result<i64, WrongPeriod> {
        match self {
            When::At(at) => Ok(at.as_microsecond()),
            When::Ago(span) => match now.checked_sub(span) {
                Ok(at) => Ok(at.as_microsecond()),
                Err(_) => Err(WrongPeriod::TooLongAgo(span)),
            },
        }
    }
}

/// Why there is no such period to prove. The messages are about the field that [`WrongPeriod::field`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongPeriod {
    #[error("{0:?} ago is before the calendar begins")]
    TooLongAgo(Duration),
    #[error("{} is in the future: by Postgres's clock it is {now:.0}, and nothing is proven of the future; write \"now\"", report::time(*.to_us))]
    Future { to_us: i64, now: Timestamp },
    #[error("{} is not before `to`, which is {}: the period is empty", report::time(*.from_us), report::time(*.to_us))]
    Empty { from_us: i64, to_us: i64 },
}

impl WrongPeriod {
    /// The field that is wrong: `from` or `to`.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            WrongPeriod::TooLongAgo(_) | WrongPeriod::Empty { .. } => "from",
            WrongPeriod::Future { .. } => "to",
        }
    }
}

/// The period from one moment to another. A `to` that is less than `clocks` ahead of `now` is cut.
///
/// # Errors
/// When the period is empty, or in the future.
pub fn period(from: When, to: When, now: Timestamp, clocks: Duration) -> Result<Period, WrongPeriod> {
    let (from_us, mut to_us) = (from.us(now)?, to.us(now)?);
    let ahead = Duration::from_micros(u64::try_from(to_us - now.as_microsecond()).unwrap_or(0));
    if ahead > clocks {
        return Err(WrongPeriod::Future { to_us, now });
    }
    to_us = to_us.min(now.as_microsecond());
    if from_us >= to_us {
        return Err(WrongPeriod::Empty { from_us, to_us });
    }
    Ok(Period { from_us, to_us })
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_moment_a_span_back_from_now_or_now() {
        let at = "2026-03-29T12:00:00Z";
        assert_eq!(When::read(at), Ok(When::At(at.parse().unwrap())));
        assert_eq!(When::read("now"), Ok(When::Ago(Duration::ZERO)));
        for (text, seconds) in
            [("2h", 7200), ("90m", 5400), ("2h 30m", 9000), ("1d", 86_400), ("2h ago", 7200)]
        {
            assert_eq!(When::read(text), Ok(When::Ago(Duration::from_secs(seconds))), "{text}");
        }
        for bad in ["", "yesterday", "12:00", "21:40:31", "7"] {
            assert!(When::read(bad).unwrap_err().contains("RFC 3339"), "{bad}");
        }
        assert!(When::read("1 month").unwrap_err().contains("write days"));
    }
}
