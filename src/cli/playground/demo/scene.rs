//! The events of the demo: its channels, how refunds are saved, and the faults with their times.
//!
//! The module neither draws nor judges.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;

use crate::caller::Names;
use crate::lock::Lock;
use crate::refund::{Money, NewRefund, State};
use crate::store::{Filter, Saved, Store};
use playground::bank::Step;
use playground::load::Caller;
use playground::stage::{NodeProcess, Stage};

/// A channel of the demo.
pub(super) struct DemoChannel {
    pub name: &'static str,
    /// Permits in each second; `None` is unlimited.
    pub permits: Option<u32>,
    pub by_sql: u32,
    pub by_http: u32,
    pub about: &'static str,
}

pub(super) const CHANNELS: [DemoChannel; 4] = [
    DemoChannel { name: "acme", permits: Some(20), by_sql: 650, by_http: 150, about: "20 a second" },
    DemoChannel { name: "northbank", permits: Some(1), by_sql: 32, by_http: 8, about: "1 a second" },
    DemoChannel { name: "globex", permits: Some(50), by_sql: 1200, by_http: 400, about: "50 a second" },
    DemoChannel { name: "bulk", permits: None, by_sql: 5000, by_http: 0, about: "unlimited" },
];

/// How long the HTTP producers take to save their refunds.
const TRICKLE: Duration = Duration::from_secs(25);

pub(super) fn channels() -> String {
    let of = |channel: &DemoChannel| {
        let name = channel.name;
        let (limit, limits) = match channel.permits {
            Some(permits) => {
                (format!("[limit.{name}]\npermits = {permits}\nper = \"1s\"\n"), format!("[\"{name}\"]"))
            }
            None => (String::new(), "[]".to_owned()),
        };
        // With short time-outs, the refunds of the killed node go to a person within the minute.
        format!(
            "{limit}[channel.{name}]\nendpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = {limits}\n\
                 timeout = \"2s\"\nconnect_timeout = \"1s\"\nlease = \"8s\"\nmax_in_flight = 50\n"
        )
    };
    CHANNELS.iter().map(of).collect::<Vec<_>>().concat()
}

/// A fault in the demo.
pub(super) enum Fault {
    KillNode,
    FlushRedis,
    SlowDown,
    Restart,
}

pub(super) fn script() -> Vec<(Duration, Fault)> {
    let at = Duration::from_secs;
    vec![
        (at(8), Fault::KillNode),
        (at(14), Fault::FlushRedis),
        (at(18), Fault::SlowDown),
        (at(22), Fault::Restart),
        (at(26), Fault::FlushRedis),
    ]
}

/// Causes a fault. Returns the text for the audience.
pub(super) async fn perform(
    fault: Fault,
    stage: &Stage,
    store: &Store,
    nodes: &mut [Option<NodeProcess>],
) -> anyhow::Result<String> {
    Ok(match fault {
        Fault::KillNode => {
            // A slow bank keeps calls in flight when the busiest node dies. node-a must live: HTTP goes there.
            for channel in &CHANNELS {
                stage.bank.then(channel.name, Step::pays().after(Duration::from_millis(150)));
            }
            let (victim, in_flight) = busiest(store).await?;
            // Leases are taken a little ahead of their window. After this wait the calls are under way.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let node = nodes
                .iter_mut()
                .find(|n| n.as_ref().is_some_and(|n| n.name == victim))
                .and_then(Option::take);
            node.context("the victim is gone already")?.kill_hard()?;
            for channel in &CHANNELS {
                stage.bank.then(channel.name, Step::pays());
            }
            format!("kill -9 of {victim}, with {in_flight} calls to the bank in flight")
        }
        Fault::FlushRedis => {
            let client = redis::Client::open(stage.redis.admin_url())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
            "FLUSHALL: Redis has forgotten every bucket and every count".to_owned()
        }
        Fault::SlowDown => {
            stage.bank.next("globex", [Step::too_many(3)]);
            "the bank behind globex answers 429, Retry-After: 3".to_owned()
        }
        Fault::Restart => {
            stage.redis.kill_hard().await?;
            stage.redis.restart(None).await?;
            "kill -9 of Redis, restarted empty".to_owned()
        }
    })
}

