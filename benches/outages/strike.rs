//! Breaks a server as a cell says, and heals it.

use std::time::Duration;

use playground::Weather;
use playground::bank::Step;

use crate::cell::{BANK, Cell, Fault, POSTGRES, REDIS};
use crate::rig::{CHANNEL, Rig, now_us};

use Fault::{
    AnotherIsPrimary, ConversationsEnded, Down, FailOver, HalfOpen, Lost, ReadOnly, ReplicaForAWhile, Resets,
    Slow, Unauthorised,
};

/// When an outage began and ended, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    pub began_us: i64,
    pub healed_us: i64,
}

impl Cell {
    /// Longer than any time-out of a node.
    const SLOW: Duration = Duration::from_millis(2_500);

    /// Breaks the servers, waits for `length`, and heals them.
    pub async fn strike(&self, rig: &Rig, length: Duration) -> anyhow::Result<Outage> {
        let stage = &rig.stage;
        let began_us = now_us();
        let wait = || tokio::time::sleep(length);
        match (self.servers, self.fault) {
            (POSTGRES, Down) if !self.alone => {
                stage.postgres.kill_hard().await?;
                wait().await;
                stage.postgres.start_again().await?;
            }
            (POSTGRES, ReadOnly) => {
                stage.postgres.set_read_only(true).await?;
                wait().await;
                stage.postgres.set_read_only(false).await?;
            }
            (POSTGRES, ConversationsEnded) => stage.terminate_backends().await?,
            (REDIS, Down) if !self.alone => {
                rig.redis.primary().kill_hard().await?;
                wait().await;
                rig.redis.primary().restart(None).await?;
            }
            (REDIS, ReplicaForAWhile) => {
                rig.redis.primary().demote().await?;
                wait().await;
                rig.redis.primary().promote().await?;
            }
            (REDIS, AnotherIsPrimary) => rig.redis.depose().await?,
            (REDIS, FailOver) => {
                rig.redis.primary().kill_hard().await?;
                while !rig.has_failed_over().await {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            (BANK, Slow) => {
                stage.bank.then(CHANNEL, Step::pays().after(Self::SLOW));
                wait().await;
                stage.bank.then(CHANNEL, Step::pays());
            }
            (BANK, Unauthorised) => {
                stage.bank.then(CHANNEL, Step::unauthorised());
                wait().await;
                stage.bank.then(CHANNEL, Step::pays());
                rig.resume().await?;
            }
            (servers, fault) => {
                let weather = match fault {
                    Down => Weather::Closed,
                    Slow => Weather::Slow(Self::SLOW),
                    HalfOpen => Weather::Deaf,
                    Lost => Weather::Dark,
                    Resets => Weather::Resets,
                    _ => Weather::Garbage,
                };
                let doors: Vec<_> =
                    servers.iter().flat_map(|server| rig.doors(*server, self.alone)).collect();
                for door in &doors {
                    door.set(weather);
                }
                wait().await;
                for door in &doors {
                    door.set(Weather::Fair);
                }
            }
        }
        Ok(Outage { began_us, healed_us: now_us() })
    }
}
