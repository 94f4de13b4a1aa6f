//! Windows that are the days of a time zone.

use jiff::civil::{Date, date};

use super::*;

const HOUR: i64 = 3600 * S;
const BERLIN: &str = r#"{"algorithm":"fixed_window","permits":5,"per_us":86400000000,"lateness_us":20000,"zone":"Europe/Berlin"}"#;
/// The day of [`NOON`] in Berlin. By this machine's database it has 24 hours, and so do its neighbours.
const TODAY: Date = date(2024, 10, 4);
/// When that day begins, by this machine's database.
const MIDNIGHT: i64 = NOON - 14 * HOUR;

/// The history of [`BERLIN`], with the days on which the nodes agreed.
fn agreed(days: &[(Date, i64)]) -> History {
    let mut history = since_ever(BERLIN);
    history.agree_on("Europe/Berlin".to_owned(), days.iter().copied().collect());
    history
}

#[test]
fn a_bank_day_is_counted_by_its_own_midnight() {
    let history = since_ever(BERLIN);
    let findings = prove(&history, &[at(MIDNIGHT - DAY, 5), at(MIDNIGHT, 6), at(MIDNIGHT + DAY, 5)]);
    assert_eq!((findings.refunds, findings.broken.count, findings.spans), (6, 1, 1));
    assert_eq!(findings.most, 5);
}

#[test]
fn the_days_on_which_nodes_agreed_count_before_those_of_this_machine() {
    // The nodes counted a day of 23 hours. The change of the clocks was cancelled, and the database here knows that.
    let tomorrow = TODAY.tomorrow().unwrap();
    let history = agreed(&[(TODAY, MIDNIGHT), (tomorrow, MIDNIGHT + 23 * HOUR)]);
    let (first, second) = (at(MIDNIGHT, 5), at(MIDNIGHT + 23 * HOUR, 5));
    let kept = prove(&history, &[first, second]);
    assert_eq!((kept.refunds, kept.broken.count, kept.most), (5, 0, 5));
    assert_eq!(
        kept.worst.map(|worst| worst.span),
        Some(Period { from_us: MIDNIGHT, to_us: MIDNIGHT + 23 * HOUR })
    );
    // Without the agreed days both windows would be one day.
    assert_eq!(prove(&since_ever(BERLIN), &[first, second]).broken.count, 1);
    // An agreed day has no more than its number, either.
    assert_eq!(prove(&history, &[Opening { refunds: 6, ..first }, second]).broken.count, 1);
}

#[test]
fn a_day_on_which_nodes_did_not_agree_begins_where_this_machine_says() {
    let tomorrow = TODAY.tomorrow().unwrap();
    let window = |history: &History, us: i64| {
        let rule = history.rule_periods()[0].rule.as_ref().unwrap();
        let Period { from_us, to_us } = history.grid(rule).unwrap().window(us);
        ((from_us - MIDNIGHT) / HOUR, (to_us - MIDNIGHT) / HOUR)
    };
    let (early, late) =
        (agreed(&[(tomorrow, MIDNIGHT + 23 * HOUR)]), agreed(&[(tomorrow, MIDNIGHT + 25 * HOUR)]));
    for (history, us, hours) in [
        (&early, MIDNIGHT, (0, 23)),
        (&early, MIDNIGHT + 23 * HOUR - 1, (0, 23)),
        (&early, MIDNIGHT + 23 * HOUR, (23, 48)),
        (&early, MIDNIGHT + 48 * HOUR, (48, 72)),
        (&early, MIDNIGHT - 1, (-24, 0)),
        (&late, MIDNIGHT + 24 * HOUR, (0, 25)),
        (&late, MIDNIGHT + 25 * HOUR, (25, 48)),
    ] {
        assert_eq!(window(history, us), hours, "{history:?}, {} h", (us - MIDNIGHT) / HOUR);
    }
}
