//! Real Redis Sentinels beside private servers. They notice that a primary is gone and promote its replica.
//!
//! Their settings make them as quick as possible, so that a test sees a fail-over within a few seconds.

use std::time::{Duration, Instant};

use ::redis::{Client, RedisError, Value};
use tokio::time::sleep;

use super::{ADMIN, PrivateRedis};
use crate::reaper::{Plan, Reaper};
use crate::{PlaygroundError, find, place};

/// Sentinels that watch one primary. They end when this is dropped.
#[derive(Debug)]
pub struct Sentinels {
    watching: Vec<(Reaper, u16)>,
    login: String,
}

impl Sentinels {
    /// The name of the primary that they watch.
    pub const MASTER: &'static str = "pretend";
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Starts three sentinels. Waits until they know each other and the primary's one replica.
    pub async fn watch(primary: &PrivateRedis) -> Result<Sentinels, PlaygroundError> {
        let port = primary.port.ok_or(PlaygroundError::NoPort)?;
        let mut watching = Vec::new();
        for _ in 0..3 {
            watching.push(start(port, primary.open).await?);
        }
        let sentinels = Sentinels { watching, login: primary.login() };
        let began = Instant::now();
        while !sentinels.are_ready().await {
            if began.elapsed() > Self::PATIENCE {
                return Err(PlaygroundError::Silent {
                    name: "Sentinel",
                    log: "they never agreed".to_owned(),
                });
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(sentinels)
    }

    /// Lets all sentinels name this server at this host, too, under another name.
    pub async fn watch_also(&self, name: &str, host: &str, server: &PrivateRedis) -> Result<(), RedisError> {
        for (_, port) in &self.watching {
            let mut connection =
                Client::open(("127.0.0.1", *port))?.get_multiplexed_async_connection().await?;
            let mut monitor = ::redis::cmd("SENTINEL");
            monitor.arg("MONITOR").arg(name).arg(host).arg(server.port).arg(2);
            monitor.query_async::<()>(&mut connection).await?;
        }
        Ok(())
    }

    /// The URL for `[redis] url`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.watching.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}{}/{}", self.login, hosts.join(","), Self::MASTER)
    }

    /// Whether all sentinels name this server as the primary.
    pub async fn name(&self, server: &PrivateRedis) -> bool {
        for (_, port) in &self.watching {
            let named: Result<(String, u16), _> = ask(*port, "GET-MASTER-ADDR-BY-NAME").await;
            if !named.is_ok_and(|(_, named)| Some(named) == server.port) {
                return false;
            }
        }
        true
    }

    /// Ends the sentinels and waits until their folders are gone.
    pub async fn stop(self) -> Result<(), PlaygroundError> {
        for (sentinel, _) in self.watching {
            sentinel.stop().await?;
        }
        Ok(())
    }

    async fn are_ready(&self) -> bool {
        for (_, port) in &self.watching {
            let replicas: Result<Vec<Value>, _> = ask(*port, "REPLICAS").await;
            let others: Result<Vec<Value>, _> = ask(*port, "SENTINELS").await;
            let known = replicas.is_ok_and(|replicas| replicas.len() == 1)
                && others.is_ok_and(|others| others.len() + 1 == self.watching.len());
            let agreed: Result<String, _> = ask(*port, "CKQUORUM").await;
            if !known || agreed.is_err() {
                return false;
            }
        }
        true
    }
}

async fn start(primary: u16, open: bool) -> Result<(Reaper, u16), PlaygroundError> {
    let (program, folder, port) = (find::redis()?, place::fresh_folder(None), place::free_port()?);
    let file = folder.join("sentinel.conf");
    let launch =
        [&*program.display().to_string(), &*file.display().to_string(), "--sentinel"].map(String::from);
    let reaper = Reaper::start(Plan {
        name: "Sentinel",
        prepare: None,
        launch: launch.to_vec(),
        farewell: "KILL",
        folder,
        owner: None,
    })
    .await?;
    let master = Sentinels::MASTER;
    let login = if open {
        String::new()
    } else {
        format!("sentinel auth-user {master} {ADMIN}\nsentinel auth-pass {master} {ADMIN}\n")
    };
    let settings = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {master} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {master} 500\nsentinel failover-timeout {master} 4000\n{login}",
        reaper.folder().display()
    );
    std::fs::write(file, settings).map_err(|source| PlaygroundError::Reaper { name: "Sentinel", source })?;
    reaper.launch().await?;
    reaper.until_up(|| async { ask::<(String, u16)>(port, "GET-MASTER-ADDR-BY-NAME").await.is_ok() }).await?;
    Ok((reaper, port))
}

async fn ask<T: ::redis::FromRedisValue>(port: u16, words: &str) -> Result<T, RedisError> {
    let client = Client::open(("127.0.0.1", port))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    ::redis::cmd("SENTINEL").arg(words).arg(Sentinels::MASTER).query_async(&mut connection).await
}
