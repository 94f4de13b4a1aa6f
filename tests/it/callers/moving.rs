//! `POST /v1/channels/{name}/move`: for callers with both channels, and with the results that `refundd move` prints.

use refundd::refund::{RefundId, State};
use refundd::store::{Decided, Decision};
use serde_json::{Value, json};

use super::{CallerTables, TWO_CHANNELS, get, post};
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, until};

/// The refs with this result, and why they stay.
fn results(answer: &Value, result: &str) -> Vec<String> {
    let all = answer["results"].as_array().unwrap().iter().filter(|one| one["result"] == result);
    all.map(|one| {
        format!(
            "{}{}",
            one["refund_ref"].as_str().unwrap(),
            one["why"].as_str().map(|why| format!(" {why}")).unwrap_or_default()
        )
    })
    .collect()
}

#[tokio::test]
async fn a_caller_moves_refunds_between_its_own_channels_alone() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let desk = callers.caller("desk", "may = [\"operate\"]\nchannels = [\"acme\", \"other\"]");
    let shop = callers.caller("shop", "may = [\"operate\"]\nchannels = [\"acme\"]");
    let look = callers.caller("look", "may = [\"look\", \"enqueue\", \"cancel\"]\nchannels = [\"*\"]");
    let reader = callers.caller("reader", "may = [\"look\"]\nchannels = [\"acme\"]");
    let node = callers.node(&scratch).await;
    scratch.insert("acme", "R-", 5).await;
    scratch.insert("other", "O-", 1).await;
    scratch.to_review("refund_ref = 'R-4'").await;
    scratch.sql("update refundd.refunds set first_sent_at = now() where refund_ref = 'R-5'").await;
    let order = |to: &str, refs: &[&str]| json!({ "to": to, "refund_refs": refs, "reason": "acme is down" });
    let channels =
        "select string_agg(refund_ref, ' ' order by id) from refundd.refunds where channel = 'other'";

    for (token, path, body, status) in [
        (&shop, "/v1/channels/acme/move", order("other", &["R-1"]), 404),
        (&shop, "/v1/channels/other/move", order("acme", &["O-1"]), 404),
        (&desk, "/v1/channels/acme/move", order("nowhere", &["R-1"]), 404),
        (&desk, "/v1/channels/nowhere/move", order("other", &["R-1"]), 404),
        (&desk, "/v1/channels/acme/move", order("acme", &["R-1"]), 422),
        (&look, "/v1/channels/acme/move", order("other", &["R-1"]), 403),
    ] {
        assert_eq!(post(&node, token, path, &body).await.status, status, "{path} {body}");
    }
    let foreign = post(&node, &shop, "/v1/channels/acme/move", &order("other", &["R-1"])).await.json();
    let none = post(&node, &shop, "/v1/channels/acme/move", &order("nowhere", &["R-1"])).await.json();
    assert_eq!(foreign["detail"].to_string().replace("other", "nowhere"), none["detail"].to_string());
    assert_eq!(scratch.text(channels).await, "O-1");

    let path = "/v1/channels/acme/move";
    let refs = ["R-1", "R-2", "R-4", "R-5", "O-1", "X-1"];
    let mut dry = order("other", &refs);
    dry["dry_run"] = json!(true);
    let dry = post(&node, &desk, path, &dry).await.json();
    assert_eq!((&dry["moved"], &dry["would_move"]), (&json!(0), &json!(2)), "{dry}");
    assert_eq!(results(&dry, "would_move"), ["R-1", "R-2"]);
    assert_eq!(scratch.text(channels).await, "O-1");

    let done = post(&node, &desk, path, &order("other", &refs)).await.json();
    assert_eq!((&done["moved"], &done["more"]), (&json!(2), &json!(false)), "{done}");
    assert_eq!(results(&done, "moved"), ["R-1", "R-2"]);
    assert_eq!(results(&done, "is_there"), ["O-1"]);
    assert_eq!(results(&done, "stays"), ["R-4 review", "R-5 sent_before"]);
    assert_eq!(results(&done, "no_such_refund"), ["X-1"]);
    let key = scratch.text("select request_id::text from refundd.refunds where refund_ref = 'R-1'").await;
    assert_eq!((&done["results"][0]["request_id"], &done["results"][0]["version"]), (&json!(key), &json!(2)));
    assert_eq!(
        scratch.text("select node from refundd.attempts where code = 'moved_out' limit 1").await,
        "desk"
    );
    let again = post(&node, &desk, path, &order("other", &["R-1"])).await.json();
    assert_eq!((results(&again, "is_there"), &again["moved"]), (vec!["R-1".to_owned()], &json!(0)));

    let all = post(&node, &desk, path, &json!({ "to": "other", "all": true, "reason": "acme is down" }))
        .await
        .json();
    assert_eq!((results(&all, "moved"), &all["more"]), (vec!["R-3".to_owned()], &json!(false)), "{all}");
    assert_eq!(results(&all, "stays"), ["R-4 review", "R-5 sent_before"]);
    assert_eq!(scratch.text(channels).await, "R-1 R-2 R-3 O-1");

    // The reference of the new channel's bank is not for a caller who has the old channel alone.
    for statement in [
        "alter table refundd.refunds disable trigger user",
        "update refundd.refunds set bank_ref = 'B-1' where refund_ref = 'R-1'",
        "alter table refundd.refunds enable trigger user",
    ] {
        scratch.sql(statement).await;
    }
    for (token, channel, expected) in
        [(&reader, "acme", Value::Null), (&look, "acme", json!("B-1")), (&look, "other", json!("B-1"))]
    {
        let page = get(&node, token, &format!("/v1/changes?channel={channel}")).await.json();
        let change = page["changes"].as_array().unwrap().iter().find(|one| one["refund_ref"] == "R-1");
        assert_eq!(change.unwrap()["bank_ref"], expected, "{channel}: {page}");
    }
    node.stop().await;
}

