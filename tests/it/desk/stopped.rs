//! What the desk says while nothing goes: the bank refuses every send, or somebody stopped the channel.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::State;
use refundd::store::Pause;
use serde_json::{Value, json};
use sqlx::Executor;

use super::json_of;
use crate::cli::{file, refundd, text};
use crate::harness::{Scratch, TestNode, until};

const SLOW: &str = "[limit.acme]\npermits = 1\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\n\
                    limits = [\"acme\"]\n";

/// One send that the bank accepted a little more than 16 minutes ago, and 40 since then to which it answered 429. The owner writes them, because
/// nobody waits for them.
const HISTORY: &[&str] = &[
    "set session_replication_role = 'replica'",
    "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, moved_to, status, code)
     select 1, 'acme', 'send', 1, 1, 'a#1', now() - (985 - n * 24) * interval '1 second', now() - (985 - n * 24) * interval '1 second',
            case n when 0 then 'succeeded' else 'not_executed' end, 'ready', case n when 0 then 200 else 429 end,
            case n when 0 then 'succeeded' else 'asked_to_wait' end
       from generate_series(0, 40) n",
];

#[tokio::test]
async fn a_bank_that_refuses_every_send_has_no_pace_and_no_forecast_and_both_are_said() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::too_many(2));
    let node = TestNode::start(&scratch, "a", SLOW).await;
    scratch.insert("acme", "R-", 20).await;
    let mut owner = scratch.connect().await;
    for statement in HISTORY {
        owner.execute(*statement).await.unwrap();
    }
    let mut channel = Value::Null;
    until("the channel says that nothing is accepted", async || {
        channel = node.get("/v1/channels/acme").await.json();
        channel["no_forecast_because"].is_string() && channel["sends_last_minute"].as_i64() > Some(2)
    })
    .await;
    let why = channel["no_forecast_because"].as_str().unwrap();
    assert!(why.starts_with("nothing was accepted for 16 min: the bank asked to wait 4"), "{why}");
    assert_eq!(channel["expected_seconds_to_drain"], Value::Null, "{channel}");
    assert_eq!((&channel["observed_per_second"], &channel["accepted_last_minute"]), (&json!(0.0), &json!(0)));
    assert!(channel["nothing_accepted"]["sends"].as_i64() >= Some(40), "{channel}");
    let config = file(&scratch.file("a", SLOW));
    let table = text(&refundd(config.path(), &["status"]));
    assert!(table.contains("acme: nothing was accepted for 16 min: the bank asked to wait"), "{table}");
    assert!(table.contains("    0/s") && !table.contains("climbs back"), "{table}");
    let one = text(&refundd(config.path(), &["status", "acme"]));
    assert!(one.contains("drained    unknown: nothing was accepted for 16 min"), "{one}");
    let shown = text(&refundd(config.path(), &["show", "R-20"]));
    assert!(shown.contains("unknown: nothing was accepted for 16 min"), "{shown}");
    let last = json_of(config.path(), &["show", "R-20", "--json"]);
    assert_eq!(last["story"]["expected_at"], Value::Null, "{last}");
    let compared = text(&refundd(config.path(), &["check", "--against-running"]));
    let compared = compared.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        compared.contains("acme: nothing was accepted for 16 min")
            && compared.ends_with("suppose that it accepts."),
        "{compared}"
    );
    for path in ["/", "/channels/acme", "/refunds/20"] {
        let page = node.request_with(hyper::Method::GET, path, &[("accept", "text/html")], "").await.text;
        assert!(
            page.contains("unknown: ") && page.contains("nothing was accepted for 16 min"),
            "{path}: {page}"
        );
    }
    scratch.bank.then("acme", Step::pays());
    until("an accepted send brings the forecast back", async || {
        channel = node.get("/v1/channels/acme").await.json();
        channel["expected_seconds_to_drain"].is_number() && channel["nothing_accepted"].is_null()
    })
    .await;
    assert!(channel["accepted_last_minute"].as_i64() > Some(0), "{channel}");
    node.stop().await;
}

