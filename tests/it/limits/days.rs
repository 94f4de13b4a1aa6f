//! Limits whose windows are the days of a time zone.

use crate::harness::Scratch;

#[tokio::test]
async fn a_permit_of_a_day_of_26_hours_is_good_until_the_next_day_begins() {
    let scratch = Scratch::new().await;
    // Both days began 25 hours and a half ago. The one lasts for half an hour more, and the other ended at 25 hours.
    for (zone, next) in
        [("Antarctica/Troll", "+ interval '30 minutes'"), ("Europe/Berlin", "- interval '30 minutes'")]
    {
        scratch
            .sql(&format!(
                "insert into refundd.zone_days (zone, day, begins_at, node)
                 values ('{zone}', '2026-10-25', now() - interval '25 hours 30 minutes', 'a'), ('{zone}', '2026-10-26', now() {next}, 'a')"
            ))
            .await;
    }
    let keeps = async |zone: &str, ordinal: i32| {
        let rule = format!(
            r#"{{"algorithm":"fixed_window","permits":5,"per_us":86400000000,"lateness_us":20000,"zone":"{zone}"}}"#
        );
        let of_the_day = format!(
            "select count(*) from refundd.zone_days d where d.zone = '{zone}' and d.day = '2026-10-25'
                and refundd.windows_keep_rule('{rule}', array[(extract(epoch from d.begins_at) * 1000000)::bigint], array[{ordinal}], 5000000)"
        );
        scratch.number(&of_the_day).await == 1
    };
    assert!(keeps("Antarctica/Troll", 5).await);
    assert!(!keeps("Antarctica/Troll", 6).await, "the day has no more permits than its number");
    assert!(!keeps("Europe/Berlin", 5).await, "the next day has begun");
}