#[tokio::test]
async fn the_new_channel_shows_no_message_and_no_permit_of_the_bank_before_the_move() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let both = callers.caller("both", "may = [\"look\", \"operate\"]\nchannels = [\"acme\", \"other\"]");
    let new = callers.caller("new", "may = [\"look\"]\nchannels = [\"other\"]");
    let node = callers.node(&scratch).await;
    scratch.insert("acme", "R-", 2).await;
    scratch.sql("update refundd.refunds set lease_epoch = 1, attempts = 1").await;
    let unsent =
        "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, permit, outcome, moved_to, code, message)
         select id, 'acme', 'send', 1, 1, 'a#1', 'secret-limit@1#1', 'not_executed', 'ready', 'not_sent', 'connect to 10.9.8.7: refused'
           from refundd.refunds";
    scratch.sql(unsent).await;
    let order = json!({ "to": "other", "refund_refs": ["R-1", "R-2"], "reason": "its bank is away" });
    let moved = post(&node, &both, "/v1/channels/acme/move", &order).await.json();
    assert_eq!(moved["moved"], 2, "{moved}");
    // The second one waits for a person, and a decision about it for a second person.
    scratch.lease("refund_ref = 'R-2'", "attempts = 2, first_sent_at = now()").await;
    scratch.release("refund_ref = 'R-2'", "state = 'review'").await;
    let id = RefundId(scratch.number("select id from refundd.refunds where refund_ref = 'R-2'").await);
    let seen = scratch.store.refund(id).await.unwrap().unwrap().version;
    let again = Decision {
        id,
        seen,
        next: State::Ready,
        not_executed: true,
        why: "it has no such refund",
        who: "ann",
    };
    let decided = scratch.store.decide(&again).await.unwrap();
    assert!(matches!(decided, Decided::Proposed(..)), "{decided:?}");
    let paths = ["/v1/refunds/1/attempts", "/v1/refunds/find?q=R-1", "/refunds/1", "/review", "/approvals"];
    for path in paths {
        for (token, sees) in [(&both, true), (&new, false)] {
            let answer = get(&node, token, path).await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            for secret in ["10.9.8.7", "secret-limit"] {
                assert_eq!(answer.text.contains(secret), sees, "{path}: {secret}: {}", answer.text);
            }
            assert!(answer.text.contains("its bank is away"), "{path}: {}", answer.text);
            assert!(answer.text.contains("not_sent"), "{path}: {}", answer.text);
        }
    }
    let lines = get(&node, &new, "/v1/refunds/1/attempts").await.json()["attempts"].clone();
    assert_eq!((&lines[0]["message"], &lines[0]["permit"]), (&Value::Null, &Value::Null), "{lines}");
    assert_eq!(lines.as_array().map(Vec::len), Some(3), "the line is there, and both of the move: {lines}");
    node.stop().await;
}

