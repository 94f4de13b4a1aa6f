//! A decision names what it saw: a repeated, a stale and a second person's decision change nothing, and what may have
//! been executed is sent again only by a decision that confirms it was not.

mod confirmation;
mod failures;
mod in_a_browser;
mod moving;
mod names;
mod reopened;
mod terminal;

use playground::bank::Step;
use refundd::caller::Names;
use refundd::refund::{RefundId, State};
use refundd::store::{Cancelled, Canceller, ClaimRequest, Decided, Decision, RecoveryMove};
use serde_json::{Value, json};

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::anywhere::{add_address, claim_of, unlimited};
use crate::harness::{Scratch, TestNode, until};

pub async fn shown(scratch: &Scratch, sends: usize) {
    until(&format!("it is shown after {sends} sends"), async || {
        scratch.bank.look(|ledger| ledger.all().len()) == sends && scratch.count(State::Review).await == 1
    })
    .await;
}

/// A refund in review after a send that may have been executed, and its node.
pub async fn one_in_review() -> (Scratch, TestNode) {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 1).await;
    shown(&scratch, 1).await;
    (scratch, node)
}

pub async fn version(node: &TestNode, id: i64) -> i64 {
    node.get(&format!("/v1/refunds/{id}")).await.json()["version"].as_i64().unwrap()
}

pub fn again(id: i64, version: i64) -> Value {
    json!({
        "refunds": [{ "id": id, "version": version }], "state": "ready", "confirm": "not_executed",
        "reason": "acme says that it never arrived", "by": "ann",
    })
}

/// The result of a decision. Where it needs a second person, that person approves it.
async fn result(node: &TestNode, decision: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
    let one = &node.post("/v1/review", decision).await.json()["results"][0];
    if one["result"] != "proposed" {
        return text(&one["result"]);
    }
    let named = json!([{ "id": one["proposal"], "version": decision["refunds"][0]["version"] }]);
    let second = json!({ "proposals": named, "reason": "acme told me, too", "by": "bob" });
    let answer = node.post("/v1/proposals/approve", &second).await.json();
    text(&answer["results"][0]["result"]).replace("approved", "decided")
}

#[tokio::test]
async fn a_repeated_decision_does_not_send_again() {
    let (scratch, node) = one_in_review().await;
    let decision = again(1, version(&node, 1).await);
    assert_eq!(result(&node, &decision).await, "decided");
    shown(&scratch, 2).await;
    let before = version(&node, 1).await;
    let repeated = node.post("/v1/review", &decision).await.json();
    let verdict = &repeated["results"][0];
    assert_eq!(
        (verdict["result"].as_str(), verdict["state"].as_str(), verdict["version"].as_i64()),
        (Some("changed"), Some("review"), Some(before)),
        "{repeated}"
    );
    assert_eq!((version(&node, 1).await, scratch.count(State::Review).await), (before, 1), "it stays");
    assert_eq!(scratch.bank.ledger().all().len(), 2);
    // The journal has the one decision of two people, and the version that they saw.
    let file = node.get("/v1/refunds/1/attempts").await.json();
    let manual: Vec<&Value> =
        file["attempts"].as_array().unwrap().iter().filter(|line| line["kind"] == "manual").collect();
    assert_eq!(manual.len(), 2, "{file}");
    for (line, who) in manual.into_iter().zip(["ann", "bob"]) {
        assert_eq!(line["number"], decision["refunds"][0]["version"]);
        assert_eq!((&line["node"], &line["code"]), (&json!(who), &json!("confirmed_not_executed")));
    }
    node.stop().await;
}

