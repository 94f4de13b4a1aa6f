//! The fields for a moment: what people may write there, and the form of it.

use jiff::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use maud::{Markup, html};

use crate::prove::When;

/// What the fields take, for the hint below them.
pub(super) const HINT: &str = "Times are UTC: 14:00 means the last 14:00, and 2026-03-29 14:00 has a date. A time may have a zone of its own, \
                               such as 2026-03-29T14:00:00+02:00. 90m or 2h is a span back from now.";

/// Reads a moment as people write it: a time of day or a date with a time, in UTC; or what [`When`] reads.
///
/// # Errors
/// With the second half of a message.
pub(super) fn read(text: &str, now: Timestamp) -> Result<When, String> {
    let text = text.trim();
    // As the page writes times.
    let civil = text.strip_suffix("UTC").map_or(text, str::trim_end);
    let is_in_utc = |at: DateTime| at.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    let is_clock = civil.len() <= "14:00:00".len() && civil.contains(':');
    if let Some(time) = is_clock.then(|| civil.parse::<Time>().ok()).flatten() {
        let today = now.to_zoned(TimeZone::UTC).date();
        let at = is_in_utc(today.to_datetime(time)).filter(|at| *at <= now);
        let at = at.or_else(|| is_in_utc(today.yesterday().ok()?.to_datetime(time)));
        return at.map(When::At).ok_or_else(|| "is before the calendar begins".to_owned());
    }
    if civil.contains(':')
        && let Ok(at) = civil.parse::<DateTime>()
        && When::read(text).is_err()
    {
        return is_in_utc(at).map(When::At).ok_or_else(|| "is not in the calendar".to_owned());
    }
    When::read(text).map_err(|message| {
        let how = "on this page also a time in UTC such as 14:00 or 2026-03-29 14:00";
        format!("{message}; {how}")
    })
}

/// The field for a moment. With scripts it has a calendar in the reader's own time beside it.
pub(super) fn field(label: &str, name: &str, value: &str, placeholder: Option<&str>, needed: bool) -> Markup {
    html! {
        label { (label) ", UTC"
            input type="text" name=(name) value=(value) placeholder=[placeholder] required[needed] maxlength="40"
                aria-describedby="times" autocomplete="off" data-moment=(label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_the_last_one_in_utc_and_a_date_may_stand_before_it() {
        let now: Timestamp = "2026-11-25T14:30:00Z".parse().unwrap();
        for (text, at) in [
            ("14:00", "2026-11-25T14:00:00Z"),
            (" 14:30:00 ", "2026-11-25T14:30:00Z"),
            ("15:00", "2026-11-24T15:00:00Z"),
            ("14:00 UTC", "2026-11-25T14:00:00Z"),
            ("2026-11-24 14:00", "2026-11-24T14:00:00Z"),
            ("2026-11-24T14:00:05", "2026-11-24T14:00:05Z"),
            ("2026-11-24 14:00:05 UTC", "2026-11-24T14:00:05Z"),
            ("2026-11-24 14:00:05.042 UTC", "2026-11-24T14:00:05.042Z"),
            ("2026-11-24T14:00:00+02:00", "2026-11-24T12:00:00Z"),
            ("2026-11-24T14:00:00Z", "2026-11-24T14:00:00Z"),
        ] {
            assert_eq!(read(text, now), Ok(When::At(at.parse().unwrap())), "{text}");
        }
        assert_eq!(read("2h", now), When::read("2h"));
        assert_eq!(read("now", now), When::read("now"));
        for bad in ["yesterday", "25:00", "14:61", "", "2026-11-24", "2026-13-01 14:00", "UTC"] {
            let refused = read(bad, now).unwrap_err();
            assert!(refused.contains("in UTC such as 14:00"), "{bad}: {refused}");
        }
    }
}
