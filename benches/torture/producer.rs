//! The producers save refunds: in batches by SQL, and one by one over HTTP. They cancel some, and give some a
//! deadline. One producer floods the channels without a limit. Only this module records which refunds refundd acknowledged.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::{SignedDuration, Timestamp};
use refundd::refund::{Money, NewRefund, State};
use tokio_util::sync::CancellationToken;

use crate::channels::CHANNELS;
use crate::world::World;

/// Everything that refundd acknowledged to the producers and to the test caller.
#[derive(Debug, Default)]
pub struct Acknowledged {
    pub saved: HashSet<String>,
    pub cancelled: HashSet<String>,
    /// Refunds that may have been saved, but no answer came.
    pub doubtful: usize,
    /// Permits that were granted to the test caller.
    pub permits: usize,
}

/// Keeps refunds waiting in every channel until `enough`, and returns the acknowledged ones.
pub async fn by_sql(
    world: Arc<World>,
    mut dice: fastrand::Rng,
    enough: CancellationToken,
) -> anyhow::Result<Acknowledged> {
    let mut acknowledged = Acknowledged::default();
    let mut number = 0_usize;
    while !enough.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Postgres may be away.
        let Ok(census) = world.store.census().await else { continue };
        for channel in CHANNELS {
            let of_it = census.iter().find(|counted| counted.channel == channel.name);
            let waiting = of_it.and_then(|counted| counted.counts.get(&State::Ready)).copied().unwrap_or(0);
            if waiting >= channel.waiting {
                continue;
            }
            let batch: Vec<NewRefund> = (0..channel.waiting)
                .map(|_| {
                    number += 1;
                    refund(channel.name, &format!("S-{number}"), &mut dice)
                })
                .collect::<anyhow::Result<_>>()?;
            // A producer without an answer saves the batch again.
            while world.store.save(&batch).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            acknowledged.saved.extend(batch.into_iter().map(|refund| refund.refund_ref));
        }
    }
    Ok(acknowledged)
}

/// The time between two batches of the flood.
const BATCH_EVERY: Duration = Duration::from_millis(200);

/// Saves `rate` refunds a second for the channels without a limit until `enough`, and returns the acknowledged ones. A
/// channel in which refunds of ten seconds wait gets none.
pub async fn flood(
    world: Arc<World>,
    mut dice: fastrand::Rng,
    rate: u32,
    enough: CancellationToken,
) -> anyhow::Result<HashSet<String>> {
    let mut saved = HashSet::new();
    let free: Vec<&str> = CHANNELS.iter().filter(|c| c.limit.is_none()).map(|c| c.name).collect();
    let each = rate as usize * BATCH_EVERY.as_millis() as usize / 1000 / free.len();
    let mut full: Vec<String> = Vec::new();
    let mut ticks = tokio::time::interval(BATCH_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for nth in 0_usize.. {
        ticks.tick().await;
        if each == 0 || enough.is_cancelled() {
            break;
        }
        if nth.is_multiple_of(10)
            && let Ok(census) = world.store.census().await
        {
            let waits = |counts: &BTreeMap<State, u64>| counts.get(&State::Ready).copied().unwrap_or(0);
            let most = u64::from(rate) * 10 / free.len() as u64;
            full = census.into_iter().filter(|c| waits(&c.counts) > most).map(|c| c.channel).collect();
        }
        let open = free.iter().filter(|name| !full.iter().any(|full| full == *name));
        let batch: Vec<NewRefund> = open
            .flat_map(|name| (0..each).map(move |n| (name, n)))
            .map(|(name, n)| refund(name, &format!("F-{nth}-{name}-{n}"), &mut dice))
            .collect::<anyhow::Result<_>>()?;
        if batch.is_empty() {
            continue;
        }
        while world.store.save(&batch).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        saved.extend(batch.into_iter().map(|refund| refund.refund_ref));
    }
    Ok(saved)
}

fn refund(channel: &str, name: &str, dice: &mut fastrand::Rng) -> anyhow::Result<NewRefund> {
    let deadline = (dice.u8(..40) == 0).then(|| SignedDuration::from_millis(dice.i64(500..8_000)));
    Ok(NewRefund {
        refund_ref: name.to_owned(),
        channel: channel.to_owned().try_into()?,
        payment_ref: format!("P-{name}"),
        money: Money { amount_minor: dice.i64(1..100_000), currency: "EUR".to_owned() },
        payload: None,
        due_at: None,
        deadline_at: deadline.map(|in_a_while| Timestamp::now() + in_a_while),
        traceparent: None,
    })
}

pub type Http = Client<HttpConnector, Full<Bytes>>;

/// Saves refunds over HTTP until `enough`, cancels some of them, and returns the acknowledged ones.
pub async fn by_http(
    world: Arc<World>,
    mut dice: fastrand::Rng,
    enough: CancellationToken,
) -> anyhow::Result<Acknowledged> {
    let client: Http = Client::builder(TokioExecutor::new()).build_http();
    let mut acknowledged = Acknowledged::default();
    let mut number = 0_usize;
    // A slow channel could not send as many refunds as come this way.
    let quick: Vec<&str> = CHANNELS.iter().filter(|c| c.waiting > 100).map(|c| c.name).collect();
    while !enough.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(dice.u64(5..40))).await;
        number += 1;
        let name = format!("H-{number}");
        let body = serde_json::json!({
            "refund_ref": name, "channel": quick[dice.usize(..quick.len())], "payment_ref": "P-1",
            "amount_minor": 1 + number, "currency": "EUR",
        });
        // A producer without an answer repeats the request at another node. It gives up after three attempts.
        let mut place = None;
        for _ in 0..3 {
            let Some(node) = world.somewhere(&mut dice) else { continue };
            if let Some((200 | 201, at)) = post(&client, node, "/v1/refunds", body.to_string()).await {
                place = Some(at);
                break;
            }
        }
        let Some(place) = place else {
            acknowledged.doubtful += 1;
            continue;
        };
        acknowledged.saved.insert(name.clone());
        if dice.u8(..20) == 0
            && let Some(node) = world.somewhere(&mut dice)
            && let Some((200, _)) = post(&client, node, &format!("{place}/cancel"), String::new()).await
        {
            acknowledged.cancelled.insert(name);
        }
    }
    Ok(acknowledged)
}

/// The status, and the path of the refund; `None` without a whole answer.
async fn post(client: &Http, node: SocketAddr, path: &str, body: String) -> Option<(u16, String)> {
    let request = Request::post(format!("http://{node}{path}")).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body))).ok()?;
    let answer = tokio::time::timeout(Duration::from_secs(8), client.request(request)).await.ok()?.ok()?;
    let status = answer.status().as_u16();
    let place = answer.headers().get("location").and_then(|at| at.to_str().ok()).map(str::to_owned);
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    let id = || serde_json::from_slice::<serde_json::Value>(&body).ok()?.get("id")?.as_i64();
    let place = place.or_else(|| id().map(|id| format!("/v1/refunds/{id}")));
    Some((status, place.unwrap_or_default()))
}
