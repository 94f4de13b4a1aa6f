//! Two private Redis, of which one follows the other and can take its place.
//!
//! Each node is given a door: an address that stays and leads to whichever server is primary. While the
//! pair is split, both servers are primaries, and some doors lead to one and some to the other: what
//! a fail-over looks like to nodes that have not all heard of it yet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{PrivateRedis, RedisOptions};
use crate::{Forward, PlaygroundError};

/// A port where nobody listens: a replica that follows it hears nothing and keeps what it has.
pub(super) const NOBODY: u16 = 1;

/// A primary, a server that can take its place, and the doors that lead to the primary.
#[derive(Debug)]
pub struct RedisPair {
    servers: [PrivateRedis; 2],
    primary: AtomicUsize,
    doors: Vec<Forward>,
}

impl RedisPair {
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Starts both servers, strangers to each other, with so many doors to the first.
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

    /// What the node behind this door takes for its Redis.
    #[must_use]
    pub fn url(&self, door: usize) -> String {
        self.doors[door].url()
    }

    /// The way of the node behind this door.
    pub fn door(&self, door: usize) -> &Forward {
        &self.doors[door]
    }

    pub fn primary(&self) -> &PrivateRedis {
        &self.servers[self.primary.load(Ordering::Relaxed)]
    }

    /// The one that could take the primary's place.
    pub fn second(&self) -> &PrivateRedis {
        &self.servers[1 - self.primary.load(Ordering::Relaxed)]
    }

    /// Makes the second follow the primary, from nothing, and waits until it has all its memory.
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

    /// From here on the second hears nothing of the primary, and falls behind.
    pub async fn sever(&self) -> Result<(), PlaygroundError> {
        self.second().demote().await
    }

    /// Kills the primary with -9; the second takes its place, with what it has, and its doors.
    pub async fn promote(&self) -> Result<(), PlaygroundError> {
        self.primary().kill_hard().await?;
        self.second().follow(None).await?;
        self.take_over();
        Ok(())
    }

    /// Makes the second a primary, too, and gives it these doors; the others stay where they are.
    pub async fn split(&self, doors: &[usize]) -> Result<(), PlaygroundError> {
        self.second().follow(None).await?;
        for door in doors {
            self.doors[*door].point(self.second().socket());
        }
        Ok(())
    }

    /// Makes the second the primary and the first a replica that refuses to write. Conversations with the
    /// first go on; only new ones lead to the second, as with a name that was given another address.
    pub async fn depose(&self) -> Result<(), PlaygroundError> {
        self.second().promote().await?;
        self.primary().demote().await?;
        self.primary.fetch_xor(1, Ordering::Relaxed);
        for door in &self.doors {
            door.lead_on(self.primary().socket());
        }
        Ok(())
    }

    /// Ends a split: the second is the only primary from now on, and the old one is killed.
    pub async fn heal(&self) -> Result<(), PlaygroundError> {
        let old = self.primary();
        self.take_over();
        old.kill_hard().await
    }

    /// Ends both and waits until their folders are gone.
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
