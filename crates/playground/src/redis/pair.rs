//! Two private Redis servers: a primary, and a second server that can replicate it and take its place.
//!
//! Each node reaches Redis through a door: a forwarder with a fixed address that leads to the primary. While the pair
//! is split, both servers are primaries, some doors lead to one and some to the other. So a fail-over looks to nodes
//! of which only some have noticed it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{PrivateRedis, RedisOptions};
use crate::{Forward, PlaygroundError};

/// A port without a server. A replica of this port receives nothing and keeps its memory.
pub(super) const NOBODY: u16 = 1;

/// A primary, a second server, and the doors to the primary. All end when this is dropped.
#[derive(Debug)]
pub struct RedisPair {
    servers: [PrivateRedis; 2],
    primary: AtomicUsize,
    doors: Vec<Forward>,
}

impl RedisPair {
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Starts both servers without replication, and opens `doors` doors to the first.
    pub async fn start(options: &RedisOptions, doors: usize) -> Result<Self, PlaygroundError> {
        let mut options = RedisOptions { tcp: true, ..options.clone() };
        options.settings.push(("repl-diskless-sync-delay".to_owned(), "0".to_owned()));
        let servers = <[_; 2]>::from(tokio::try_join!(
            PrivateRedis::start_with(&options),
            PrivateRedis::start_with(&options)
        )?);
        let doors = (0..doors).map(|_| Forward::start(servers[0].socket())).collect::<Result<_, _>>()?;
        Ok(RedisPair { servers, primary: AtomicUsize::new(0), doors })
    }

    /// The URL of this door, for the node that uses it.
    #[must_use]
    pub fn url(&self, door: usize) -> String {
        format!("redis://{}{}", self.servers[0].login(), self.doors[door].address())
    }

    /// The forwarder of this door.
    pub fn door(&self, door: usize) -> &Forward {
        &self.doors[door]
    }

    /// The present primary.
    pub fn primary(&self) -> &PrivateRedis {
        &self.servers[self.primary.load(Ordering::Relaxed)]
    }

    /// The server that is not the primary.
    pub fn second(&self) -> &PrivateRedis {
        &self.servers[1 - self.primary.load(Ordering::Relaxed)]
    }

    /// Empties the second server, makes it a replica of the primary, and waits until it has the primary's memory.
    pub async fn attach(&self) -> Result<(), PlaygroundError> {
        let second = self.second();
        second.restart(None).await?;
        second.follow(self.primary().port).await?;
        let began = Instant::now();
        while !second.has_caught_up().await? {
            if began.elapsed() > Self::PATIENCE {
                return Err(PlaygroundError::Silent { name: "Redis", log: "it never caught up".to_owned() });
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Stops the replication. From now on the second server falls behind.
    pub async fn sever(&self) -> Result<(), PlaygroundError> {
        self.second().demote().await
    }

    /// Kills the primary with -9. The second server becomes the primary with its present memory, and gets the doors.
    pub async fn promote(&self) -> Result<(), PlaygroundError> {
        self.primary().kill_hard().await?;
        self.second().follow(None).await?;
        self.take_over();
        Ok(())
    }

    /// Makes the second server a primary too, and points these doors to it. The other doors do not change.
    pub async fn split(&self, doors: &[usize]) -> Result<(), PlaygroundError> {
        self.second().follow(None).await?;
        for door in doors {
            self.doors[*door].point(self.second().socket());
        }
        Ok(())
    }

    /// Makes the second server the primary, and the first a replica that refuses to write. Open connections to the
    /// first go on. Only new connections lead to the second, as when a name gets another address.
    pub async fn depose(&self) -> Result<(), PlaygroundError> {
        self.second().promote().await?;
        self.primary().demote().await?;
        self.primary.fetch_xor(1, Ordering::Relaxed);
        for door in &self.doors {
            door.lead_on(self.primary().socket());
        }
        Ok(())
    }

    /// Ends a split. The second server is the only primary from now on, and the old primary is killed.
    pub async fn heal(&self) -> Result<(), PlaygroundError> {
        let old = self.primary();
        self.take_over();
        old.kill_hard().await
    }

    /// Ends both servers and waits until their folders are gone.
    pub async fn stop(self) -> Result<(), PlaygroundError> {
        for server in self.servers {
            server.stop().await?;
        }
        Ok(())
    }

    fn take_over(&self) {
        self.primary.fetch_xor(1, Ordering::Relaxed);
        for door in &self.doors {
            if !door.leads_to(self.primary().socket()) {
                door.point(self.primary().socket());
            }
        }
    }
}