#[tokio::test]
async fn of_two_people_who_decide_at_once_one_is_told_that_it_is_done() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let nodes =
        [TestNode::start(&scratch, "a", UNLIMITED).await, TestNode::start(&scratch, "b", UNLIMITED).await];
    scratch.insert("acme", "R-", 1).await;
    shown(&scratch, 1).await;
    for round in 1..=5 {
        let decision = again(1, version(&nodes[0], 1).await);
        let (ann, bob) = tokio::join!(result(&nodes[0], &decision), result(&nodes[1], &decision));
        let results = [ann.as_str(), bob.as_str()];
        assert_eq!(results.iter().filter(|one| **one == "decided").count(), 1, "{results:?}");
        assert!(results.contains(&"changed") || results.contains(&"ended"), "{results:?}");
        shown(&scratch, 1 + round).await;
    }
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_decision_without_versions_is_refused_with_the_way_out() {
    let (scratch, node) = one_in_review().await;
    for state in ["ready", "failed", "cancelled", "succeeded"] {
        let refused = node
            .post("/v1/review", &json!({ "ids": [1], "state": state, "reason": "seen", "by": "ann" }))
            .await;
        assert_eq!(refused.status, 422, "{refused:?}");
        let message = refused.json()["errors"][0]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("\"refunds\": [{\"id\": 4711, \"version\": 7}]"), "{refused:?}");
    }
    // As a node of the last version calls the functions for `ids`.
    let mut role = scratch.connect().await;
    for function in ["decide", "propose"] {
        let call = format!("select * from refundd.{function}(1, 'succeeded', 'why', 'ann', null, false)");
        let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(call)).fetch_all(&mut role).await.unwrap();
        assert!(rows.is_empty(), "{function}");
    }
    assert_eq!((scratch.count(State::Review).await, scratch.bank.ledger().all().len()), (1, 1));
    node.stop().await;
}

#[tokio::test]
async fn an_answer_that_comes_too_late_makes_a_look_before_it_stale() {
    let scratch = Scratch::with_refunds(2).await;
    let leased = "state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'a', lease_until = now(), first_sent_at = now()";
    scratch.sql(&format!("update refundd.refunds set {leased}")).await;
    scratch.store.recover(RecoveryMove::Lapse, 10, &[]).await.unwrap();
    scratch.sql("update refundd.refunds set state = 'review'").await;
    // What nobody can undo has no exception: the bank rejected what a person is about to call succeeded.
    for (id, outcome, next) in [(1, "succeeded", State::Ready), (2, "rejected", State::Succeeded)] {
        let looked = scratch.store.refund(RefundId(id)).await.unwrap().unwrap();
        // The node that lost its lease writes what it heard at last.
        scratch
            .sql(&format!(
                "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code)
                 values ({id}, 'acme', 'send', 1, 1, 'a', '{outcome}', '{outcome}')"
            ))
            .await;
        let decision = Decision {
            id: looked.id,
            seen: looked.version,
            next,
            not_executed: next == State::Ready,
            why: "acme says so",
            who: "ann",
        };
        let decided = scratch.store.decide(&decision).await.unwrap();
        let is_refused = matches!(&decided, Decided::Changed(now) if now.version == looked.version + 1);
        assert!(is_refused, "{decided:?}");
    }
}

#[tokio::test]
async fn every_move_makes_a_version_whoever_makes_it() {
    let scratch = Scratch::with_refunds(3).await;
    add_address(&scratch, "acme").await;
    let of = async |id: i64| {
        scratch.number(&format!("select version::bigint from refundd.refunds where id = {id}")).await
    };
    assert_eq!(of(1).await, 1);
    // As a node of the last version writes it, and psql.
    let leased =
        "state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'a#1/1', lease_until = now()";
    scratch.sql(&format!("update refundd.refunds set {leased} where id = 1")).await;
    assert_eq!(of(1).await, 2);
    scratch.sql("update refundd.refunds set state = 'succeeded', settled_at = now(), lease_node = null, lease_until = null where id = 1").await;
    assert_eq!(of(1).await, 3);
    // What is no move makes none, and no version is ever taken back.
    scratch.sql("update refundd.refunds set due_at = now() where id = 2").await;
    assert_eq!(of(2).await, 1);
    scratch.sql("update refundd.refunds set version = 7 where id = 2").await;
    for back in ["version = 6", "state = 'cancelled', settled_at = now(), version = 6"] {
        let error = scratch.sql_error(&format!("update refundd.refunds set {back} where id = 2")).await;
        assert!(error.to_string().contains("cannot go back from version 7 to 6"), "{error}");
    }
    // The claim raises it itself, and so does what takes it back.
    let taken = [unlimited(3)];
    let request = ClaimRequest { holder: "a#1/1", ..claim_of("a#1", &taken) };
    assert_eq!(scratch.store.claim_among(&request, &[]).await.unwrap().leased.len(), 1);
    assert_eq!(of(3).await, 2);
    scratch.store.unclaim(&[RefundId(3)], "a#1/1").await.unwrap();
    assert_eq!(of(3).await, 3);
}

