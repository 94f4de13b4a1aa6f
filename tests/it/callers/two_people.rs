//! Callers that propose and callers that approve.

use serde_json::{Value, json};

use super::{CallerTables, TWO_CHANNELS, get, post};
use crate::harness::{Scratch, TestNode};

/// A node with callers, two channels that send nothing, and refund 1 of `acme` in review after an uncertain send.
async fn in_review(callers: &CallerTables) -> (Scratch, TestNode) {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &callers.with_channels(TWO_CHANNELS)).await;
    for channel in ["acme", "other"] {
        scratch.pause(channel, "so that nothing is sent", "test").await;
    }
    scratch.insert("acme", "R-", 1).await;
    scratch.lease("true", "attempts = 1, first_sent_at = now()").await;
    scratch.release("true", "state = 'review'").await;
    (scratch, node)
}

fn again() -> Value {
    json!({
        "refunds": [{ "id": 1, "version": 3 }], "state": "ready", "confirm": "not_executed",
        "reason": "acme has no such refund",
    })
}

fn second(proposal: &Value) -> Value {
    json!({ "proposals": [{ "id": proposal, "version": 3 }], "reason": "acme told me, too" })
}

#[tokio::test]
async fn a_caller_that_may_review_cannot_approve_and_one_that_may_both_cannot_approve_its_own() {
    let mut callers = CallerTables::new();
    let desk = callers.caller("desk", "may = [\"review\", \"look\"]\nchannels = [\"acme\"]");
    let chief = callers.caller("chief", "may = [\"approve\", \"look\"]\nchannels = [\"*\"]");
    let both = callers.caller("both", "may = [\"review\", \"approve\"]\nchannels = [\"acme\"]");
    let (scratch, node) = in_review(&callers).await;
    let proposed = async |token| {
        let answer = post(&node, token, "/v1/review", &again()).await.json();
        assert_eq!(answer["results"][0]["result"], "proposed", "{answer}");
        answer["results"][0]["proposal"].clone()
    };
    let (of_desk, of_both) = (proposed(&desk).await, proposed(&both).await);
    // The scopes.
    for (token, path, body) in [
        (&desk, "/v1/proposals/approve", second(&of_both)),
        (&chief, "/v1/proposals/withdraw", json!({ "proposals": [of_desk], "reason": "no" })),
        (&chief, "/v1/review", again()),
    ] {
        let refused = post(&node, token, path, &body).await;
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
        assert_eq!(refused.json()["type"], "urn:refundd:problem:scope-missing", "{refused:?}");
    }
    // Its own, and in another's name.
    let own = post(&node, &both, "/v1/proposals/approve", &second(&of_both)).await.json();
    assert_eq!(own["results"][0]["result"], "same_person", "{own}");
    let mut as_chief = second(&of_both);
    as_chief["by"] = json!("chief");
    let refused = post(&node, &both, "/v1/proposals/approve", &as_chief).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["errors"][0]["field"]), (422, &json!("by")));
    assert_eq!(scratch.number("select count(*) from refundd.refunds where state = 'review'").await, 1);
    // The list, and the other person.
    let listed = get(&node, &chief, "/v1/proposals").await.json();
    let by: Vec<_> = listed["proposals"].as_array().unwrap().iter().map(|one| one["by"].clone()).collect();
    assert_eq!(by, ["desk", "both"]);
    let approved = post(&node, &chief, "/v1/proposals/approve", &second(&of_desk)).await.json();
    assert_eq!(
        (&approved["done"], &approved["results"][0]["state"]),
        (&json!(1), &json!("ready")),
        "{approved}"
    );
    let file = get(&node, &desk, "/v1/refunds/1/attempts").await.json();
    assert_eq!(file["refund"]["reason"], "decided by desk and chief: acme has no such refund");
    let lines: Vec<_> =
        file["attempts"].as_array().unwrap().iter().map(|line| line["node"].clone()).collect();
    assert_eq!(lines, ["desk", "both", "chief"]);
    node.stop().await;
}

#[tokio::test]
async fn proposals_of_other_channels_do_not_exist_for_a_caller() {
    let mut callers = CallerTables::new();
    let desk = callers.caller("desk", "may = [\"review\"]\nchannels = [\"acme\"]");
    let other = callers.caller("other", "may = [\"review\", \"approve\", \"look\"]\nchannels = [\"other\"]");
    let (scratch, node) = in_review(&callers).await;
    // Ids that stand nowhere else in an answer.
    scratch.sql("alter table refundd.proposals alter column id restart with 700001").await;
    let proposed = post(&node, &desk, "/v1/review", &again()).await.json();
    let proposal = &proposed["results"][0]["proposal"];
    let missing = json!(proposal.as_i64().unwrap() + 1000);
    // The answers about a foreign proposal and about none differ in nothing but the id.
    for path in ["approve", "withdraw"] {
        let about = async |id: &Value| {
            let body = match path {
                "approve" => second(id),
                _ => json!({ "proposals": [id], "reason": "no" }),
            };
            let answer = post(&node, &other, &format!("/v1/proposals/{path}"), &body).await;
            (answer.status, answer.text.replace(&id.to_string(), "ID"))
        };
        let foreign = about(proposal).await;
        assert_eq!(foreign, about(&missing).await, "{path}");
        assert!(foreign.1.contains("no_such_proposal"), "{foreign:?}");
    }
    assert_eq!(get(&node, &other, "/v1/proposals").await.json()["proposals"], json!([]));
    assert_eq!(scratch.number("select count(*) from refundd.proposals where ended_as is null").await, 1);
    node.stop().await;
}
