//! apalis-postgres as a peer: saves refunds, then POSTs each to the pretend bank and marks it done.
//!
//! `refundd-peer-apalis ADDRESS BANK_URL IN_FLIGHT SAVE WORKERS BATCH`, and the talk with the bench that starts it
//! is that of the other peers: "saved MILLISECONDS", then "go", then the end of its standard input.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::runtime::Handle;

const QUEUE: &str = "refunds";
/// Rows of one insert.
const MOST: u64 = 10_000;

/// What refundd sends of a refund.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Refund {
    refund_id: u64,
    refund_ref: String,
    channel: String,
    payment_ref: String,
    amount_minor: u64,
    currency: String,
    requested_at: String,
}

impl Refund {
    fn nth(n: u64) -> Refund {
        Refund {
            refund_id: n,
            refund_ref: format!("R-{n}"),
            channel: "acme".to_owned(),
            payment_ref: format!("P-{n}"),
            amount_minor: n,
            currency: "EUR".to_owned(),
            requested_at: "2026-01-01T00:00:00.000000Z".to_owned(),
        }
    }
}

struct Bank {
    url: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Bank {
    fn new(url: &str) -> Bank {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Bank { url: url.to_owned(), client: Client::builder(TokioExecutor::new()).build(connector) }
    }

    async fn post(&self, refund: &Refund) -> anyhow::Result<()> {
        let request = Request::post(&self.url)
            .header("content-type", "application/json")
            .header("idempotency-key", format!("00000000-0000-4000-8000-{:012}", refund.refund_id))
            .header("refundd-attempt", "1")
            .body(Full::new(Bytes::from(serde_json::to_vec(refund)?)))?;
        let answer = self.client.request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        if status != 200 {
            bail!("status {status}");
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, bank_url, in_flight, save, workers, batch] = words.as_slice() else {
        bail!("usage: refundd-peer-apalis ADDRESS BANK_URL IN_FLIGHT SAVE WORKERS BATCH");
    };
    let (in_flight, workers): (usize, usize) = (in_flight.parse()?, workers.parse()?);
    let pool = PgPoolOptions::new().max_connections(10).connect(address).await?;
    PostgresStorage::setup(&pool).await.context("failed to make the schema")?;
    let began = Instant::now();
    push(&pool, save.parse()?).await?;
    println!("saved {}", began.elapsed().as_secs_f64() * 1000.0);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if line == "go" {
            let bank = Arc::new(Bank::new(bank_url));
            let (pool, batch) = (pool.clone(), batch.parse()?);
            // Not `spawn`: the compiler does not see that a worker may move between threads.
            tokio::task::spawn_blocking(move || {
                let all = (0..workers).map(|n| work(n, &pool, &bank, in_flight / workers, batch));
                if let Err(error) = Handle::current().block_on(try_join_all(all)) {
                    eprintln!("{error:#}");
                }
            });
        }
    }
    // The workers do not end by themselves.
    std::process::exit(0)
}

async fn push(pool: &PgPool, count: u64) -> anyhow::Result<()> {
    let all: Vec<u64> = (1..=count).collect();
    for some in all.chunks(usize::try_from(MOST)?) {
        let tasks = some.iter().map(|n| Ok(TaskBuilder::new(serde_json::to_vec(&Refund::nth(*n))?).build()));
        let tasks = tasks.collect::<anyhow::Result<Vec<_>>>()?;
        let mut transaction = pool.begin().await?;
        apalis_postgres::queries::push_tasks(&mut *transaction, QUEUE, tasks).await?;
        transaction.commit().await?;
    }
    Ok(())
}

async fn work(
    n: usize,
    pool: &PgPool,
    bank: &Arc<Bank>,
    in_flight: usize,
    batch: usize,
) -> anyhow::Result<()> {
    // What is fetched is under the worker's name already; marking it as running once more would only cost.
    let config = Config::default().queue(QUEUE).batch_size(batch).lock_tasks(false);
    let strategy = Strategy::new().interval(Duration::from_millis(50));
    let backend = PostgresStorage::<Refund>::new(pool).with_config(config).poll_with_strategy(strategy);
    let bank = Arc::clone(bank);
    let worker = WorkerBuilder::new(format!("worker-{n}"))
        .backend(backend)
        .concurrency(in_flight)
        .parallelize(tokio::spawn)
        .build(move |refund: Refund| {
            let bank = Arc::clone(&bank);
            async move { bank.post(&refund).await.map_err(BoxDynError::from) }
        });
    worker.run().await.context("a worker ended")?;
    Ok(())
}
