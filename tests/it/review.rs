//! What waits for a person, what a person decides, and what will be too late.

mod in_a_browser;

use playground::bank::Step;
use refundd::caller::Names;
use refundd::forecast::{FullPace, Quota};
use refundd::refund::{RefundId, State};
use refundd::store::{Filter, statements};
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor};

use crate::decisions::version;
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until, window_lasts};

#[tokio::test]
async fn a_person_sees_every_attempt_and_settles_many_at_once_over_http() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 3).await;
    until("all are shown", async || scratch.count(State::Review).await == 3).await;
    let file = node.get("/v1/refunds/1/attempts").await.json();
    let sent = &file["attempts"][0];
    assert_eq!((sent["kind"].as_str(), sent["status"].as_i64()), (Some("send"), Some(500)), "{file}");
    let mut named = vec![json!({ "id": 99, "version": 3 })];
    for id in [2, 1] {
        named.insert(0, json!({ "id": id, "version": version(&node, id).await }));
    }
    let mut decision =
        json!({ "refunds": named, "state": "succeeded", "reason": "on the statement", "by": "ann" });
    let reply = node.post("/v1/review", &decision).await.json();
    assert_eq!(reply["decided"], 2, "{reply}");
    assert_eq!(reply["results"][2]["result"], "no_such_refund", "{reply}");
    let again = node.post("/v1/review", &decision).await.json();
    assert_eq!(
        (again["decided"].as_i64(), again["results"][0]["result"].as_str()),
        (Some(0), Some("changed"))
    );
    decision["refunds"][0]["version"] = again["results"][0]["version"].clone();
    let again = node.post("/v1/review", &decision).await.json();
    assert_eq!(
        (again["decided"].as_i64(), again["results"][0]["state"].as_str()),
        (Some(0), Some("succeeded"))
    );
    assert_eq!(again["results"][0]["message"], "it is succeeded already", "{again}");
    assert!(
        again["results"][2]["message"].as_str().is_some_and(|message| message.contains("refund_ref")),
        "{again}"
    );
    let other = json!({ "refunds": [{ "id": 1, "version": again["results"][0]["version"] }], "state": "failed", "reason": "r", "by": "ann" });
    let other = node.post("/v1/review", &other).await.json();
    let message = other["results"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("is succeeded cannot become failed"), "{other}");
    let evidence = scratch.store.evidence(RefundId(2)).await.unwrap();
    let last = evidence.last().unwrap();
    assert_eq!((last.kind.as_str(), last.node.as_str()), ("manual", "ann"));
    assert_eq!(last.message.as_deref(), Some("on the statement"));
    assert_eq!(scratch.count(State::Review).await, 1);
    let refused = node
        .post(
            "/v1/review",
            &json!({ "refunds": [{ "id": 3, "version": 3 }], "state": "succeeded", "by": "ann" }),
        )
        .await;
    assert_eq!(refused.status, 422, "{refused:?}");
    node.stop().await;
}

/// How Postgres carries out a statement of the store with these values.
async fn plan_of(scratch: &Scratch, name: &str, values: &str) -> String {
    let (_, sql) = statements().into_iter().find(|(other, _)| *other == name).unwrap();
    let mut connection = scratch.connect().await;
    connection.execute(AssertSqlSafe(format!("prepare it as {sql}"))).await.unwrap();
    let explain = format!("explain (analyze, costs off, timing off, summary off) execute it({values})");
    let lines: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut connection).await.unwrap();
    lines.join("\n")
}

