//! A moment on the command line: RFC 3339, a span back from now, or "now".

use std::time::Duration;

use anyhow::bail;
use jiff::fmt::friendly::SpanParser;
use jiff::{SpanRelativeTo, Timestamp};

/// A moment as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    At(Timestamp),
    Ago(Duration),
}

impl When {
    pub(super) fn read(text: &str) -> Result<When, String> {
        let text = text.trim();
        if text == "now" {
            return Ok(When::Ago(Duration::ZERO));
        }
        if let Ok(at) = text.parse() {
            return Ok(When::At(at));
        }
        let how =
            "write RFC 3339 such as 2026-03-29T12:00:00Z, a span back from now such as \"2h\", or \"now\"";
        let span = SpanParser::new().parse_span(text).map_err(|_| format!("is not a time; {how}"))?;
        if span.get_years() != 0 || span.get_months() != 0 {
            return Err("months and years have no fixed length; write days, of 24 hours each".to_owned());
        }
        let length = span.abs().to_duration(SpanRelativeTo::days_are_24_hours()).ok();
        length
            .and_then(|length| Duration::try_from(length).ok())
            .map(When::Ago)
            .ok_or_else(|| format!("is too long to count; {how}"))
    }

    pub(super) fn us(self, now: Timestamp) -> anyhow::Result<i64> {
        match self {
            When::At(at) => Ok(at.as_microsecond()),
            When::Ago(span) => match now.checked_sub(span) {
                Ok(at) => Ok(at.as_microsecond()),
                Err(_) => bail!("{span:?} ago is before the calendar begins"),
            },
        }
    }
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
        for bad in ["", "yesterday", "12:00", "7"] {
            assert!(When::read(bad).unwrap_err().contains("RFC 3339"), "{bad}");
        }
        assert!(When::read("1 month").unwrap_err().contains("write days"));
    }
}
