//! What callers may do is done in their names and within their bounds.

use serde_json::{Value, json};

use super::{CallerTables, get, post};
use crate::dispatch::UNLIMITED;
use crate::harness::node::refund;
use crate::harness::{NodeProcess, Scratch, TestNode, until};

#[tokio::test]
async fn journal_ledger_and_refund_name_the_caller() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let keys = "may = [\"look\", \"cancel\", \"acquire\", \"review\"]\nchannels = [\"*\"]\nlimits = [\"*\"]";
    let desk = callers.caller("desk", keys);
    let node = TestNode::start(&scratch, "a", &callers.with_channels(super::TWO_CHANNELS)).await;
    scratch.bank.then("acme", playground::bank::Step::pays_but_says_500());
    scratch.insert("acme", "R-", 1).await;
    until("it is shown", async || scratch.count(refundd::refund::State::Review).await == 1).await;
    let version = scratch.number("select version::bigint from refundd.refunds where id = 1").await;
    let named = json!([{ "id": 1, "version": version }]);
    for by in [json!({}), json!({ "by": "desk" })] {
        let mut decision = json!({ "refunds": named, "state": "succeeded", "reason": "on the statement" });
        decision.as_object_mut().unwrap().extend(by.as_object().unwrap().clone());
        assert_eq!(post(&node, &desk, "/v1/review", &decision).await.status, 200);
    }
    let file = get(&node, &desk, "/v1/refunds/1/attempts").await.json();
    let last = file["attempts"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["kind"], &last["node"]), (&json!("manual"), &json!("desk")), "{file}");

    // The end of a window may refuse it.
    until("permits are handed out", async || {
        post(&node, &desk, "/v1/limits/acme/acquire", &json!({})).await.status == 200
    })
    .await;
    assert_eq!(scratch.text("select caller from refundd.permits where caller is not null").await, "desk");

    scratch.pause("acme", "so that it stays ready", "test").await;
    scratch.insert("acme", "S-", 1).await;
    let id = scratch.number("select id from refundd.refunds where refund_ref = 'S-1'").await;
    let cancelled = post(&node, &desk, &format!("/v1/refunds/{id}/cancel"), &json!({})).await.json();
    assert_eq!(cancelled["reason"], "cancelled by desk", "{cancelled}");
    let file = get(&node, &desk, &format!("/v1/refunds/{id}/attempts")).await.json();
    let line = &file["attempts"][0];
    assert_eq!((&line["kind"], &line["node"]), (&json!("manual"), &json!("desk")), "{file}");
    assert_eq!((&line["moved_to"], &line["code"]), (&json!("cancelled"), &json!("cancelled")), "{file}");
    let ann = json!({ "by": "ann" });
    assert_eq!(post(&node, &desk, &format!("/v1/refunds/{id}/cancel"), &ann).await.status, 422);
    node.stop().await;
}

#[tokio::test]
async fn a_caller_that_is_too_fast_waits_and_others_do_not() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let fast = callers.caller("fast", "may = [\"look\"]\nchannels = [\"acme\"]\nrequests = 3\nper = \"1h\"");
    let calm = callers.caller("calm", "may = [\"look\"]\nchannels = [\"acme\"]");
    let node = callers.node(&scratch).await;
    for _ in 0..3 {
        assert_eq!(get(&node, &fast, "/v1/refunds").await.status, 200);
    }
    let refused = get(&node, &fast, "/v1/refunds").await;
    assert_eq!(refused.status, 429);
    let seconds: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1100..=1200).contains(&seconds), "{refused:?}");
    assert_eq!(get(&node, &calm, "/v1/refunds").await.status, 200);
    // A reload gives no fresh requests, and a new rate counts at once.
    node.daemon.reload(scratch.config("a", &callers.with_channels(super::TWO_CHANNELS))).await.unwrap();
    assert_eq!(get(&node, &fast, "/v1/refunds").await.status, 429);
    callers.tables = callers.tables.replace("requests = 3", "requests = 4");
    node.daemon.reload(scratch.config("a", &callers.with_channels(super::TWO_CHANNELS))).await.unwrap();
    assert_eq!(get(&node, &fast, "/v1/refunds").await.status, 200);
    node.stop().await;
}

