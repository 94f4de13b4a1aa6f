//! Above which amounts a decision needs a second person.

use std::collections::BTreeMap;
use std::sync::Arc;

use refundd::refund::{AmountBounds, RefundId, State};
use refundd::store::{Decided, Decision, NeededFor};
use serde_json::json;

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, TestNode};

pub fn bounds(all: &[(&str, i64)]) -> AmountBounds {
    AmountBounds(Arc::new(
        all.iter().map(|(currency, most)| ((*currency).to_owned(), *most)).collect::<BTreeMap<_, _>>(),
    ))
}

/// Refunds in review of which no byte ever left, with these amounts; their ids are counted from 1.
async fn in_review(scratch: &Scratch, amounts: &[(&str, i64)]) {
    for (currency, amount) in amounts {
        scratch
            .sql(&format!(
                "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, due_at)
                 select 'R-' || count(*), 'acme', 'P', {amount}, '{currency}', now() + interval '1 day' from refundd.refunds"
            ))
            .await;
    }
    scratch.lease("state = 'ready'", "attempts = 1").await;
    scratch.release("state = 'sending'", "state = 'review'").await;
}

/// Whether one person decided; otherwise, why that was not enough.
async fn decide(scratch: &Scratch, id: i64, next: State) -> Option<NeededFor> {
    let id = RefundId(id);
    let seen = scratch.store.refund(id).await.unwrap().unwrap().version;
    let decision = Decision { id, seen, next, not_executed: false, why: "on the statement", who: "ann" };
    match scratch.store.decide(&decision).await.unwrap() {
        Decided::Done(_) => None,
        Decided::Proposed(_, proposal) => Some(proposal.needed_for),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn amounts_at_the_bound_are_one_persons_and_above_it_two_peoples_for_each_currency() {
    let scratch = Scratch::new().await;
    let bounded = format!("{UNLIMITED}[review]\nsecond_person_above = {{ EUR = 1000, JPY = 0 }}\n");
    let node = TestNode::start(&scratch, "a", &bounded).await;
    scratch.pause("acme", "so that nothing is sent", "test").await;
    let states = [State::Succeeded, State::Failed, State::Cancelled, State::Ready];
    let amounts = [("EUR", 1000), ("EUR", 1001), ("JPY", 1), ("USD", 1)];
    for (nth, state) in (0_i64..).zip(states) {
        in_review(&scratch, &amounts).await;
        let results = [1, 2, 3, 4].map(|id| decide(&scratch, 4 * nth + id, state));
        let mut needed = Vec::new();
        for result in results {
            needed.push(result.await);
        }
        let amount = Some(NeededFor::Amount);
        assert_eq!(needed, [None, amount, amount, amount], "{state}: no amount of USD has a bound");
    }
    node.stop().await;
}

#[tokio::test]
async fn of_many_decisions_those_that_need_a_second_person_become_proposals() {
    let scratch = Scratch::new().await;
    let bounded = format!("{UNLIMITED}[review]\nsecond_person_above = {{ EUR = 1000 }}\n");
    let node = TestNode::start(&scratch, "a", &bounded).await;
    let config = file(&scratch.file("a", &bounded));
    in_review(&scratch, &[("EUR", 1000), ("EUR", 1001), ("EUR", 5), ("EUR", 2000)]).await;
    let named = [1, 2, 99].map(|id| json!({ "id": id, "version": 3 }));
    let many = json!({ "refunds": named, "state": "succeeded", "reason": "on the statement", "by": "ann" });
    let answer = node.post("/v1/review", &many).await.json();
    let results: Vec<&str> =
        answer["results"].as_array().unwrap().iter().map(|one| one["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["decided", "proposed", "no_such_refund"], "{answer}");
    assert_eq!((&answer["decided"], &answer["proposed"]), (&json!(1), &json!(1)));
    assert!(answer["results"][1]["message"].as_str().unwrap().contains("amount"), "{answer}");
    let settled =
        refundd(config.path(), &["review", "settle", "3@3", "4@3", "--as", "failed", "--reason", "refused"]);
    assert!(settled.status.success(), "{}", text(&settled));
    for part in [
        "Refund 3 (R-2) is failed now",
        "Refund 4 (R-3) stays review: the amount",
        "1 of 2 decided, 1 proposed",
    ] {
        assert!(text(&settled).contains(part), "{part}: {}", text(&settled));
    }
    let waiting = node.get("/v1/proposals").await.json();
    let named: Vec<_> = waiting["proposals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| json!({ "id": one["id"], "version": one["version"] }))
        .collect();
    let second = json!({ "proposals": named, "reason": "seen, too", "by": "bob" });
    let approved = node.post("/v1/proposals/approve", &second).await.json();
    assert_eq!(approved["done"], 2, "{approved}");
    assert_eq!((scratch.count(State::Succeeded).await, scratch.count(State::Failed).await), (2, 2));
    node.stop().await;
}

#[tokio::test]
async fn the_rule_of_each_file_counts_until_the_owner_deletes_it() {
    let scratch = Scratch::new().await;
    let with = |most: i64| format!("{UNLIMITED}[review]\nsecond_person_above = {{ EUR = {most} }}\n");
    let node = TestNode::start(&scratch, "a", &with(1000)).await;
    in_review(&scratch, &[("EUR", 1001), ("EUR", 501), ("EUR", 501), ("EUR", 2000)]).await;
    // A reload without the section loosens nothing, and another node's file makes it stricter.
    node.daemon.reload(scratch.config("a", UNLIMITED)).await.unwrap();
    assert_eq!(decide(&scratch, 1, State::Failed).await, Some(NeededFor::Amount));
    assert_eq!(decide(&scratch, 2, State::Failed).await, None);
    node.daemon.reload(scratch.config("a", &with(500))).await.unwrap();
    node.daemon.reload(scratch.config("a", &with(500))).await.unwrap();
    assert_eq!(decide(&scratch, 3, State::Failed).await, Some(NeededFor::Amount));
    assert_eq!(scratch.number("select count(*) from refundd.second_person").await, 2);
    let laxer = NodeProcess::start(&scratch, "b", &with(5000));
    for stricter in ["{\"EUR\": 1000}", "{\"EUR\": 500}"] {
        let stricter = stricter.replace('"', "\\\"");
        laxer.wait_for_line(&format!("Another file asks for a second person above {stricter}"));
    }
    assert_eq!(decide(&scratch, 4, State::Failed).await, Some(NeededFor::Amount));
    scratch.sql("delete from refundd.second_person where above <> '{\"EUR\": 5000}'").await;
    assert_eq!(decide(&scratch, 4, State::Failed).await, None);
    node.stop().await;
}