#[tokio::test]
async fn what_waits_for_a_person_is_listed_newest_first_without_a_look_at_newer_refunds() {
    let scratch = Scratch::with_refunds(4).await;
    scratch.publish("globex").await;
    scratch.publish("initech").await;
    scratch.insert("globex", "G-", 4).await;
    scratch.insert("initech", "I-", 1).await;
    scratch.to_review("id in (1, 3, 5, 6, 8)").await;
    scratch.insert("acme", "N-", 5_000).await;
    scratch.sql("analyze refundd.refunds").await;
    let all = || Filter { state: Some(State::Review), limit: 10, ..Filter::of(Names::All) };
    let globex = Names::These(["globex".to_owned()].into());
    for (filter, expected) in [
        (all(), &[8, 6, 5, 3, 1][..]),
        (Filter { limit: 2, ..all() }, &[8, 6][..]),
        (Filter { limit: 2, after: Some(RefundId(6)), ..all() }, &[5, 3][..]),
        (Filter { channel: Some("acme".to_owned()), ..all() }, &[3, 1][..]),
        (Filter { channels: globex, ..all() }, &[8, 6, 5][..]),
        (Filter { refund_ref: Some("G-1".to_owned()), ..all() }, &[5][..]),
        (Filter { state: Some(State::Unknown), ..all() }, &[][..]),
    ] {
        let listed = scratch.store.list(&filter).await.unwrap();
        let ids: Vec<i64> = listed.iter().map(|refund| refund.id.0).collect();
        assert_eq!(ids, expected, "{filter:?}");
    }
    // The state, the id before the page, the page's length, the channel, and the caller's channels.
    let plan = plan_of(&scratch, "list_unsettled", "'review', null, 10, null, null").await;
    let removed = plan.lines().filter_map(|line| line.trim().strip_prefix("Rows Removed by Filter: "));
    let most = removed.map(|count| count.parse::<i64>().unwrap()).max().unwrap_or(0);
    assert!(most < 10 && plan.contains("refunds_unsettled"), "{plan}");
}

#[tokio::test]
async fn a_deadline_that_cannot_be_kept_is_foretold() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.publish("globex").await;
    scratch.insert("globex", "G-", 5).await;
    scratch.insert("acme", "R-", 100).await;
    // At two a second the last of 101 goes after 50 seconds.
    scratch.sql("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, deadline_at)
                 values ('early', 'acme', 'P', 1, 'EUR', now() + interval '20 seconds'), ('late', 'acme', 'P', 1, 'EUR', now() + interval '1 hour')").await;
    let rates = |acme: f64| [("acme", FullPace::even(acme)), ("globex", FullPace::even(0.01))];
    let foretold = scratch.store.forecast(&rates(2.0)).await.unwrap();
    assert_eq!(foretold.len(), 1, "{foretold:?}");
    assert_eq!((foretold[0].channel.as_str(), foretold[0].late), ("acme", 1));
    let census = scratch.store.census().await.unwrap();
    assert_eq!(census[0].late.map(|(late, _)| late), Some(1));
    assert_eq!(scratch.store.forecast(&rates(2.0)).await.unwrap(), [], "what is known is not told again");
    let over = scratch.store.forecast(&rates(20.0)).await.unwrap();
    assert_eq!((over.len(), over[0].late, over[0].from), (1, 0, None));
    assert_eq!(scratch.store.census().await.unwrap()[0].late, None);

    // Without limits a channel has no rate, and nothing is said of its deadlines.
    scratch.store.forecast(&rates(2.0)).await.unwrap();
    scratch.store.forecast(&[("globex", FullPace::even(0.01))]).await.unwrap();
    assert_eq!(scratch.store.census().await.unwrap()[0].late, None);
}

#[tokio::test]
async fn no_forecast_reads_the_refunds_of_a_channel_without_a_deadline() {
    let scratch = Scratch::with_refunds(100).await;
    let values = "array['acme'], array[2.0::float8], array[null::float8], array[null::float8], array[null::float8], array[null::float8]";
    let reads = async || {
        let plan = plan_of(&scratch, "forecast", values).await;
        let reads =
            plan.lines().find(|line| line.contains(" on refunds r ")).unwrap_or_else(|| panic!("{plan}"));
        !reads.contains("never executed")
    };
    assert!(!reads().await);
    save_due(&scratch, "early-", 1, "now()", "now() + interval '20 seconds'").await;
    assert!(reads().await);
}

/// Saves refunds of `acme` with a due time and a deadline, as SQL.
async fn save_due(scratch: &Scratch, prefix: &str, count: u32, due: &str, deadline: &str) {
    scratch
        .sql(&format!(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, due_at, deadline_at)
             select '{prefix}' || n, 'acme', 'P', 1, 'EUR', {due}, {deadline} from generate_series(1, {count}) n"
        ))
        .await;
}

