//! The store of a peer's jobs, and how to see that all jobs are done.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use playground::redis::RedisOptions;
use playground::{PrivatePostgres, PrivateRedis};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::cpu::Watch;

pub const PATIENCE: Duration = Duration::from_mins(3);
const DATABASE: &str = "jobs";

/// The store of a peer's jobs: a Postgres like ours, or a Redis with an append-only file.
pub enum Books {
    Postgres { server: PrivatePostgres, done: &'static str },
    Redis(PrivateRedis),
}

impl Books {
    /// Starts a Postgres. The statement `done` counts the finished jobs; `$1` in it stands for the number of all
    /// jobs.
    pub async fn postgres(done: &'static str) -> anyhow::Result<Books> {
        let server = PrivatePostgres::start().await?;
        server.create_database(DATABASE, None).await?;
        Ok(Books::Postgres { server, done })
    }

    pub async fn redis() -> anyhow::Result<Books> {
        let settings = [("appendonly", "yes"), ("appendfsync", "everysec")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let options = RedisOptions { tcp: true, open: true, settings, ..RedisOptions::default() };
        Ok(Books::Redis(PrivateRedis::start_with(&options).await?))
    }

    /// The address in the form that the peer takes: a URL, or the port of Redis.
    pub fn address(&self) -> anyhow::Result<String> {
        match self {
            Books::Postgres { server, .. } => Ok(server.url(DATABASE)),
            Books::Redis(server) => {
                let url = server.tcp_url().context("the private Redis has no port")?;
                Ok(url.rsplit(':').next().unwrap_or_default().to_owned())
            }
        }
    }

    pub fn watch(&self) -> Watch {
        match self {
            Books::Postgres { server, .. } => Watch::postgres(server),
            Books::Redis(server) => Watch::default().process("Redis", server.pid()),
        }
    }

    pub async fn until_done(&self, jobs: u32) -> anyhow::Result<()> {
        match self {
            Books::Postgres { server, done } => {
                let mut database = PgConnection::connect(&server.url(DATABASE)).await?;
                let done = if done.contains("$1") {
                    done.replace("$1", &jobs.to_string())
                } else {
                    (*done).to_owned()
                };
                until(async || {
                    let done: i64 =
                        sqlx::query_scalar(AssertSqlSafe(done.clone())).fetch_one(&mut database).await?;
                    Ok(done >= i64::from(jobs))
                })
                .await?;
                Ok(database.close().await?)
            }
            Books::Redis(server) => {
                let client = redis::Client::open(server.url())?;
                let mut connection = client.get_multiplexed_async_connection().await?;
                // BullMQ removes finished jobs.
                until(async || {
                    let mut left = 0;
                    for list in ["bull:refunds:wait", "bull:refunds:active"] {
                        left += redis::cmd("LLEN").arg(list).query_async::<u64>(&mut connection).await?;
                    }
                    Ok(left == 0)
                })
                .await
            }
        }
    }

    pub async fn close(self) -> anyhow::Result<()> {
        match self {
            Books::Postgres { server, .. } => server.stop().await?,
            Books::Redis(server) => server.stop().await?,
        }
        Ok(())
    }
}

async fn until(mut is_so: impl AsyncFnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_so().await? {
        if began.elapsed() > PATIENCE {
            bail!("not all were done within {PATIENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
