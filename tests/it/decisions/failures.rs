//! A decision that Postgres does not take hides nothing of the others: each has a result.

use playground::bank::Step;
use refundd::refund::State;
use serde_json::{Value, json};
use sqlx::{Connection, Executor};

use super::version;
use crate::callers::post_form;
use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::node::Answer;
use crate::harness::{Scratch, TestNode, until};

/// Holds the row of refund 2.
const HOLD: &str = "select 1 from refundd.refunds where id = 2 for update";

/// The `result` of each decision, or of each answer to a proposal.
fn results(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer}"));
    results.iter().map(|one| one["result"].as_str().unwrap().to_owned()).collect()
}

/// The answer while somebody holds refund 2 for longer than a node waits.
async fn while_held(scratch: &Scratch, asked: impl Future<Output = Answer>) -> Answer {
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute(HOLD).await.unwrap();
    let answer = asked.await;
    lock.rollback().await.unwrap();
    answer
}

#[tokio::test]
async fn while_somebody_holds_one_refund_the_others_are_decided_and_approved() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 3).await;
    until("all are shown", async || scratch.count(State::Review).await == 3).await;
    let mut refunds = Vec::new();
    for id in 1..=3 {
        refunds.push(json!({ "id": id, "version": version(&node, id).await }));
    }
    // Decisions that need a second person, and the second person's answers.
    let again = json!({ "refunds": refunds, "state": "ready", "confirm": "not_executed", "reason": "it never arrived", "by": "ann" });
    let proposed = node.post("/v1/review", &again).await.json();
    let proposals: Vec<Value> = proposed["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| json!({ "id": one["proposal"], "version": one["version"] }))
        .collect();
    let second = json!({ "proposals": proposals, "reason": "acme told me, too", "by": "bob" });
    let approved = while_held(&scratch, node.post("/v1/proposals/approve", &second)).await;
    assert_eq!(results(&approved), ["approved", "not_decided", "approved"], "{approved:?}");
    assert_eq!(approved.json()["done"], 2);
    let repeated = node.post("/v1/proposals/approve", &second).await;
    assert_eq!(results(&repeated), ["ended", "approved", "ended"], "{repeated:?}");
    // Decisions of one person, after they were sent again.
    until("all are shown again", async || scratch.count(State::Review).await == 3).await;
    for refund in &mut refunds {
        refund["version"] = json!(version(&node, refund["id"].as_i64().unwrap()).await);
    }
    let failed = json!({ "refunds": refunds, "state": "failed", "reason": "acme refused it", "by": "ann" });
    let decided = while_held(&scratch, node.post("/v1/review", &failed)).await;
    assert_eq!(results(&decided), ["decided", "not_decided", "decided"], "{decided:?}");
    let answer = decided.json();
    assert_eq!((&answer["decided"], &answer["results"][1]["state"]), (&json!(2), &Value::Null), "{answer}");
    let message = answer["results"][1]["message"].as_str().unwrap();
    assert!(message.contains("try it again"), "{message}");
    // The page says the same.
    let chosen = refunds.iter().map(|one| format!("refund={}%40{}&", one["id"], one["version"]));
    let form = format!("{}state=failed&reason=refused&by=ann", chosen.collect::<String>());
    let page = while_held(&scratch, post_form(&node, None, "/review", &form)).await;
    assert!(page.status == 200 && page.text.contains("try it again"), "{page:?}");
    let repeated = node.post("/v1/review", &failed).await;
    assert_eq!(results(&repeated), ["changed", "decided", "changed"], "{repeated:?}");
    assert_eq!(scratch.count(State::Failed).await, 3);
    node.stop().await;
}

#[tokio::test]
async fn the_command_decides_the_others_and_names_the_refund_that_somebody_holds() {
    let scratch = Scratch::with_refunds(3).await;
    scratch.to_review("true").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let seen = scratch.number("select max(version)::bigint from refundd.refunds").await;
    let named = [1, 2, 3].map(|id| format!("{id}@{seen}"));
    let mut settle = vec!["review", "settle"];
    settle.extend(named.iter().map(String::as_str));
    settle.extend(["--as", "failed", "--reason", "acme refused it"]);
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute(HOLD).await.unwrap();
    let settled = refundd(config.path(), &settle);
    assert_eq!(settled.status.code(), Some(1), "{}", text(&settled));
    for part in [
        "Refund 1 (R-1) is failed now",
        "Refund 3 (R-3) is failed now",
        "2 of 3 decided, 0 proposed",
        "refundd: refund 2: ",
        "refundd: failed to write a decision",
    ] {
        assert!(text(&settled).contains(part), "{part}: {}", text(&settled));
    }
    // If nothing was decided, the command says so as before.
    let settled = refundd(config.path(), &["review", "settle", &named[1], "--as", "failed", "--reason", "r"]);
    assert_eq!(settled.status.code(), Some(1), "{}", text(&settled));
    assert!(text(&settled).starts_with("refundd: failed to write a decision"), "{}", text(&settled));
    lock.rollback().await.unwrap();
    assert_eq!((scratch.count(State::Failed).await, scratch.count(State::Review).await), (2, 1));
}