#[tokio::test]
async fn a_refund_that_is_due_later_does_not_wait_for_a_backlog_that_is_gone_by_then() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    // At two a second these are gone after 50 seconds, and 20 of the 30 others leave within ten seconds after they are due.
    scratch.insert("acme", "R-", 100).await;
    let (due, deadline) = ("now() + interval '1 hour'", "now() + interval '1 hour 10 seconds'");
    save_due(&scratch, "later-", 1, due, deadline).await;
    let two_a_second = [("acme", FullPace::even(2.0))];
    assert_eq!(scratch.store.forecast(&two_a_second).await.unwrap(), []);
    let (due, deadline) = ("now() + interval '2 hours'", "now() + interval '2 hours 10.25 seconds'");
    save_due(&scratch, "many-", 30, due, deadline).await;
    let foretold = scratch.store.forecast(&two_a_second).await.unwrap();
    assert_eq!(foretold.iter().map(|one| one.late).collect::<Vec<_>>(), [10], "{foretold:?}");

    // Neither the last day that a refund may have nor the smallest rate is too far away.
    let (due, deadline) = ("timestamptz '9998-12-01 00:00Z'", "timestamptz '9998-12-31 00:00Z'");
    save_due(&scratch, "last-", 1, due, deadline).await;
    for rate in [2.0, 1.0 / 2_678_400.0, 1e-15] {
        scratch.store.forecast(&[("acme", FullPace::even(rate))]).await.unwrap();
    }
    assert!(scratch.store.census().await.unwrap()[0].late.is_some_and(|(late, _)| late == 32));
}

#[tokio::test]
async fn what_is_unspent_of_a_quota_goes_at_once_and_the_rest_waits_for_the_next_windows() {
    const HOUR: f64 = 3600.0;
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let late = async |pace: FullPace| {
        scratch.store.forecast(&[("acme", pace)]).await.unwrap();
        scratch.store.census().await.unwrap()[0].late.map_or(0, |(late, _)| late)
    };
    // 1,000 a day, and the day has six hours left.
    let day = |spent: f64| Quota { permits: 1_000.0, spent, ends: 6.0 * HOUR, per: 24.0 * HOUR };
    let alone = |spent: f64| FullPace { per_second: f64::INFINITY, quota: Some(day(spent)) };
    save_due(&scratch, "now-", 500, "now()", "now() + interval '2 hours'").await;
    assert_eq!(late(alone(0.0)).await, 0, "evenly spaced, 417 would be late");
    assert_eq!(late(alone(900.0)).await, 400, "the others go at the end of the day");
    assert_eq!(late(alone(1_000.0)).await, 500);
    let slow = FullPace { per_second: 0.05013, quota: Some(day(0.0)) };
    assert_eq!(late(slow).await, 140, "another limit lets 360 go in two hours");

    // The next day has 1,000 more, of which those come first that are left over.
    let (due, deadline) = ("now() + interval '7 hours'", "now() + interval '8 hours'");
    save_due(&scratch, "later-", 1_200, due, deadline).await;
    assert_eq!(late(alone(0.0)).await, 200);
    assert_eq!(late(alone(900.0)).await, 400 + 600);
    // What waited for the day goes at the pace of the other limit. At one in ten seconds 400 take more than an hour.
    let pace = |per_second: f64| FullPace { per_second, quota: Some(day(900.0)) };
    assert_eq!(late(pace(10.0)).await, 400 + 600);
    assert_eq!(late(pace(0.100_125)).await, 400 + 880, "320 go between 7 h 07 min and 8 h");
}

#[tokio::test]
async fn the_leader_warns_of_refunds_for_which_the_quotas_until_their_deadlines_are_too_small() {
    let scratch = Scratch::new().await;
    let channels = "[limit.day]\npermits = 10\nper = \"1d\"\n[channel.acme]\n\
                    endpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"day\"]\n";
    window_lasts(86_400, 120).await;
    let node = TestNode::start(&scratch, "a", channels).await;
    // Ten go today, ten tomorrow, and the others the day after.
    let deadline = "date_trunc('day', now(), 'UTC') + interval '47 hours'";
    save_due(&scratch, "R-", 35, "now()", deadline).await;
    until("the quota is spent", async || scratch.count(State::Succeeded).await == 10).await;
    until("the others are late", async || {
        let channel = node.get("/v1/channels/acme").await.json();
        channel["late"]["refunds"] == 15
    })
    .await;
    node.stop().await;
}
