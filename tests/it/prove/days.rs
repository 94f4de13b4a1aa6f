//! Limits whose windows are the days of a time zone.

use super::{json, ledger, prove, text};

#[tokio::test]
async fn days_are_proven_as_the_nodes_agreed_on_them_and_not_as_this_machine_counts_them() {
    let rule = r#"{"algorithm":"fixed_window","permits":5,"per_us":86400000000,"lateness_us":20000,"zone":"Asia/Tokyo"}"#;
    let scratch = ledger(rule).await;
    scratch.sql("update refundd.limit_rules set published_at = now() - interval '10 days'").await;
    // The first midnight of the day three days ago in Tokyo, which had 23 hours by the database of the nodes.
    let midnight = "((now() at time zone 'Asia/Tokyo')::date - 3)::timestamp at time zone 'Asia/Tokyo'";
    scratch
        .sql(&format!(
            "insert into refundd.zone_days (zone, day, begins_at, node)
             select 'Asia/Tokyo', (now() at time zone 'Asia/Tokyo')::date - 3 + n, {midnight} + n * interval '23 hours', 'node-a'
               from generate_series(0, 1) n"
        ))
        .await;
    // A permit of an earlier day shows that no later one was pruned.
    scratch
        .sql(&format!(
            "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
             select 'acme', {midnight} + n * interval '23 hours', k, 'shop', 'node-a' from generate_series(0, 1) n, generate_series(1, 5) k
             union all select 'acme', {midnight} - interval '2 days', 1, 'shop', 'node-a'"
        ))
        .await;
    let said = prove(&scratch, &["--limit", "acme", "--from", "4d", "--json"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    let limit = &json(&said)["limits"][0];
    assert_eq!(
        (&limit["spans_checked"], &limit["worst_span"]["found"], &limit["permits"]["other_services"]),
        (&2.into(), &5.into(), &10.into()),
        "{limit}"
    );
}
