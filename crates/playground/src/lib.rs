//! Throw-away servers, a pretend bank, links that fail, a judge and load generators. `refundd dev`, the demo, the
//! tests and the measurements use them.
//!
//! This crate uses nothing of refundd. It starts the program and reads its tables as an operator does, so the judge
//! shares no code with refundd. The shipped program does not contain this crate.
//!
//! The servers are private: each has its own folder and sockets and reads no configuration of the machine. They leave
//! nothing behind when the process that started them ends, also when that process is killed.

pub mod bank;
pub mod certificates;
mod clock;
pub mod find;
pub mod forward;
pub mod front;
pub mod judge;
pub mod load;
mod lock;
pub mod pgbouncer;
pub mod place;
pub mod postgres;
pub mod priority;
pub mod reaper;
pub mod record;
pub mod redis;
pub mod rule;
pub mod section;
mod silent;
pub mod stage;
pub mod variable;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use bank::{Identity, PretendBank};
pub use certificates::Authority;
pub use clock::Clock;
pub use forward::{Distance, Forward, Target, Weather};
pub use front::Front;
pub use pgbouncer::PrivatePgBouncer;
pub use postgres::{PostgresOptions, PrivatePostgres};
pub use redis::cluster::RedisCluster;
pub use redis::forger::Forger;
pub use redis::pair::RedisPair;
pub use redis::sentinels::Sentinels;
pub use redis::{PrivateRedis, RedisOptions};
pub use silent::Silent;

/// A private server, link or clock could not be prepared or used.
#[derive(Debug, thiserror::Error)]
pub enum PlaygroundError {
    #[error(
        "find Postgres: no `initdb` and `postgres` on the PATH, in /usr/lib/postgresql/*/bin or in Homebrew's folders; \
         install it with `sudo apt-get install postgresql` (Debian, Ubuntu) or `brew install postgresql` (macOS)"
    )]
    NoPostgres,
    #[error(
        "find Redis: no `redis-server` and no `valkey-server` on the PATH or in Homebrew's folders; \
         install it with `sudo apt-get install redis-server` (Debian, Ubuntu) or `brew install redis` (macOS)"
    )]
    NoRedis,
    #[error(
        "find libfaketime, which steps the clock of a private server: no `libfaketimeMT.so.1` in /usr/lib/*/faketime; \
         install it with `sudo apt-get install libfaketime` (Debian, Ubuntu; Linux only)"
    )]
    NoFaketime,
    #[error(
        "find PgBouncer: no `pgbouncer` on the PATH, in /usr/sbin or in Homebrew's folders; \
         install it with `sudo apt-get install pgbouncer` (Debian, Ubuntu) or `brew install pgbouncer` (macOS)"
    )]
    NoPgBouncer,
    /// Postgres refuses to run as root.
    #[error("find another user than root to run Postgres: neither `postgres` nor `nobody` is in /etc/passwd")]
    OnlyRoot,
    #[error("find a free TCP port between 10000 and 32000")]
    NoPort,
    /// The shell that watches the server could not be started, or another process ended it.
    #[error("keep a private {name} with /bin/sh")]
    Reaper {
        name: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("prepare the folder of a private {name}; its log ends with:\n{log}")]
    Prepare { name: &'static str, log: String },
    #[error("start a private {name}: it ended at once; its log ends with:\n{log}")]
    Died { name: &'static str, log: String },
    #[error("start a private {name}: it does not answer; its log ends with:\n{log}")]
    Silent { name: &'static str, log: String },
    #[error("remove the private {name} in {}", folder.display())]
    LeftBehind { name: &'static str, folder: PathBuf },
    #[error("run `{statement}` on the private Postgres")]
    Statement {
        statement: String,
        #[source]
        source: Box<sqlx::Error>,
    },
    #[error("save or bring back the memory of the private Redis")]
    RedisSnapshot {
        #[source]
        source: std::io::Error,
    },
    /// The server did not answer, or gave an unexpected answer.
    #[error("say `{words}` to the private Redis")]
    Say {
        words: String,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "set the clock of the private Redis {wanted:#} ahead: its own TIME is {least:#} to {most:#} ahead"
    )]
    Clock { wanted: jiff::SignedDuration, least: jiff::SignedDuration, most: jiff::SignedDuration },
    #[error("give the private Postgres the data of its standby")]
    TakeOver {
        #[source]
        source: std::io::Error,
    },
    #[error("set the clock of the private Postgres")]
    SetClock {
        #[source]
        source: std::io::Error,
    },
    #[error("open a forwarder on this machine")]
    Forward {
        #[source]
        source: std::io::Error,
    },
}
