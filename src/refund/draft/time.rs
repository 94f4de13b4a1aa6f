//! Reads times in RFC 3339, and refuses every looser form, and the years that the database refuses.
//!
//! The module reads no clock.

use jiff::Timestamp;

use super::FieldError;
use super::field::allowed;

/// Reads a time, if one is given. The result has whole microseconds, because Postgres keeps no more.
pub(super) fn read(text: Option<&str>, field: &str, wrong: &mut Vec<FieldError>) -> Option<Timestamp> {
    let text = text?;
    let parsed = if is_rfc3339(text) { text.parse::<Timestamp>().ok() } else { None }
        .and_then(|time| Timestamp::from_microsecond(time.as_microsecond()).ok());
    let time = parsed.filter(|time| (FIRST..END).contains(time));
    if time.is_none() {
        // The parser knows no moment of the last days of 9999.
        let is_far = parsed.is_some() || (is_rfc3339(text) && text.starts_with("9999"));
        let problem = match is_far {
            true => "is not in the years 0001 to 9998",
            false if is_rfc3339(&format!("{text}Z")) => "has no offset",
            false => "is not a time",
        };
        wrong.push(FieldError::new(field, Some(&text.into()), format!("{problem}; {}", allowed(field))));
    }
    time
}

/// The first moment of the year 1, and of the year 9999: the bounds of `refunds_times_can_be_told`.
const FIRST: Timestamp = Timestamp::constant(-62_135_596_800, 0);
const END: Timestamp = Timestamp::constant(253_370_764_800, 0);

/// Whether the shape is `YYYY-MM-DDTHH:MM:SS[.f…](Z|±HH:MM)`. The parser alone would accept too much: it also
/// reads other separators, week dates and names of time zones.
fn is_rfc3339(text: &str) -> bool {
    let matches = |text: &[u8], shape: &[u8]| {
        text.len() == shape.len()
            && text.iter().zip(shape).all(|(b, s)| if *s == b'0' { b.is_ascii_digit() } else { b == s })
    };
    let Some((head, tail)) = text.as_bytes().split_at_checked(19) else { return false };
    if !matches(&head.to_ascii_uppercase(), b"0000-00-00T00:00:00") {
        return false;
    }
    let fraction = match tail.strip_prefix(b".") {
        None => 0,
        Some(rest) => match rest.iter().take_while(|b| b.is_ascii_digit()).count() {
            digits @ 1..=9 => digits + 1,
            _ => return false,
        },
    };
    let offset = &tail[fraction..];
    matches!(offset, b"Z" | b"z") || matches(offset, b"+00:00") || matches(offset, b"-00:00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rfc_3339_with_an_offset_is_a_time() {
        for good in [
            "2030-01-31T12:00:00Z",
            "2030-01-31t12:00:00z",
            "2030-01-31T12:00:00.123456789+05:30",
            "2030-01-31T12:00:00-00:00",
            "0001-01-01T00:00:00Z",
        ] {
            let mut wrong = Vec::new();
            assert!(read(Some(good), "due_at", &mut wrong).is_some(), "{good}");
            assert_eq!(wrong, []);
        }
        for bad in [
            "",
            "2030-01-31",
            "2030-01-31T12:00Z",
            "2030-01-31 12:00:00Z",
            "2030-02-31T12:00:00Z",
            "2030-01-31T12:00:00.Z",
            "2030-01-31T12:00:00+0530",
            "2030-01-31T12:00:00Z[Europe/Berlin]",
            "2030-01-31T25:00:00Z",
            "1893456000",
            "tomorrow",
            "２030-01-31T12:00:00Z",
            "2030-01-31T12:00:00.1234567890Z",
        ] {
            let mut wrong = Vec::new();
            assert_eq!(read(Some(bad), "due_at", &mut wrong), None, "{bad}");
            assert!(wrong[0].message.starts_with("is not a time; "), "{bad}: {wrong:?}");
        }
    }

    #[test]
    fn a_time_that_the_database_refuses_is_refused_for_that_reason() {
        let said = |text| {
            let mut wrong = Vec::new();
            assert_eq!(read(Some(text), "deadline_at", &mut wrong), None, "{text}");
            wrong.remove(0).message
        };
        for far in [
            "0000-12-31T23:59:59Z",
            "0001-01-01T00:00:00+00:01",
            "9999-01-01T00:00:00Z",
            "9998-12-31T23:59:59-00:01",
            "9999-12-31T23:59:59Z",
        ] {
            assert!(said(far).starts_with("is not in the years 0001 to 9998; "), "{far}");
        }
        assert!(read(Some("9998-12-31T23:59:59.999999Z"), "due_at", &mut Vec::new()).is_some());
    }

    #[test]
    fn a_time_without_an_offset_is_refused_for_that_reason() {
        let mut wrong = Vec::new();
        assert_eq!(read(Some("2030-01-31T12:00:00"), "due_at", &mut wrong), None);
        assert!(wrong[0].message.starts_with("has no offset; "), "{wrong:?}");
    }

    #[test]
    fn a_time_keeps_whole_microseconds() {
        let time = read(Some("2030-01-31T12:00:00.123456789Z"), "due_at", &mut Vec::new()).unwrap();
        assert_eq!(time.to_string(), "2030-01-31T12:00:00.123456Z");
    }
}
