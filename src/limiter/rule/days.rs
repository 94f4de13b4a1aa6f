//! Tests of windows that are the days of a time zone.

use jiff::tz;

use super::*;

/// At most 5 in each day of a zone.
fn daily(zone: TimeZone) -> Rule {
    let day = Duration::from_hours(24);
    let algorithm = Algorithm::FixedWindow { zone: Some(zone) };
    Rule { algorithm, permits: 5, per: day, lateness: Duration::from_millis(20) }
}

#[test]
fn a_day_begins_at_the_banks_midnight_and_may_have_23_hours() {
    let rule = daily(TimeZone::get("Europe/Berlin").unwrap());
    // The clocks go forward in the night to 2026-03-29.
    let days = rule.days("2026-03-29T12:00:00Z".parse().unwrap());
    assert_eq!(days[1].0, "2026-03-29");
    let said: Vec<String> =
        days.iter().map(|(_, us)| Timestamp::from_microsecond(*us).unwrap().to_string()).collect();
    assert_eq!(
        said,
        [
            "2026-03-27T23:00:00Z",
            "2026-03-28T23:00:00Z",
            "2026-03-29T22:00:00Z",
            "2026-03-30T22:00:00Z",
            "2026-03-31T22:00:00Z"
        ]
    );
}

#[test]
fn the_last_permit_of_a_day_is_of_that_day_in_every_zone_and_none_is_of_it_later() {
    const HOUR: i64 = 3_600_000_000;
    let (from, to): (Timestamp, Timestamp) =
        ("2016-01-01T00:00:00Z".parse().unwrap(), "2031-01-01T00:00:00Z".parse().unwrap());
    let mut long = Vec::new();
    for name in tz::db().available() {
        let Ok(zone) = TimeZone::get(name.as_str()) else { continue };
        let rule = daily(zone.clone());
        for change in zone.following(from).take_while(|change| change.timestamp() < to) {
            // The day in which the clocks change.
            let days = rule.days(change.timestamp() - 1.second());
            let (begins, ends) = (days[1].1, days[2].1);
            let last = ends - 20_000;
            assert!(rule.is_span_of(begins, last - 10_000_000, last), "{}: {begins}", name.as_str());
            let bound = ends.max(begins + 25 * HOUR);
            assert!(!rule.is_span_of(begins, bound, bound + 1), "{}: {begins}", name.as_str());
            if ends > begins + 25 * HOUR {
                assert!(ends <= begins + 28 * HOUR, "claims take no permit of a longer day (migration 0070)");
                long.push((name.as_str().to_owned(), Timestamp::from_microsecond(begins).unwrap()));
            }
        }
    }
    let in_troll = long.iter().filter(|(zone, _)| zone == "Antarctica/Troll").count();
    assert_eq!(in_troll, 15, "{long:?}");
}