#[tokio::test]
async fn an_amount_above_the_callers_bound_is_refused_with_the_fields_name() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let keys = "may = [\"enqueue\"]\nchannels = [\"acme\"]\nmax_amount_minor = { EUR = 1250 }";
    let shop = callers.caller("shop", keys);
    let node = callers.node(&scratch).await;
    let (mut high, mut foreign) = (refund("R-2", "acme"), refund("R-3", "acme"));
    high["amount_minor"] = json!(1251);
    foreign["currency"] = json!("USD");
    assert_eq!(post(&node, &shop, "/v1/refunds", &refund("R-1", "acme")).await.status, 201);
    for (refund, field) in [(&high, "amount_minor"), (&foreign, "currency")] {
        let refused = post(&node, &shop, "/v1/refunds", refund).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["errors"][0]["field"]),
            (422, &json!(field)),
            "{refused:?}"
        );
        assert!(refused.text.contains("max_amount_minor"), "{refused:?}");
    }
    let batch = json!([high, foreign, refund("R-4", "acme")]);
    let results = post(&node, &shop, "/v1/refunds/batch", &batch).await.json();
    let statuses: Vec<_> =
        results.as_array().unwrap().iter().map(|result| result["status"].clone()).collect();
    assert_eq!(statuses, [422, 422, 201], "{results}");
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 2);
    node.stop().await;
}

#[tokio::test]
async fn a_repeat_is_recognised_after_the_callers_bound_was_lowered_and_nothing_is_said_of_others() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let keys = |channel: &str, most: u32| {
        format!("may = [\"enqueue\"]\nchannels = [\"{channel}\"]\nmax_amount_minor = {{ EUR = {most} }}")
    };
    let shop = callers.caller("shop", &keys("acme", 5000));
    let boutique = callers.caller("boutique", &keys("other", 1000));
    let node = callers.node(&scratch).await;
    let saved = post(&node, &shop, "/v1/refunds", &refund("R-1", "acme")).await;
    assert_eq!(saved.status, 201, "{saved:?}");
    callers.tables = callers.tables.replace("EUR = 5000", "EUR = 1000");
    node.daemon.reload(scratch.config("a", &callers.with_channels(super::TWO_CHANNELS))).await.unwrap();
    let again = post(&node, &shop, "/v1/refunds", &refund("R-1", "acme")).await;
    assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, &saved.json()["id"]), "{again:?}");
    let batch = json!([refund("R-2", "acme"), refund("R-1", "acme"), refund("R-1", "other")]);
    let results = post(&node, &shop, "/v1/refunds/batch", &batch).await.json();
    let ids: Vec<_> = results.as_array().unwrap().iter().map(|one| (&one["status"], &one["id"])).collect();
    let (id, none) = (&saved.json()["id"], &Value::Null);
    assert_eq!(ids, [(&json!(422), none), (&json!(200), id), (&json!(404), none)], "{results}");
    // Another caller that writes the same refund learns no more than before.
    for (channel, status) in [("acme", 404), ("other", 422)] {
        let refused = post(&node, &boutique, "/v1/refunds", &refund("R-1", channel)).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["id"]), (status, none), "{refused:?}");
    }
    let results = post(&node, &boutique, "/v1/refunds/batch", &batch).await.json();
    let ids: Vec<_> = results.as_array().unwrap().iter().map(|one| (&one["status"], &one["id"])).collect();
    assert_eq!(ids, [(&json!(404), none), (&json!(404), none), (&json!(422), none)], "{results}");
    node.stop().await;
}

#[tokio::test]
async fn without_callers_a_node_on_loopback_takes_every_request_and_says_so() {
    let scratch = Scratch::new().await;
    let node = NodeProcess::start(&scratch, "a", UNLIMITED);
    let said = node.log().iter().filter(|line| line.contains("may use the HTTP interface")).count();
    assert_eq!(said, 1, "{:#?}", node.log());
    let address = node.address().unwrap().parse().unwrap();
    let (status, _) = crate::harness::http::get(address, "/v1/refunds").await.unwrap();
    assert_eq!(status, 200);
}