#[tokio::test]
async fn a_cancellation_that_names_a_version_is_refused_once_the_refund_has_moved() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "to look", "ann").await;
    scratch.insert("acme", "R-", 2).await;
    let refused = node.post("/v1/refunds/1/cancel", &json!({ "version": 2 })).await;
    let problem = refused.json();
    assert_eq!((refused.status.as_u16(), problem["version"].as_i64()), (409, Some(1)), "{refused:?}");
    assert_eq!(problem["type"], "urn:refundd:problem:changed");
    assert_eq!(scratch.count(State::Ready).await, 2);
    let cancellation = json!({ "version": 1, "reason": "ordered twice", "by": "ann" });
    let done = node.post("/v1/refunds/1/cancel", &cancellation).await;
    assert_eq!((done.status.as_u16(), done.json()["version"].as_i64()), (200, Some(2)));
    assert_eq!(done.json()["reason"], "cancelled by ann: ordered twice");
    // What was wanted is so: repeating it is safe.
    assert_eq!(node.post("/v1/refunds/1/cancel", &json!({ "version": 1 })).await.status, 200);
    assert_eq!(node.post("/v1/refunds/2/cancel", &json!({ "verison": 1 })).await.status, 422);
    assert!(matches!(
        scratch.store.cancel(RefundId(2), None, &Canceller::producer(Names::All)).await.unwrap(),
        Cancelled::Now(_)
    ));
    // The journal has one line for each cancellation, and none for those that changed nothing.
    let lines = "select string_agg(concat_ws('|', refund_id, kind, number, node, outcome, moved_to, code, message), ' ' order by id) from refundd.attempts";
    assert_eq!(
        scratch.text(lines).await,
        "1|manual|1|ann|decided|cancelled|cancelled|ordered twice 2|manual|0|its producer|decided|cancelled|cancelled"
    );
    node.stop().await;
}

#[tokio::test]
async fn the_command_decides_only_on_versions_that_were_named() {
    let (scratch, node) = one_in_review().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let seen = format!("1@{}", version(&node, 1).await);
    assert!(text(&refundd(config.path(), &["review"])).contains(&seen));
    let settle = |id: &str, more: &[&str]| {
        let args = ["review", "settle", id, "--as", "ready", "--reason", "it never arrived"];
        let output = refundd(config.path(), &[&args[..], more].concat());
        (output.status.code(), text(&output))
    };
    let confirm = ["--confirm", "not-executed"];
    let (code, output) = settle("1", &confirm);
    assert!(code == Some(1) && output.contains("name the version") && output.contains("1@7"), "{output}");
    let (code, output) = settle(&seen, &[]);
    assert!(code == Some(1) && output.contains("--confirm not-executed"), "{output}");
    let (code, output) = settle(&seen, &confirm);
    assert!(code == Some(0) && output.contains("another person must approve"), "{output}");
    let args = ["review", "approve", &seen, "--reason", "acme told me, too", "--by", "bob"];
    let approved = text(&refundd(config.path(), &args));
    assert!(approved.contains("is ready now"), "proposal 1, at the version of refund 1: {approved}");
    shown(&scratch, 2).await;
    let (code, output) = settle(&seen, &confirm);
    assert!(code == Some(1) && output.contains("has changed"), "{output}");
    assert_eq!((scratch.count(State::Review).await, scratch.bank.ledger().all().len()), (1, 2));
    let args = ["review", "settle", &seen, "--as", "failed", "--reason", "x", "--confirm", "not-executed"];
    assert_eq!(refundd(config.path(), &args).status.code(), Some(2));
    node.stop().await;
}
