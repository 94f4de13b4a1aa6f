//! A private `PgBouncer` in a temporary folder, in front of a private Postgres.
//!
//! It listens on a Unix socket only. It runs as the user of Postgres, because it must reach Postgres's folder.

use std::path::Path;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::time::timeout;

use super::reaper::{Plan, Reaper};
use super::{PlaygroundError, PrivatePostgres, find, place};

const PORT: u16 = 6432;

/// A shell script that writes its first argument into the file `pgbouncer.ini`.
const WRITE: &str = "printf '%s\\n' \"$1\" >pgbouncer.ini";

/// A running private `PgBouncer`.
#[derive(Debug)]
pub struct PrivatePgBouncer {
    reaper: Reaper,
    folder: String,
}

impl PrivatePgBouncer {
    /// Starts a `PgBouncer` that logs in as the user of nodes, and waits until Postgres answers through it. `settings` are lines for its file, such as
    /// `pool_mode = session`.
    pub async fn start(postgres: &PrivatePostgres, settings: &str) -> Result<Self, PlaygroundError> {
        let program = find::pgbouncer()?;
        let owner = place::server_owner()?;
        let folder = place::fresh_folder(owner);
        let text = folder.display().to_string();
        let file = format!(
            "[databases]\n* = host={} port=5432 user=refundd_app\n[pgbouncer]\nlisten_addr =\nlisten_port = {PORT}\n\
             unix_socket_dir = {text}\nauth_type = any\n{settings}\n",
            postgres.folder().display()
        );
        let words = |words: &[&str]| words.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>();
        let reaper = Reaper::start(Plan {
            name: "PgBouncer",
            prepare: Some(words(&["/bin/sh", "-c", WRITE, "sh", &file])),
            launch: words(&[&program.display().to_string(), "pgbouncer.ini"]),
            farewell: "KILL",
            folder,
            owner,
        })
        .await?;
        let server = PrivatePgBouncer { reaper, folder: text };
        server.reaper.launch().await?;
        server.reaper.until_up(|| async { server.answers().await }).await?;
        Ok(server)
    }

    /// The address of a database behind this `PgBouncer`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://refundd_app@localhost:{PORT}/{database}?host={}&sslmode=disable", self.folder)
    }

    /// The server's folder; its log is the file `log` in it.
    pub fn folder(&self) -> &Path {
        self.reaper.folder()
    }

    /// Whether Postgres answers. An error from the server is an answer too, such as a refused start-up parameter.
    async fn answers(&self) -> bool {
        let Ok(options) = self.url("postgres").parse::<PgConnectOptions>() else { return false };
        let made: Result<Result<PgConnection, _>, _> =
            timeout(Duration::from_secs(5), options.connect()).await;
        match made {
            Ok(Ok(connection)) => connection.close().await.is_ok(),
            Ok(Err(error)) => error.as_database_error().is_some(),
            Err(_) => false,
        }
    }

    /// Ends the server and waits until its folder is gone.
    pub async fn stop(self) -> Result<(), PlaygroundError> {
        self.reaper.stop().await
    }
}