#[tokio::test]
async fn an_unreachable_bank_has_no_forecast_and_every_page_and_every_refund_names_it() {
    let scratch = Scratch::new().await;
    let channels = SLOW.replace("{bank}", "127.0.0.1:1");
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 5).await;
    let why = "its bank is unreachable";
    let mut channel = Value::Null;
    until("the channel has no forecast", async || {
        channel = node.get("/v1/channels/acme").await.json();
        channel["no_forecast_because"] == why
    })
    .await;
    assert_eq!(channel["expected_seconds_to_drain"], Value::Null, "{channel}");
    let has_none = |story: &Value| {
        let text = story["waits_for"]["text"].as_str().unwrap_or_default();
        story["no_forecast_because"] == why
            && story["expected_at"].is_null()
            && story["expected_in_seconds"].is_null()
            && text.ends_with(why)
    };
    let found = node.get("/v1/refunds/find?q=R-5").await.json();
    assert!(has_none(&found["story"]), "{found}");
    for path in ["/", "/channels/acme", "/refunds/5"] {
        let page = node.request_with(hyper::Method::GET, path, &[("accept", "text/html")], "").await.text;
        assert!(page.contains(&format!("unknown: {why}")), "{path}: {page}");
        assert!(path != "/channels/acme" || page.contains(&format!("not forecast: {why}")), "{page}");
    }
    let config = file(&scratch.file("a", &channels));
    until("the commands know it from the node's report", async || {
        has_none(&json_of(config.path(), &["show", "R-5", "--json"])["story"])
    })
    .await;
    let shown = text(&refundd(config.path(), &["status", "acme"]));
    assert!(shown.contains(&format!("drained    unknown: {why}")), "{shown}");
    assert!(shown.contains(&format!("late       not forecast: {why}")), "{shown}");
    node.stop().await;
}

#[tokio::test]
async fn every_pause_is_shown_with_its_end_and_a_refund_goes_after_the_last_one() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", SLOW).await;
    let pause = |who, reason, hours| Pause { reason, who, lasts: Some(Duration::from_hours(hours)) };
    scratch.store.pause("acme", &pause("mei", "the bank's maintenance", 2)).await.unwrap();
    scratch.pause_all(&pause("ann", "an alarm", 1)).await;
    scratch.insert("acme", "R-", 3).await;
    let config = file(&scratch.file("a", SLOW));
    let list = json_of(config.path(), &["status", "--json"]);
    let channel = &list["channels"][0];
    let ends: Vec<&str> = [0, 1].map(|nth| channel["suspensions"][nth]["until"].as_str().unwrap()).to_vec();
    assert_eq!((&channel["paused"]["by"], &channel["paused"]["until"]), (&json!("ann"), &json!(ends[0])));
    let seconds = |end: &str| end.parse::<jiff::Timestamp>().map(|at| format!("{at:.0}")).unwrap();
    for arguments in [&["status"][..], &["status", "acme"], &["show", "R-1"]] {
        let all = [
            "everything is paused by ann since ".to_owned(),
            format!("until {}: an alarm", seconds(ends[0])),
            "acme is paused by mei since ".to_owned(),
            format!("until {}: the bank's maintenance", seconds(ends[1])),
        ];
        // While the heartbeat of its only node is late, a refund waits for a node first.
        until(&format!("{arguments:?} names both pauses"), async || {
            let said = text(&refundd(config.path(), arguments));
            all.iter().all(|words| said.contains(words))
        })
        .await;
    }
    let shown = json_of(config.path(), &["show", "R-1", "--json"]);
    assert_eq!(shown["story"]["waits_for"]["until"], ends[1], "{shown}");
    let expected = shown["story"]["expected_in_seconds"].as_f64().unwrap();
    assert!((7_100.0..7_210.0).contains(&expected), "{shown}");
    node.stop().await;
}

#[tokio::test]
async fn a_story_numbers_the_sends_as_a_person_counts_them_and_says_only_what_was_known() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::too_many(0), Step::too_many(0), Step::too_many(0), Step::pays()]);
    let node = TestNode::start(&scratch, "a", SLOW).await;
    scratch.insert("acme", "R-", 1).await;
    until("it is paid", async || scratch.count(State::Succeeded).await == 1).await;
    let config = file(&scratch.file("a", SLOW));
    let shown = text(&refundd(config.path(), &["show", "R-1"]));
    let page = node.request_with(hyper::Method::GET, "/refunds/1", &[("accept", "text/html")], "").await.text;
    for nth in 1..=4 {
        assert!(shown.contains(&format!("send {nth} from node a: ")), "{shown}");
        assert!(page.contains(&format!("Send {nth}<")), "{page}");
    }
    assert!(!page.contains("to be sent from"), "the due time of the beginning is not known any more: {page}");
    let story = json_of(config.path(), &["show", "R-1", "--json"]);
    let sends = story["story"]["happened"].as_array().unwrap().iter().filter(|one| one["what"] == "send");
    let numbers: Vec<(i64, i64)> = sends
        .map(|one| (one["nth"].as_i64().unwrap(), one["evidence"]["number"].as_i64().unwrap()))
        .collect();
    // A busy node hands a refund back when its permit closes, and the journal has a line of that, too.
    let counted: Vec<(i64, i64)> = (1..).take(numbers.len().max(4)).map(|nth| (nth, 1)).collect();
    assert_eq!(numbers, counted, "a send that the bank refused counts no attempt");
    node.stop().await;
}
