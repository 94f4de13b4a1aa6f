//! The producers: refunds saved in batches by SQL and one by one over HTTP, some of them cancelled again,
//! some with a deadline. Whatever was acknowledged is written down here, and nowhere else.

use std::collections::HashSet;
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
use refundd::refund::{NewRefund, State};
use tokio_util::sync::CancellationToken;

use crate::channels::CHANNELS;
use crate::world::World;

/// What producers were told.
#[derive(Debug, Default)]
pub struct Acknowledged {
    pub saved: HashSet<String>,
    pub cancelled: HashSet<String>,
    /// Saved, and nobody said so.
    pub doubtful: usize,
    /// Permits that another service was granted.
    pub permits: usize,
}

pub async fn by_sql(
    world: Arc<World>,
    mut dice: fastrand::Rng,
    enough: CancellationToken,
) -> anyhow::Result<Acknowledged> {
    let mut told = Acknowledged::default();
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
            // A producer that was not told repeats itself.
            while world.store.save(&batch).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            told.saved.extend(batch.into_iter().map(|refund| refund.refund_ref));
        }
    }
    Ok(told)
}

fn refund(channel: &str, name: &str, dice: &mut fastrand::Rng) -> anyhow::Result<NewRefund> {
    let deadline = (dice.u8(..40) == 0).then(|| SignedDuration::from_millis(dice.i64(500..8_000)));
    Ok(NewRefund {
        refund_ref: name.to_owned(),
        channel: channel.to_owned().try_into()?,
        payment_ref: format!("P-{name}"),
        amount_minor: dice.i64(1..100_000),
        currency: "EUR".to_owned(),
        payload: None,
        due_at: None,
        deadline_at: deadline.map(|in_a_while| Timestamp::now() + in_a_while),
    })
}

pub type Http = Client<HttpConnector, Full<Bytes>>;

pub async fn by_http(
    world: Arc<World>,
    mut dice: fastrand::Rng,
    enough: CancellationToken,
) -> anyhow::Result<Acknowledged> {
    let client: Http = Client::builder(TokioExecutor::new()).build_http();
    let mut told = Acknowledged::default();
    let mut number = 0_usize;
    // More come this way than a slow channel ever gets rid of.
    let quick: Vec<&str> = CHANNELS.iter().filter(|c| c.waiting > 100).map(|c| c.name).collect();
    while !enough.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(dice.u64(5..40))).await;
        number += 1;
        let name = format!("H-{number}");
        let body = serde_json::json!({
            "refund_ref": name, "channel": quick[dice.usize(..quick.len())], "payment_ref": "P-1",
            "amount_minor": 1 + number, "currency": "EUR",
        });
        // The same once more at another node, as a producer does that heard nothing; but not for ever.
        let mut place = None;
        for _ in 0..3 {
            let Some(node) = world.somewhere(&mut dice) else { continue };
            if let Some((200 | 201, at)) = post(&client, node, "/v1/refunds", body.to_string()).await {
                place = Some(at);
                break;
            }
        }
        let Some(place) = place else {
            told.doubtful += 1;
            continue;
        };
        told.saved.insert(name.clone());
        if dice.u8(..20) == 0
            && let Some(node) = world.somewhere(&mut dice)
            && let Some((200, _)) = post(&client, node, &format!("{place}/cancel"), String::new()).await
        {
            told.cancelled.insert(name);
        }
    }
    Ok(told)
}

/// The status, and where the refund is.
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