#[tokio::test]
async fn a_repeated_save_and_the_events_show_no_key_and_no_reason_of_a_channel_that_the_caller_does_not_have()
{
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let both = callers
        .caller("both", "may = [\"look\", \"enqueue\", \"operate\"]\nchannels = [\"acme\", \"other\"]");
    let old = callers.caller("old", "may = [\"look\", \"enqueue\"]\nchannels = [\"acme\"]");
    let node = callers.node(&scratch).await;
    let order = refund("R-1", "acme");
    let first = post(&node, &old, "/v1/refunds", &order).await.json()["request_id"].clone();
    let to_other = json!({ "to": "other", "refund_refs": ["R-1"], "reason": "its bank is away" });
    let moved = post(&node, &both, "/v1/channels/acme/move", &to_other).await.json();
    assert_eq!(moved["moved"], 1, "{moved}");
    for statement in [
        "alter table refundd.refunds disable trigger user",
        "update refundd.refunds set state = 'review', bank_ref = 'B-1', uncertain_at = now()",
        "alter table refundd.refunds enable trigger user",
    ] {
        scratch.sql(statement).await;
    }
    let second = &moved["results"][0]["request_id"];
    let hidden = json!("00000000-0000-0000-0000-000000000000");
    for (token, key, sees) in [(&both, second, true), (&old, &hidden, false)] {
        let again = post(&node, token, "/v1/refunds", &order).await;
        assert_eq!(again.status, 200, "{again:?}");
        let again = again.json();
        assert_eq!((&again["channel"], &again["request_id"]), (&json!("other"), key), "{again}");
        for field in ["reason", "bank_ref", "uncertain_since"] {
            assert_eq!(again.get(field).is_some(), sees, "{field}: {again}");
        }
        let events = get(&node, token, "/v1/events?refund_id=1").await.json();
        let out =
            events["events"].as_array().unwrap().iter().find(|event| event["kind"] == "moved_out").unwrap();
        assert_eq!(out["before"]["request_id"], first, "{out}");
        assert_eq!(out["after"]["channel"], "other", "{out}");
        assert_eq!(out["after"].get("request_id"), Some(second).filter(|_| sees), "{out}");
    }
    node.stop().await;
}

#[tokio::test]
async fn refunds_that_were_saved_after_the_dry_run_stay_where_the_order_names_its_up_to() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", TWO_CHANNELS).await;
    for channel in ["acme", "other"] {
        scratch.pause(channel, "the bank is down", "test").await;
    }
    scratch.insert("acme", "R-", 1_002).await;
    let order = |is_dry: bool, up_to: &Value| json!({ "to": "other", "all": true, "dry_run": is_dry, "up_to": up_to, "reason": "down", "by": "ann" });
    let path = "/v1/channels/acme/move";
    let dry = json!({ "to": "other", "all": true, "dry_run": true });
    let dry = node.post(path, &dry).await.json();
    assert_eq!(dry["would_move"], json!(1_002), "{dry}");
    scratch.insert("acme", "N-", 1).await;
    let up_to = &dry["up_to"];
    let again = node.post(path, &order(true, up_to)).await.json();
    assert_eq!((&again["would_move"], &again["up_to"]), (&json!(1_002), up_to), "{again}");
    for (moved, more) in [(1_000, true), (2, false)] {
        let answer = node.post(path, &order(false, up_to)).await.json();
        assert_eq!((&answer["moved"], &answer["more"]), (&json!(moved), &json!(more)));
        assert_eq!(&answer["up_to"], up_to);
        scratch.insert("acme", &format!("M{moved}-"), 1).await;
    }
    let left = "select string_agg(refund_ref, ' ' order by id) from refundd.refunds where channel = 'acme'";
    assert_eq!(scratch.text(left).await, "N-1 M1000-1 M2-1");
    // An order without it moves what is there.
    let rest = node.post(path, &order(false, &Value::Null)).await.json();
    assert_eq!(rest["moved"], json!(3), "{rest}");
    node.stop().await;
}

#[tokio::test]
async fn a_whole_channel_moves_in_parts_and_is_sent_by_the_other_channel_at_once() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", TWO_CHANNELS).await;
    scratch.pause("acme", "the bank is down", "test").await;
    scratch.insert("acme", "R-", 1_005).await;
    let order = json!({ "to": "other", "all": true, "reason": "the bank is down", "by": "ann" });
    let mut moved = 0;
    loop {
        let answer = node.post("/v1/channels/acme/move", &order).await.json();
        moved += answer["moved"].as_i64().unwrap();
        if answer["more"] != json!(true) {
            break;
        }
    }
    assert_eq!(moved, 1_005);
    until("the other channel sends", async || scratch.bank.look(|l| l.arrivals("other").count()) > 0).await;
    assert_eq!(scratch.bank.look(|l| l.arrivals("acme").count()), 0);
    node.stop().await;
}
