//! People who decide about refunds in review. They decide by the bank's ledger at the time when they read the page.
//! Then they send the decision late, more than once, and to any node. A second person approves what needs one. Several people decide from pages of the same
//! time. Other people move refunds that wait to other channels.
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

use crate::channels::CHANNELS;
use crate::producer::Http;
use crate::records::{Decision, Shown};
use crate::world::{World, now_us};

/// The reply to a decision of which no whole answer came.
const NO_REPLY: &str = "no answer";
/// After this time the bank executes no earlier send: the longest grace, and some more.
const SETTLED_US: i64 = 16_000_000;

/// Reads the review page, waits, and sends each decision up to three times.
pub async fn decide(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let client: Http = Client::builder(TokioExecutor::new()).build_http();
    let shown = page(&client, world, dice, "/v1/refunds?state=review&limit=200").await;
    let mut wishes: Vec<(Value, Decision)> = Vec::new();
    for refund in &shown {
        let (Some(id), Some(version)) = (refund.get("id"), refund.get("version").and_then(Value::as_i64))
        else {
            continue;
        };
        let text = |name: &str| refund.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (refund_ref, key) = (text("refund_ref"), text("request_id"));
        world.saw(Shown {
            refund_ref: refund_ref.clone(),
            version,
            reason: text("reason"),
            seen_us: now_us(),
        });
        // The person asks both banks.
        let [Some(first), Some(second)] = world.look(|ledger| is_executed(ledger, &key)) else {
            continue;
        };
        let executed = first || second;
        let has_moved = text("reason").starts_with("address_changed:");
        if dice.u8(..3) == 0 {
            let named = json!({ "id": id, "version": version });
            let decision = Decision {
                refund_ref,
                version,
                again: !executed,
                has_moved,
                said_us: 0,
                replies: Vec::new(),
            };
            wishes.push((named, decision));
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
        for _ in 0..dice.usize(1..=3) {
            let results = answers(&client, world, dice, "/v1/review", &body).await;
            let mut proposed: Vec<Value> = Vec::new();
            let mut of_them: Vec<&mut Decision> = Vec::new();
            for (named, decision) in named.iter().zip(&mut decisions) {
                let result = result_of(results.as_deref(), named);
                decision.note(result);
                if let Some(proposal) = result.and_then(proposal) {
                    proposed.push(proposal);
                    of_them.push(decision);
                }
            }
            tokio::time::sleep(Duration::from_millis(dice.u64(..1_500))).await;
            if proposed.is_empty() {
                continue;
            }
            let body = json!({ "proposals": &proposed, "reason": "the bank's own list says so", "by": "torture too" });
            let results = answers(&client, world, dice, "/v1/proposals/approve", &body).await;
            for (named, decision) in proposed.iter().zip(of_them) {
                decision.note(result_of(results.as_deref(), named));
            }
        }
        world.decided(decisions);
    }
    Ok(())
}

/// Moves refunds that wait to another channel, from a page that is a moment old, while nodes claim them.
pub async fn move_refunds(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let mut names: Vec<&str> =
        CHANNELS.iter().filter(|channel| channel.swaps()).map(|channel| channel.name).collect();
    dice.shuffle(&mut names);
    let [from, to, ..] = *names.as_slice() else { return Ok(()) };
    let client: Http = Client::builder(TokioExecutor::new()).build_http();
    let shown = page(&client, world, dice, &format!("/v1/refunds?state=ready&channel={from}&limit=50")).await;
    let refs: Vec<Value> = shown.iter().filter_map(|refund| refund.get("refund_ref").cloned()).collect();
    let refs = dice.choose_multiple(refs, 20);
    if refs.is_empty() {
        return Ok(());
    }
    tokio::time::sleep(Duration::from_millis(dice.u64(..1_000))).await;
    let body =
        json!({ "to": to, "refund_refs": refs, "reason": "the other bank is faster", "by": "torture" });
    let from_us = now_us();
    let mut moved = false;
    for _ in 0..dice.usize(1..=2) {
        let results = answers(&client, world, dice, &format!("/v1/channels/{from}/move"), &body).await;
        moved |= results
            .iter()
            .flatten()
            .any(|result| result.get("result").is_some_and(|result| result == "moved"));
    }
    if moved {
        world.record_fault("refunds moved to another channel", from_us);
    }
    Ok(())
}

/// The refunds on a page; none if no whole answer came.
async fn page(client: &Http, world: &World, dice: &mut fastrand::Rng, path: &str) -> Vec<Value> {
    let page = ask(client, world, dice, path, None).await;
    page.as_ref().and_then(|page| page.get("refunds")).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Sends decisions, approvals or moves; returns what became of each, or `None` if no whole answer came.
async fn answers(
    client: &Http,
    world: &World,
    dice: &mut fastrand::Rng,
    path: &str,
    body: &Value,
) -> Option<Vec<Value>> {
    let answer = ask(client, world, dice, path, Some(body)).await?;
    let results = answer.get("results")?.as_array()?.clone();
    for result in &results {
        world.answered(result.get("result").and_then(Value::as_str).unwrap_or("nothing"));
    }
    Some(results)
}

/// The result about the refund or the proposal that has this id.
fn result_of<'a>(results: Option<&'a [Value]>, named: &Value) -> Option<&'a Value> {
    let id = named.get("id")?;
    results?.iter().find(|result| result.get("id") == Some(id))
}

impl Decision {
    /// Keeps what refundd answered beside the decision.
    fn note(&mut self, result: Option<&Value>) {
        let reply = result.and_then(|result| result.get("result")).and_then(Value::as_str);
        self.replies.push(reply.unwrap_or(NO_REPLY).to_owned());
    }

    /// Whether refundd accepted the decision, or may have. One that is only proposed, or about an older version, moves
    /// nothing.
    pub fn may_count(&self) -> bool {
        let may = ["decided", "approved", "not_decided", NO_REPLY];
        self.replies.iter().any(|reply| may.contains(&reply.as_str()))
    }
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

/// Reads a page, or sends what a person decides to its path. Returns the answer; `None` if no whole answer came.
async fn ask(
    client: &Http,
    world: &World,
    dice: &mut fastrand::Rng,
    path: &str,
    decision: Option<&Value>,
) -> Option<Value> {
    let url = format!("http://{}{path}", world.somewhere(dice)?);
    let request = match decision {
        None => Request::get(url),
        Some(_) => Request::post(url).header("content-type", "application/json"),
    };
    let body = decision.map(ToString::to_string).unwrap_or_default();
    let request = request.body(Full::new(Bytes::from(body))).ok()?;
    // A person who waited too long sends the decision again.
    let patience = Duration::from_millis(dice.u64(50..5_000));
    let answer = tokio::time::timeout(patience, client.request(request)).await.ok()?.ok()?;
    let body = tokio::time::timeout(patience, answer.into_body().collect()).await.ok()?.ok()?.to_bytes();
    serde_json::from_slice(&body).ok()
}
