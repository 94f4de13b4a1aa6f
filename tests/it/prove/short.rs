//! A short period: the proof says what it counted, and a share above 100 % does not appear without a reason.

use serde_json::Value;

use super::{json, ledger, prove, text};

/// Proves from so many seconds after a whole second half an hour ago to another moment, under a rule with a permit at
/// each of these seconds.
async fn short(rule: &str, every: &str, from: f64, to: f64) -> (String, Value) {
    let scratch = ledger(rule).await;
    scratch
        .sql(&format!(
            "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
             select 'acme', date_trunc('hour', now()) - interval '1 hour' + n * interval '{every}', 1, 'shop', 'node-a'
               from generate_series(-5, 29) n"
        ))
        .await;
    let at = "select to_char(date_trunc('hour', now() at time zone 'utc') - interval '1 hour' + interval '1 second' * ";
    let at = async |seconds: f64| {
        scratch.text(&format!("{at}{seconds}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")).await
    };
    let (from, to) = (at(from).await, at(to).await);
    let args = ["--limit", "acme", "--from", from.as_str(), "--to", to.as_str()];
    let page = prove(&scratch, &args);
    assert!(page.status.success(), "{}", text(&page));
    (text(&page), json(&prove(&scratch, &[&args[..], &["--json"]].concat())))
}

#[tokio::test]
async fn windows_that_touch_the_edges_are_counted_whole_and_it_says_so() {
    let rule = r#"{"algorithm":"fixed_window","permits":1,"per_us":1000000,"lateness_us":20000}"#;
    let (page, report) = short(rule, "1 second", 5.5, 15.5).await;
    for words in [
        "counted         whole windows that touch the period, 11 s from ",
        "permits spent   0 for refunds, 11 for other services",
        "share used      100.0 %: 11 of the 11 permits that the rule allows in the counted time",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let limit = &report["limits"][0];
    assert!(limit["counted"]["from"].as_str().is_some_and(|from| from.ends_with(":05Z")), "{report}");
    assert!(limit["counted"]["to"].as_str().is_some_and(|to| to.ends_with(":16Z")), "{report}");
    assert_eq!((&limit["permits_allowed"], &limit["share_used"]), (&11.into(), &1.0.into()), "{report}");
    let (exact, _) = short(rule, "1 second", 5.0, 15.0).await;
    assert!(!exact.contains("counted  ") && exact.contains("10 of the 10 permits"), "{exact}");
}

#[tokio::test]
async fn a_share_is_of_what_could_have_been_sent_in_the_period() {
    for (rule, every, to, allowed) in [
        // Slots 1.02 s apart: eleven fit into ten seconds and a quarter.
        (
            r#"{"algorithm":"paced","permits":1,"per_us":1000000,"lateness_us":20000}"#,
            "1020 milliseconds",
            10.25,
            11,
        ),
        (
            r#"{"algorithm":"sliding_log","permits":1,"per_us":1000000,"lateness_us":20000}"#,
            "1020 milliseconds",
            10.25,
            11,
        ),
        // A burst of nine on top.
        (
            r#"{"algorithm":"token_bucket","permits":1,"per_us":1000000,"lateness_us":20000,"burst":9}"#,
            "1020 milliseconds",
            10.25,
            20,
        ),
    ] {
        let (page, report) = short(rule, every, 0.0, to).await;
        let limit = &report["limits"][0];
        assert_eq!(limit["permits"]["other_services"], 11, "{page}");
        assert_eq!(limit["permits_allowed"], allowed, "{page}");
        assert!(limit["share_used"].as_f64().is_some_and(|share| share <= 1.0), "{page}");
    }
}
