//! The cells: which server fails, how it fails, and how it is healed.

use std::time::Duration;

use playground::Weather;
use playground::bank::Step;

use crate::rig::{CHANNEL, Rig, now_us};

/// A server, and how it fails.
pub type Cell = (&'static str, &'static str);

pub const POSTGRES: [Cell; 5] = [
    ("Postgres", "down"),
    ("Postgres", "slow"),
    ("Postgres", "half-open"),
    ("Postgres", "read-only"),
    ("Postgres", "conversations ended"),
];
pub const REDIS: [Cell; 5] = [
    ("Redis", "down"),
    ("Redis", "slow"),
    ("Redis", "half-open"),
    ("Redis", "replica for a while"),
    ("Redis", "replica, another is primary"),
];
pub const SENTINEL: [Cell; 1] = [("Redis", "fail-over by Sentinel")];
pub const BANK: [Cell; 6] = [
    ("bank", "down"),
    ("bank", "slow"),
    ("bank", "half-open"),
    ("bank", "rubbish"),
    ("bank", "resets"),
    ("bank", "401, then resumed"),
];

/// Longer than any time-out of a node.
const SLOW: Duration = Duration::from_millis(2_500);

/// Breaks the server, waits for `duration`, heals it, and returns when it was healed, in microseconds since 1970.
pub async fn strike(rig: &Rig, cell: Cell, duration: Duration) -> anyhow::Result<i64> {
    let stage = &rig.stage;
    let wait = || tokio::time::sleep(duration);
    match cell {
        ("Postgres", "down") => {
            stage.postgres.kill_hard().await?;
            wait().await;
            stage.postgres.start_again().await?;
        }
        ("Postgres", "read-only") => {
            stage.postgres.set_read_only(true).await?;
            wait().await;
            stage.postgres.set_read_only(false).await?;
        }
        ("Postgres", "conversations ended") => stage.terminate_backends().await?,
        ("Redis", "down") => {
            rig.redis.primary().kill_hard().await?;
            wait().await;
            rig.redis.primary().restart(None).await?;
        }
        ("Redis", "replica for a while") => {
            rig.redis.primary().demote().await?;
            wait().await;
            rig.redis.primary().promote().await?;
        }
        ("Redis", "replica, another is primary") => rig.redis.depose().await?,
        ("Redis", "fail-over by Sentinel") => {
            rig.redis.primary().kill_hard().await?;
            while !rig.has_failed_over().await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        ("bank", "slow") => {
            stage.bank.then(CHANNEL, Step::pays().after(SLOW));
            wait().await;
            stage.bank.then(CHANNEL, Step::pays());
        }
        ("bank", "401, then resumed") => {
            stage.bank.then(CHANNEL, Step::unauthorised());
            wait().await;
            stage.bank.then(CHANNEL, Step::pays());
            rig.resume().await?;
        }
        (server, how) => {
            let door = match server {
                "Postgres" => &rig.postgres,
                "Redis" => rig.redis.door(0),
                _ => &rig.bank,
            };
            door.set(match how {
                "down" => Weather::Closed,
                "slow" => Weather::Slow(SLOW),
                "half-open" => Weather::Deaf,
                "resets" => Weather::Resets,
                _ => Weather::Garbage,
            });
            wait().await;
            door.set(Weather::Fair);
        }
    }
    Ok(now_us())
}
