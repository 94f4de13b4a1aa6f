//! The producers save refunds: in batches by SQL, and one by one over HTTP; [`crate::importer`] imports files. They cancel some, and give some a
//! deadline. One producer floods the channels without a limit. Only this module records what the
//! producers saved, and which refunds refundd acknowledged.

use std::collections::{HashMap, HashSet};
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
use refundd::refund::{Money, NewRefund};
use refundd::store::Saved;
use tokio_util::sync::CancellationToken;

use crate::channels::{self, CHANNELS, Channel};
use crate::world::World;

/// The currency of all refunds.
pub const CURRENCY: &str = "EUR";

/// One refund as its producer wanted to save it.
#[derive(Debug)]
pub struct Offered {
    pub channel: &'static Channel,
    pub amount_minor: i64,
    /// In microseconds since 1970.
    pub deadline_us: Option<i64>,
    /// Whether refundd acknowledged that it is saved.
    pub is_saved: bool,
}

/// Everything that the producers and the test caller wanted, and that refundd acknowledged to them.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// Each refund that a producer tried to save, by its refund ref.
    pub offered: HashMap<String, Offered>,
    pub cancelled: HashSet<String>,
    /// Refunds with a cancel that was sent, whatever the answer was.
    pub to_cancel: HashSet<String>,
    /// Refunds that may have been saved, but no answer came.
    pub doubtful: usize,
    /// Permits that were granted to the test caller.
    pub permits: usize,
}

impl Acknowledged {
    /// The refunds that refundd acknowledged as saved.
    pub fn saved(&self) -> impl Iterator<Item = &str> {
        self.offered.iter().filter(|(_, offered)| offered.is_saved).map(|(name, _)| name.as_str())
    }
}

/// The bank's name for the payment of a refund. Each refund has its own.
pub fn payment_ref(name: &str) -> String {
    format!("P-{name}")
}

/// Saves a batch. A producer without an answer saves the batch again.
async fn save(world: &World, batch: Vec<NewRefund>, offered: &mut HashMap<String, Offered>) {
    let answers = loop {
        if let Ok(answers) = world.store.save(&batch).await {
            break answers;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for (refund, answer) in batch.into_iter().zip(answers) {
        let Some(channel) = channels::named(refund.channel.as_str()) else { continue };
        let as_offered = Offered {
            channel,
            amount_minor: refund.money.amount_minor,
            deadline_us: refund.deadline_at.map(Timestamp::as_microsecond),
            is_saved: matches!(answer, Saved::Created(_) | Saved::Same(_)),
        };
        offered.insert(refund.refund_ref, as_offered);
    }
}

/// Keeps refunds waiting in every channel until `enough`, and returns the acknowledged ones.
pub async fn by_sql(
    world: Arc<World>,
    mut dice: fastrand::Rng,
    enough: CancellationToken,
) -> anyhow::Result<Acknowledged> {
    let mut acknowledged = Acknowledged::default();
    let mut number = 0_usize;
    let names: Vec<&str> = CHANNELS.iter().map(|channel| channel.name).collect();
    let most = CHANNELS.iter().map(|channel| channel.waiting).max().unwrap_or(0);
    while !enough.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Postgres may be away.
        let Ok(waiting) = world.waiting(&names, most).await else { continue };
        for (channel, waiting) in CHANNELS.iter().zip(waiting) {
            if waiting >= channel.waiting {
                continue;
            }
            let batch: Vec<NewRefund> = (0..channel.waiting)
                .map(|_| {
                    number += 1;
                    refund(channel.name, &format!("S-{number}"), &mut dice)
                })
                .collect::<anyhow::Result<_>>()?;
            save(&world, batch, &mut acknowledged.offered).await;
        }
    }
    Ok(acknowledged)
}

/// The time between two batches of the flood.
const BATCH_EVERY: Duration = Duration::from_millis(200);

/// Saves `rate` refunds a second for the channels without a limit until `enough`, and returns them. A
/// channel in which refunds of ten seconds wait gets none.
pub async fn flood(
    world: Arc<World>,
    mut dice: fastrand::Rng,
    rate: u32,
    enough: CancellationToken,
) -> anyhow::Result<HashMap<String, Offered>> {
    let mut offered = HashMap::new();
    let free: Vec<&str> = CHANNELS.iter().filter(|c| c.limits.is_empty()).map(|c| c.name).collect();
    let each = rate as usize * BATCH_EVERY.as_millis() as usize / 1000 / free.len();
    let most = u64::from(rate) * 10 / free.len() as u64;
    let mut full: Vec<&str> = Vec::new();
    let mut ticks = tokio::time::interval(BATCH_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for nth in 0_usize.. {
        ticks.tick().await;
        if each == 0 || enough.is_cancelled() {
            break;
        }
        if nth.is_multiple_of(10)
            && let Ok(waiting) = world.waiting(&free, most + 1).await
        {
            full = free
                .iter()
                .zip(waiting)
                .filter(|(_, waiting)| *waiting > most)
                .map(|(name, _)| *name)
                .collect();
        }
        let open = free.iter().filter(|name| !full.contains(name));
        let batch: Vec<NewRefund> = open
            .flat_map(|name| (0..each).map(move |n| (name, n)))
            .map(|(name, n)| refund(name, &format!("F-{nth}-{name}-{n}"), &mut dice))
            .collect::<anyhow::Result<_>>()?;
        if batch.is_empty() {
            continue;
        }
        save(&world, batch, &mut offered).await;
    }
    Ok(offered)
}

fn refund(channel: &str, name: &str, dice: &mut fastrand::Rng) -> anyhow::Result<NewRefund> {
    let deadline = (dice.u8(..40) == 0).then(|| SignedDuration::from_millis(dice.i64(500..8_000)));
    Ok(NewRefund {
        refund_ref: name.to_owned(),
        channel: channel.to_owned().try_into()?,
        payment_ref: payment_ref(name),
        money: Money { amount_minor: dice.i64(1..100_000), currency: CURRENCY.to_owned() },
        payload: None,
        due_at: None,
        deadline_at: deadline.map(|in_a_while| Timestamp::now() + in_a_while),
        traceparent: None,
    })
}

/// The channels that can send as many refunds as come one by one and by import; a slow one could not.
pub fn quick() -> Vec<&'static Channel> {
    CHANNELS.iter().filter(|channel| channel.waiting > 100).collect()
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
    let quick = quick();
    while !enough.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(dice.u64(5..40))).await;
        number += 1;
        let (name, amount_minor) = (format!("H-{number}"), 1 + i64::try_from(number)?);
        let channel = quick[dice.usize(..quick.len())];
        let body = serde_json::json!({
            "refund_ref": name, "channel": channel.name, "payment_ref": payment_ref(&name),
            "amount_minor": amount_minor, "currency": CURRENCY,
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
        let offered = Offered { channel, amount_minor, deadline_us: None, is_saved: place.is_some() };
        acknowledged.offered.insert(name.clone(), offered);
        let Some(place) = place else {
            acknowledged.doubtful += 1;
            continue;
        };
        if dice.u8(..20) == 0
            && let Some(node) = world.somewhere(&mut dice)
        {
            acknowledged.to_cancel.insert(name.clone());
            if let Some((200, _)) = post(&client, node, &format!("{place}/cancel"), String::new()).await {
                acknowledged.cancelled.insert(name);
            }
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
