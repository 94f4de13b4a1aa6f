//! A period of the past, and how people name its ends.

use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use jiff::{SpanRelativeTo, Timestamp};

/// `[from, to)`, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub from_us: i64,
    pub to_us: i64,
}

impl Period {
    /// The period from one moment to another. A `to` that is less than `clocks` ahead of `now` is cut.
    ///
    /// # Errors
    /// When the period is empty, or in the future.
    pub fn between(from: When, to: When, now: Timestamp, clocks: Duration) -> Result<Period, WrongPeriod> {
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

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.from_us >= self.to_us
    }

    pub(super) fn common(self, other: Period) -> Period {
        Period { from_us: self.from_us.max(other.from_us), to_us: self.to_us.min(other.to_us) }
    }
}

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
            let lacks = if text.contains(['T', 't', ' ']) {
                "is not a time of RFC 3339, or has no offset"
            } else {
                "has no date"
            };
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
    #[error("{} is in the future: by Postgres's clock it is {now:.0}, and nothing is proven of the future; write \"now\"", time(*.to_us))]
    Future { to_us: i64, now: Timestamp },
    #[error("{} is not before `to`, which is {}: the period is empty", time(*.from_us), time(*.to_us))]
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

/// A time in microseconds since 1970, in UTC.
pub fn time(us: i64) -> String {
    Timestamp::from_microsecond(us).map_or_else(|_| format!("{us} us"), |at| at.to_string())
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
        for (bad, says) in [
            ("2026-11-30T24:00:00Z", "is not a time of RFC 3339, or has no offset; "),
            ("2026-11-30T12:00:00", "is not a time of RFC 3339, or has no offset; "),
            ("12:00", "has no date; "),
        ] {
            assert!(When::read(bad).unwrap_err().starts_with(says), "{bad}");
        }
        assert!(When::read("1 month").unwrap_err().contains("write days"));
    }
}
