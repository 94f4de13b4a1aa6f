//! What happens in the demo: the channels, who saves refunds and how, and what goes wrong when.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;

use crate::lock::Lock;
use crate::refund::{NewRefund, State};
use crate::store::{Filter, Saved as SavedAs, Store};
use playground::bank::Step;
use playground::load::Caller;
use playground::stage::{NodeProcess, Stage};

/// A channel of the demo.
pub(super) struct Act {
    pub name: &'static str,
    /// Permits in each second; `None` is unlimited.
    pub permits: Option<u32>,
    pub by_sql: u32,
    pub by_http: u32,
    pub about: &'static str,
}

pub(super) const ACTS: [Act; 4] = [
    Act { name: "acme", permits: Some(20), by_sql: 650, by_http: 150, about: "20 a second" },
    Act { name: "northbank", permits: Some(1), by_sql: 32, by_http: 8, about: "1 a second" },
    Act { name: "globex", permits: Some(50), by_sql: 1200, by_http: 400, about: "50 a second" },
    Act { name: "bulk", permits: None, by_sql: 5000, by_http: 0, about: "unlimited" },
];

/// How long the HTTP producers take over it.
const TRICKLE: Duration = Duration::from_secs(25);

pub(super) fn channels() -> String {
    let of = |act: &Act| {
        let name = act.name;
        let (limit, limits) = match act.permits {
            Some(permits) => {
                (format!("[limit.{name}]\npermits = {permits}\nper = \"1s\"\n"), format!("[\"{name}\"]"))
            }
            None => (String::new(), "[]".to_owned()),
        };
        // Short time-outs, so that what the killed node held is shown within the minute.
        format!(
            "{limit}[channel.{name}]\nendpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = {limits}\n\
                 timeout = \"2s\"\nconnect_timeout = \"1s\"\nlease = \"8s\"\nmax_in_flight = 50\n"
        )
    };
    ACTS.iter().map(of).collect::<Vec<_>>().concat()
}

/// What goes wrong.
pub(super) enum Wrong {
    KillNode,
    FlushRedis,
    AskToWait,
    Restart,
}

pub(super) fn script() -> Vec<(Duration, Wrong)> {
    let at = Duration::from_secs;
    vec![
        (at(8), Wrong::KillNode),
        (at(14), Wrong::FlushRedis),
        (at(18), Wrong::AskToWait),
        (at(22), Wrong::Restart),
        (at(26), Wrong::FlushRedis),
    ]
}

/// Makes it happen; answers what to tell the audience.
pub(super) async fn perform(
    wrong: Wrong,
    stage: &Stage,
    store: &Store,
    nodes: &mut [Option<NodeProcess>],
) -> anyhow::Result<String> {
    Ok(match wrong {
        Wrong::KillNode => {
            // The bank takes its time, and the busiest node dies over it. Not node-a: HTTP goes there.
            for act in &ACTS {
                stage.bank.then(act.name, Step::pays().after(Duration::from_millis(150)));
            }
            let (victim, held) = busiest(store).await?;
            // Leases are taken a little ahead of their window; now the calls are under way.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let node = nodes
                .iter_mut()
                .find(|n| n.as_ref().is_some_and(|n| n.name == victim))
                .and_then(Option::take);
            node.context("the victim is gone already")?.kill_hard()?;
            for act in &ACTS {
                stage.bank.then(act.name, Step::pays());
            }
            format!("kill -9 of {victim}, with {held} calls to the bank in flight")
        }
        Wrong::FlushRedis => {
            let client = redis::Client::open(stage.redis.url())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
            "FLUSHALL: Redis has forgotten every line and every count".to_owned()
        }
        Wrong::AskToWait => {
            stage.bank.next("globex", [Step::too_many(3)]);
            "the bank behind globex answers 429, Retry-After: 3".to_owned()
        }
        Wrong::Restart => {
            stage.redis.kill_hard().await?;
            stage.redis.restart(None).await?;
            "kill -9 of Redis, restarted empty".to_owned()
        }
    })
}

/// The node with the most calls in flight, but for the one that serves the producers.
async fn busiest(store: &Store) -> anyhow::Result<(String, i64)> {
    let began = std::time::Instant::now();
    loop {
        let leases = store.leases().await?;
        let found = leases.into_iter().find(|(node, held)| node != "node-a" && *held > 4);
        match found {
            Some(found) => return Ok(found),
            None if began.elapsed() > Duration::from_secs(10) => return Ok(("node-b".to_owned(), 0)),
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// The refs that were acknowledged: by COMMIT or by a 2xx.
#[derive(Debug, Default)]
pub(super) struct Saved(Mutex<Vec<String>>);

impl Saved {
    fn add(&self, refs: impl IntoIterator<Item = String>) {
        self.0.locked().extend(refs);
    }

    pub fn refs(&self) -> Vec<String> {
        self.0.locked().clone()
    }
}

/// Saves all refunds: most by SQL at once, the rest over HTTP while the nodes work.
pub(super) async fn produce(store: Store, http: SocketAddr, saved: Arc<Saved>) -> anyhow::Result<()> {
    for act in &ACTS {
        let refunds: Vec<NewRefund> = (1..=act.by_sql)
            .map(|n| {
                Ok(NewRefund {
                    refund_ref: format!("{}-sql-{n}", act.name),
                    channel: act.name.to_owned().try_into()?,
                    payment_ref: format!("P-{n}"),
                    amount_minor: i64::from(100 + n),
                    currency: "EUR".to_owned(),
                    payload: None,
                    due_at: None,
                    deadline_at: None,
                })
            })
            .collect::<Result<_, crate::refund::id::BadName>>()?;
        for (answer, refund) in store.save(&refunds).await?.iter().zip(&refunds) {
            if !matches!(answer, SavedAs::Created(_)) {
                bail!("refund {} was not saved: {answer:?}", refund.refund_ref);
            }
            saved.add([refund.refund_ref.clone()]);
        }
    }
    let trickles = ACTS.iter().filter(|act| act.by_http > 0).map(|act| {
        let saved = Arc::clone(&saved);
        tokio::spawn(trickle(act.name, act.by_http, http, saved))
    });
    for trickle in trickles.collect::<Vec<_>>() {
        trickle.await.context("a producer crashed")??;
    }
    Ok(())
}

async fn trickle(channel: &str, count: u32, http: SocketAddr, saved: Arc<Saved>) -> anyhow::Result<()> {
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

/// How every refund stands in Postgres, by its ref.
pub(super) async fn rows(store: &Store) -> anyhow::Result<HashMap<String, State>> {
    let mut rows = HashMap::new();
    let mut filter = Filter { limit: 1000, ..Filter::default() };
    loop {
        let page = store.list(&filter).await?;
        let Some(last) = page.last() else { return Ok(rows) };
        filter.after = Some(last.id);
        rows.extend(page.into_iter().map(|refund| (refund.refund_ref, refund.state)));
    }
}
