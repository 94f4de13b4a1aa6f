//! People who decide about refunds in review. They decide by the bank's ledger at the time when they read the page.
//! Then they send the decision late, more than once, and to any node. A second person approves what needs one. Several people decide from pages of the same
//! time.
//!
//! A decision is true at the time when the page was read. It is only about refunds for which the bank will execute
//! nothing more. So one decision allows one more send, and a repeated or stale decision must change nothing. Nobody
//! decides without a version: there a repeated decision could pay twice by design.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use playground::bank::Ledger;
use serde_json::{Value, json};

use crate::producer::Http;
use crate::world::{Decision, World, now_us};

/// After this time the bank executes no earlier send: the longest grace, and some more.
const SETTLED_US: i64 = 16_000_000;

/// Reads the review page, waits, and sends each decision up to three times.
pub async fn decide(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let client: Http = Client::builder(TokioExecutor::new()).build_http();
    let Some(page) = ask(&client, world, dice, None).await else { return Ok(()) };
    let shown = page.get("refunds").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut wishes: Vec<(Value, Decision)> = Vec::new();
    for refund in &shown {
        let (Some(id), Some(version)) = (refund.get("id"), refund.get("version").and_then(Value::as_i64))
        else {
            continue;
        };
        let text = |name: &str| refund.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (refund_ref, key) = (text("refund_ref"), text("request_id"));
        // The person asks both banks.
        let [Some(first), Some(second)] = world.look(|ledger| is_executed(ledger, &key)) else {
            continue;
        };
        let executed = first || second;
        let has_moved = text("reason").starts_with("address_changed:");
        if dice.u8(..3) == 0 {
            let named = json!({ "id": id, "version": version });
            wishes.push((named, Decision { refund_ref, version, again: !executed, has_moved, said_us: 0 }));
        }
    }
    for again in [true, false] {
        let (named, mut decisions): (Vec<Value>, Vec<Decision>) =
            wishes.iter().filter(|(_, decision)| decision.again == again).take(20).cloned().unzip();
        if named.is_empty() {
            continue;
        }
        let mut body = json!({
            "refunds": named, "reason": "the bank's own list says so", "by": "torture",
            "state": if again { "ready" } else { "succeeded" },
        });
        if again {
            body["confirm"] = json!("not_executed");
        }
        tokio::time::sleep(Duration::from_millis(dice.u64(..4_000))).await;
        for decision in &mut decisions {
            decision.said_us = now_us();
        }
        world.decided(decisions);
        for _ in 0..dice.usize(1..=3) {
            let results = answers(&client, world, dice, "/v1/review", &body).await;
            tokio::time::sleep(Duration::from_millis(dice.u64(..1_500))).await;
            let proposed: Vec<Value> = results.iter().filter_map(proposal).collect();
            if !proposed.is_empty() {
                let body = json!({ "proposals": proposed, "reason": "the bank's own list says so", "by": "torture too" });
                answers(&client, world, dice, "/v1/proposals/approve", &body).await;
            }
        }
    }
    Ok(())
}

/// Sends decisions or approvals; returns what became of each.
async fn answers(
    client: &Http,
    world: &World,
    dice: &mut fastrand::Rng,
    path: &str,
    body: &Value,
) -> Vec<Value> {
    let answer = ask(client, world, dice, Some((path, body))).await;
    let results = answer.as_ref().and_then(|answer| answer.get("results")).and_then(Value::as_array);
    let results = results.cloned().unwrap_or_default();
    for result in &results {
        world.answered(result.get("result").and_then(Value::as_str).unwrap_or("nothing"));
    }
    results
}

/// The proposal that a decision became, as an approval names it.
fn proposal(result: &Value) -> Option<Value> {
    Some(json!({ "id": result.get("proposal")?, "version": result.get("version")? }))
}

/// Whether the bank has executed the refund; `None` while that may still change or the bank says "pending".
fn is_executed(ledger: &Ledger, key: &str) -> Option<bool> {
    let now_us = now_us();
    let mut executed = false;
    for send in ledger.sends_under(key) {
        if send.executing || send.at_us + SETTLED_US > now_us || send.pending_until_us > now_us {
            return None;
        }
        executed |= send.paid;
    }
    Some(executed)
}

/// Reads the review page, or sends what a person decides to a path. Returns the answer; `None` if no whole answer came.
async fn ask(
    client: &Http,
    world: &World,
    dice: &mut fastrand::Rng,
    decision: Option<(&str, &Value)>,
) -> Option<Value> {
    let node = world.somewhere(dice)?;
    let request = match decision {
        None => Request::get(format!("http://{node}/v1/refunds?state=review&limit=200")),
        Some((path, _)) => {
            Request::post(format!("http://{node}{path}")).header("content-type", "application/json")
        }
    };
    let body = decision.map(|(_, body)| body.to_string()).unwrap_or_default();
    let request = request.body(Full::new(Bytes::from(body))).ok()?;
    // A person who waited too long sends the decision again.
    let patience = Duration::from_millis(dice.u64(50..5_000));
    let answer = tokio::time::timeout(patience, client.request(request)).await.ok()?.ok()?;
    let body = tokio::time::timeout(patience, answer.into_body().collect()).await.ok()?.ok()?.to_bytes();
    serde_json::from_slice(&body).ok()
}
