//! Durations as people write them: `"10s"`, `"1m 30s"`, `"24h"`, `"7d"`.
//!
//! A day is always 24 hours and a week 7 days, without regard to time zones. Months and years are refused,
//! because they have no fixed length.

use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;

const HOW: &str = r#"write a number with a unit, such as "20ms", "10s", "1m 30s", "24h" or "7d""#;

/// Reads a duration.
///
/// # Errors
/// The second half of a message about the field.
pub fn read(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("a number alone has no unit; did you mean \"{text}s\"?"));
    }
    let span = SpanParser::new().parse_span(text).map_err(|_| format!("is not a duration; {HOW}"))?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err("months and years have no fixed length; write days, of 24 hours each".to_owned());
    }
    if span.is_negative() {
        return Err("a duration cannot be negative".to_owned());
    }
    span.to_duration(SpanRelativeTo::days_are_24_hours())
        .ok()
        .and_then(|length| Duration::try_from(length).ok())
        .ok_or_else(|| format!("is too long to count; {HOW}"))
}

/// Writes a duration in the form that [`read`] takes, without loss.
#[must_use]
pub fn say(length: Duration) -> String {
    const UNITS: [(&str, u128); 7] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let mut rest = length.as_nanos();
    let mut parts = Vec::new();
    for (unit, nanos) in UNITS {
        if rest >= nanos {
            parts.push(format!("{}{unit}", rest / nanos));
            rest %= nanos;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// Whether Redis can count with this length: it counts in whole microseconds.
pub(super) fn is_whole_microseconds(length: Duration) -> bool {
    length.subsec_nanos().is_multiple_of(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("10s", 10.0),
            ("1m 30s", 90.0),
            ("24h", 86_400.0),
            ("7d", 604_800.0),
            ("1w", 604_800.0),
            ("1d 12h", 129_600.0),
            ("20ms", 0.02),
            ("0.5s", 0.5),
            (" 2 minutes ", 120.0),
            ("0s", 0.0),
        ] {
            assert_eq!(read(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_duration_is_refused_with_examples() {
        assert_eq!(read("10").unwrap_err(), r#"a number alone has no unit; did you mean "10s"?"#);
        assert!(read("soon").unwrap_err().contains("is not a duration"));
        assert!(read("").unwrap_err().contains("is not a duration"));
        assert!(read("1mo").unwrap_err().contains("no fixed length"));
        assert!(read("1y 2d").unwrap_err().contains("no fixed length"));
        assert!(read("-1s").unwrap_err().contains("negative"));
    }

    proptest! {
        #[test]
        fn a_written_duration_reads_as_the_same_duration(nanos in 0u64..90 * 86_400 * 1_000_000_000) {
            let length = Duration::from_nanos(nanos);
            prop_assert_eq!(read(&say(length)), Ok(length));
        }
    }
}