/// The node with the most calls in flight. node-a does not count, because it serves the producers.
async fn busiest(store: &Store) -> anyhow::Result<(String, i64)> {
    let began = std::time::Instant::now();
    loop {
        let leases = store.leases().await?;
        let busiest = leases.into_iter().find(|(node, in_flight)| node != "node-a" && *in_flight > 4);
        match busiest {
            Some(busiest) => return Ok(busiest),
            None if began.elapsed() > Duration::from_secs(10) => return Ok(("node-b".to_owned(), 0)),
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// The refs of refunds that were acknowledged, by a COMMIT or a 2xx.
#[derive(Debug, Default)]
pub(super) struct SavedRefs(Mutex<Vec<String>>);

impl SavedRefs {
    fn add(&self, refs: impl IntoIterator<Item = String>) {
        self.0.locked().extend(refs);
    }

    pub fn refs(&self) -> Vec<String> {
        self.0.locked().clone()
    }
}

/// Saves all refunds: most by SQL at once, the rest over HTTP while the nodes work.
pub(super) async fn produce(store: Store, http: SocketAddr, saved: Arc<SavedRefs>) -> anyhow::Result<()> {
    for channel in &CHANNELS {
        let refunds: Vec<NewRefund> = (1..=channel.by_sql)
            .map(|n| {
                Ok(NewRefund {
                    refund_ref: format!("{}-sql-{n}", channel.name),
                    channel: channel.name.to_owned().try_into()?,
                    payment_ref: format!("P-{n}"),
                    money: Money { amount_minor: i64::from(100 + n), currency: "EUR".to_owned() },
                    payload: None,
                    due_at: None,
                    deadline_at: None,
                    traceparent: None,
                })
            })
            .collect::<Result<_, crate::refund::id::BadName>>()?;
        for (answer, refund) in store.save(&refunds).await?.iter().zip(&refunds) {
            if !matches!(answer, Saved::Created(_)) {
                bail!("refund {} was not saved: {answer:?}", refund.refund_ref);
            }
            saved.add([refund.refund_ref.clone()]);
        }
    }
    let trickles = CHANNELS.iter().filter(|channel| channel.by_http > 0).map(|channel| {
        let saved = Arc::clone(&saved);
        tokio::spawn(trickle(channel.name, channel.by_http, http, saved))
    });
    for trickle in trickles.collect::<Vec<_>>() {
        trickle.await.context("a producer crashed")??;
    }
    Ok(())
}

async fn trickle(channel: &str, count: u32, http: SocketAddr, saved: Arc<SavedRefs>) -> anyhow::Result<()> {
    let caller = Caller::of(http);
    let mut tick = tokio::time::interval(TRICKLE / count);
    for n in 1..=count {
        tick.tick().await;
        let refund_ref = format!("{channel}-http-{n}");
        let body = json!({
            "refund_ref": refund_ref, "channel": channel, "payment_ref": format!("H-{n}"), "amount_minor": 500 + n, "currency": "EUR",
        });
        let (status, text) = caller
            .post("/v1/refunds", body.to_string())
            .await
            .with_context(|| format!("failed to save {refund_ref} over HTTP"))?;
        if status != 201 {
            bail!("saving {refund_ref} over HTTP was answered {status}: {}", String::from_utf8_lossy(&text));
        }
        saved.add([refund_ref]);
    }
    Ok(())
}

/// The state of every refund in Postgres, by its ref.
pub(super) async fn rows(store: &Store) -> anyhow::Result<HashMap<String, State>> {
    let mut rows = HashMap::new();
    let mut filter = Filter { limit: 1000, ..Filter::of(Names::All) };
    loop {
        let page = store.list(&filter).await?;
        let Some(last) = page.last() else { return Ok(rows) };
        filter.after = Some(last.id);
        rows.extend(page.into_iter().map(|refund| (refund.refund_ref, refund.state)));
    }
}
