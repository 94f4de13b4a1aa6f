//! Limits that nodes count by shares: the shares are proven together as the limit.

use super::{finds_first_bytes_without_a_permit_of_their_own, json, ledger, prove, sent, text};

/// Two shares have their slots at the same moments.
const SHARED_OUT: &str = "algorithm = \"paced\"\npermits = 50\nplacement = \"local_share\"\nnodes = 2";

#[tokio::test]
async fn a_limit_that_nodes_count_by_shares_is_proven_with_all_its_shares() {
    let scratch = sent(SHARED_OUT, 60).await;
    // The settings a minute old and more: a first byte without a permit cannot be of those before.
    scratch.sql("update refundd.channels set published_at = now() - interval '10 minutes'").await;
    let said = prove(&scratch, &["--channel", "acme", "--json"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    let page = json(&said);
    let limits = page["limits"].as_array().unwrap();
    let (whole, shares) = limits.split_first().unwrap();
    assert_eq!((&whole["limit"], &whole["verdict"]), (&"acme".into(), &"held".into()), "{page}");
    assert_eq!(whole["journal"]["first_bytes"], 60, "{page}");
    let spent = scratch.number("select count(*) from refundd.permits").await;
    assert_eq!(whole["permits"]["refunds"].as_i64(), Some(spent), "{page}");
    let of_shares: Option<i64> = shares.iter().map(|share| share["permits"]["refunds"].as_i64()).sum();
    assert_eq!(of_shares, Some(spent), "{page}");
    let names: Vec<&str> = shares.iter().filter_map(|share| share["limit"].as_str()).collect();
    assert_eq!(names, ["acme.share1", "acme.share2"], "{page}");
    assert_eq!(whole["shares"], serde_json::json!(names));
    let all = prove(&scratch, &["--all"]);
    let words = format!(
        "3 limits: 3 held (3 only in part), 0 broken, 0 unproven; {spent} permits spent in the proven time"
    );
    assert!(text(&all).contains(&words), "each permit is summed once: {}", text(&all));
}

#[tokio::test]
async fn a_first_byte_without_a_permit_of_any_share_is_found() {
    finds_first_bytes_without_a_permit_of_their_own(SHARED_OUT).await;
}

#[tokio::test]
async fn shares_that_are_too_many_together_are_found() {
    let rule = |permits: u32| {
        format!(r#"{{"algorithm":"sliding_log","permits":{permits},"per_us":1000000,"lateness_us":20000}}"#)
    };
    let scratch = ledger(&rule(4)).await;
    scratch.publish("acme").await;
    let settings = r#"{"limits": [{"name": "acme", "placement": "local_share", "nodes": 2}]}"#;
    scratch.sql(&format!("update refundd.channels set settings = '{settings}'")).await;
    scratch
        .sql(&format!(
            "insert into refundd.limit_rules (limit_name, published_at, rule, node)
             select 'acme.share' || n, now() - interval '3 hours', '{}'::jsonb, 'node-a' from generate_series(1, 3) n",
            rule(2)
        ))
        .await;
    scratch
        .sql(
            "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
             select 'acme.share' || n, date_trunc('second', now()) - interval '10 minutes', k, 'shop', 'node-a'
               from generate_series(1, 3) n, generate_series(1, 2) k",
        )
        .await;
    let said = prove(&scratch, &["--channel", "acme", "--json"]);
    assert_eq!(said.status.code(), Some(1), "{}", text(&said));
    let page = json(&said);
    let verdicts: Vec<&str> =
        page["limits"].as_array().unwrap().iter().filter_map(|limit| limit["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["broken", "held", "held", "held"], "{page}");
    let worst = &page["limits"][0]["worst_span"];
    assert_eq!((&worst["found"], &worst["allowed"]), (&6.into(), &4.into()), "{page}");
}
