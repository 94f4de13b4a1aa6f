//! How long the bank asks to wait. Pure.

use std::num::IntErrorKind;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{DATE, RETRY_AFTER};

/// The longest `Retry-After` that refundd obeys; a longer one counts as this.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// The wait that `Retry-After` asks for, in seconds or as a date. A date is compared with the bank's own `Date`, so
/// the result depends on one clock only.
pub(in crate::bank) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let value = text(RETRY_AFTER)?;
    let wait = if let Some(seconds) = seconds(value) {
        Duration::from_secs(seconds)
    } else {
        let until = httpdate::parse_http_date(value).ok()?;
        let now = httpdate::parse_http_date(text(DATE)?).ok()?;
        until.duration_since(now).unwrap_or(Duration::ZERO)
    };
    Some(wait.min(LONGEST_WAIT))
}

/// Whole seconds. Parts of a second count as one, and a number that 64 bits do not hold as the largest that they hold.
fn seconds(text: &str) -> Option<u64> {
    let (whole, parts) = text.split_once('.').unwrap_or((text, ""));
    let whole = match whole.parse::<u64>() {
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => u64::MAX,
        whole => whole.ok()?,
    };
    let has_parts = parts.bytes().any(|digit| digit != b'0');
    parts.bytes().all(|digit| digit.is_ascii_digit()).then_some(whole.saturating_add(u64::from(has_parts)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_too_large_or_has_parts_of_a_second_makes_no_wait_shorter() {
        for (value, wanted) in [
            ("7", Some(7)),
            ("0", Some(0)),
            ("60.5", Some(61)),
            ("60.0", Some(60)),
            ("0.001", Some(1)),
            ("86401", Some(86_400)),
            ("18446744073709551615.9", Some(86_400)),
            ("18446744073709551616", Some(86_400)),
            ("99999999999999999999999999", Some(86_400)),
            ("-1", None),
            (".5", None),
            ("6.5s", None),
            ("60,5", None),
            ("soon", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(retry_after(&headers), wanted.map(Duration::from_secs), "{value}");
        }
    }
}
