//! The operator's desk: find a refund and read its story, see the state of channels and what binds them.

mod against_running;
mod binds;
mod forecasts;
mod fresh;
mod in_a_browser;
mod indexes;
mod status;
mod stopped;

use std::path::Path;

use playground::bank::Step;
use refundd::refund::{RefundId, State};
use serde_json::{Value, json};

use crate::cli::{file, refundd, text};
use crate::harness::{Scratch, TestNode, node::refund, until};

const WITH_BANK_REF: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "1s"
connect_timeout = "1s"
bank_ref = "/id"
"#;

fn json_of(file: &Path, arguments: &[&str]) -> Value {
    let output = refundd(file, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What happened to a refund, in order.
fn happened(story: &Value) -> Vec<String> {
    let all = story["happened"].as_array().unwrap_or_else(|| panic!("no story: {story}"));
    all.iter().map(|one| one["what"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_refund_is_found_by_each_of_its_names() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::answers(200, r#"{"id":"B-17"}"#).and_pays()]);
    let node = TestNode::start(&scratch, "a", WITH_BANK_REF).await;
    let mut saved = refund("R-1", "acme");
    saved["payment_ref"] = json!("PAY/1");
    let saved = node.post("/v1/refunds", &saved).await.json();
    until("it is paid", async || scratch.count(State::Succeeded).await == 1).await;
    let (id, key) = (saved["id"].to_string(), saved["request_id"].as_str().unwrap().to_owned());
    let config = file(&scratch.file("a", WITH_BANK_REF));
    for (name, by) in [
        ("R-1", "refund_ref"),
        (id.as_str(), "id"),
        (key.as_str(), "request_id"),
        ("B-17", "bank_ref"),
        ("PAY/1", "payment_ref"),
    ] {
        let query = format!("/v1/refunds/find?q={}", name.replace('/', "%2F"));
        let answer = node.get(&query).await;
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        let found = answer.json();
        assert_eq!(found["matches"][0]["found_by"], json!([by]), "{name}: {found}");
        assert_eq!(found["story"]["refund"]["bank_ref"], "B-17", "{found}");
        assert_eq!(happened(&found["story"]), ["saved", "send"], "{found}");
        assert_eq!(json_of(config.path(), &["show", name, "--json"])["matches"], found["matches"]);
        let shown = text(&refundd(config.path(), &["show", name]));
        assert!(
            shown.contains("is succeeded") && shown.contains("B-17") && shown.contains("HTTP 200"),
            "{shown}"
        );
    }
    assert_eq!(node.get(&format!("/v1/refunds/{id}")).await.json()["bank_ref"], "B-17");
    node.stop().await;
}

#[tokio::test]
async fn a_name_of_several_refunds_lists_them_and_a_name_of_none_is_said_to_be_unknown() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let node = TestNode::start(&scratch, "a", "").await;
    let insert = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
                  select 'R-' || n, 'acme', 'PAY-7', n, 'EUR' from generate_series(1, 150) n";
    scratch.sql(insert).await;
    let found = node.get("/v1/refunds/find?q=PAY-7").await.json();
    assert_eq!((found["matches"].as_array().map(Vec::len), &found["story"]), (Some(100), &Value::Null));
    let nth = |nth: usize| found["matches"][nth]["refund"]["refund_ref"].clone();
    assert_eq!((nth(0), nth(99)), (json!("R-150"), json!("R-51")), "the newest ones, newest first");
    assert_eq!(found["more"], true, "{found}");
    let config = file(&scratch.file("a", ""));
    let as_json = |name: &str| json_of(config.path(), &["show", name, "--json"]);
    let by_command = as_json("PAY-7");
    assert_eq!((&by_command["matches"], &by_command["more"]), (&found["matches"], &json!(true)));
    assert_eq!(as_json("R-7")["more"], false, "only one has the name");
    scratch.sql(&insert.replace("R-", "S-").replace("PAY-7", "PAY-8").replace("150", "100")).await;
    let all = as_json("PAY-8");
    assert_eq!((all["matches"].as_array().map(Vec::len), &all["more"]), (Some(100), &json!(false)));
    let listed = text(&refundd(config.path(), &["show", "PAY-7"]));
    assert!(listed.contains("More than 100 refunds have this name"), "{listed}");
    for unknown in ["R-0", "999999", "00000000-0000-4000-8000-000000000000", "%00", "99999999999999999999"] {
        let answer = node.get(&format!("/v1/refunds/find?q={unknown}")).await;
        assert_eq!(answer.status, 404, "{unknown}: {answer:?}");
    }
    for wrong in ["", "?q=", "?name=R-1", "?q=R-1&q=R-2"] {
        let answer = node.get(&format!("/v1/refunds/find{wrong}")).await;
        assert_eq!(answer.status, 422, "{wrong}: {answer:?}");
    }
    let none = refundd(config.path(), &["show", "R-0"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none).contains("no refund has the ref, id, request id"), "{}", text(&none));
    node.stop().await;
}

/// Where payment refs are numbers, the id of a refund may be the payment ref of others.
#[tokio::test]
async fn a_list_of_refunds_names_each_by_its_request_id_which_shows_that_refund_alone() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let insert = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
                  select 'R-' || n, 'acme', '1', n, 'EUR' from generate_series(1, 3) n";
    scratch.sql(insert).await;
    let config = file(&scratch.file("a", ""));
    let show = |name: &str| text(&refundd(config.path(), &["show", name]));
    let listed = show("1");
    assert!(listed.contains("3 refunds have this name. See one: refundd show REQUEST_ID"), "{listed}");
    for refund in 1..=3 {
        let request_id =
            scratch.text(&format!("select request_id::text from refundd.refunds where id = {refund}")).await;
        let line = format!("{refund:>12}  {request_id}  ready ");
        assert!(listed.lines().any(|one| one.starts_with(&line)), "{line}: {listed}");
        let shown = show(&request_id);
        assert!(shown.starts_with(&format!("Refund {refund}, R-{refund}, is ready")), "{shown}");
    }
}

#[tokio::test]
async fn a_story_has_each_attempt_inquiry_and_decision_in_order() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    let node = TestNode::start(&scratch, "a", WITH_BANK_REF).await;
    node.post("/v1/refunds", &refund("R-1", "acme")).await;
    until("it waits for a person", async || scratch.count(State::Review).await == 1).await;
    let story = |answer: &Value| answer["story"].clone();
    let waiting = story(&node.get("/v1/refunds/find?q=R-1").await.json());
    assert_eq!(waiting["waits_for"]["what"], "person", "{waiting}");
    assert_eq!(waiting["place"], Value::Null);
    scratch.decide(RefundId(1), State::Succeeded, "on the bank's statement", "ann").await;
    let decided = story(&node.get("/v1/refunds/find?q=R-1").await.json());
    assert_eq!(decided["waits_for"], Value::Null, "{decided}");
    let all = happened(&decided);
    assert_eq!(
        (all.first().unwrap().as_str(), all.last().unwrap().as_str()),
        ("saved", "decision"),
        "{all:?}"
    );
    assert!(all.contains(&"send".to_owned()), "{decided}");
    let times: Vec<&str> =
        decided["happened"].as_array().unwrap().iter().map(|one| one["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let shown = text(&refundd(file(&scratch.file("a", WITH_BANK_REF)).path(), &["show", "R-1"]));
    assert!(shown.contains("ann decided, moved to succeeded: on the bank's statement"), "{shown}");
    node.stop().await;
}

#[tokio::test]
async fn a_refund_says_what_it_waits_for() {
    let scratch = Scratch::new().await;
    let channels = "[limit.acme]\npermits = 1\nper = \"1d\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\n\
                    limits = [\"acme\"]\n[channel.other]\nendpoint = \"http://{bank}/other/refunds\"\nlimits = []\n";
    scratch.publish("gone").await;
    let node = TestNode::start(&scratch, "a", channels).await;
    scratch.pause("other", "maintenance", "ann").await;
    scratch.insert("acme", "A-", 3).await;
    scratch.insert("other", "O-", 1).await;
    scratch.insert("gone", "G-", 1).await;
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, due_at)
             values ('LATER', 'acme', 'P', 1, 'EUR', now() + interval '1 hour')",
        )
        .await;
    until("the day's permit is spent", async || scratch.count(State::Succeeded).await == 1).await;
    let story =
        async |name: &str| node.get(&format!("/v1/refunds/find?q={name}")).await.json()["story"].clone();
    assert_eq!(story("LATER").await["waits_for"]["what"], "due_time");
    assert_eq!(story("LATER").await["place"], 3);
    assert_eq!(story("G-1").await["waits_for"]["what"], "node");
    let paused = story("O-1").await;
    assert_eq!(paused["waits_for"]["what"], "suspension", "{paused}");
    let text = paused["waits_for"]["text"].as_str().unwrap();
    assert!(text.contains("ann") && text.contains("maintenance"), "{text}");
    assert_eq!(paused["expected_at"], Value::Null, "nobody knows when a person resumes");
    let mut third = Value::Null;
    until("the counts are fresh", async || {
        third = story("A-3").await;
        (third["place"].clone(), third["of"].clone()) == (json!(2), json!(3))
    })
    .await;
    assert_eq!(third["waits_for"]["what"], "place");
    let seconds = third["expected_in_seconds"].as_f64().unwrap();
    assert!((86_400.0..=2.0 * 86_400.0).contains(&seconds), "the day after tomorrow begins later: {seconds}");
    node.stop().await;
}
