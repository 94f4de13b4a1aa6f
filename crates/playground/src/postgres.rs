//! A Postgres of our own, in a temporary folder, reachable by nobody else.
//!
//! It listens on a Unix socket only and never touches a server that is already there. What it holds is
//! thrown away with it, so it is ended as a crash would end it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use tokio::time::timeout;

use super::clock::Clock;
use super::reaper::{Plan, Reaper};
use super::{PlaygroundError, find, place};

/// The port is only a part of the socket's name; said aloud so that `PGPORT` cannot change it.
const PORT: u16 = 5432;
const USER: &str = "refundd";

/// How a private Postgres shall be.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Off: a commit is not waited for on the disk. Tests are faster; a crash of the machine would lose data.
    pub durable: bool,
    pub max_connections: u32,
    /// Its wall clock can be stepped while it runs. Needs libfaketime.
    pub clock: bool,
    /// More settings, as `postgres -c` takes them; they win over the ones chosen here.
    pub settings: Vec<(String, String)>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions { durable: true, max_connections: 300, clock: false, settings: Vec::new() }
    }
}

impl PostgresOptions {
    /// For tests: nothing waits for the disk.
    #[must_use]
    pub fn for_tests() -> Self {
        PostgresOptions { durable: false, ..PostgresOptions::default() }
    }
}

/// A running private Postgres.
#[derive(Debug)]
pub struct PrivatePostgres {
    reaper: Reaper,
    socket_folder: String,
    pid: AtomicU32,
    clock: Option<Clock>,
}

impl PrivatePostgres {
    /// Starts one that is as careful with its data as a real one.
    pub async fn start() -> Result<Self, PlaygroundError> {
        Self::start_with(&PostgresOptions::default()).await
    }

    /// Starts one and waits until it answers.
    pub async fn start_with(options: &PostgresOptions) -> Result<Self, PlaygroundError> {
        let bin = find::postgres()?;
        let owner = place::stand_in()?;
        let folder = place::fresh_folder(owner);
        let socket_folder = folder.display().to_string();
        let clock = if options.clock { Some(Clock::new(&folder)?) } else { None };
        let launch = postgres(&bin, &socket_folder, options);
        let launch = match &clock {
            Some(clock) => clock.launch(&folder.join(format!(".s.PGSQL.{PORT}")), launch),
            None => launch,
        };
        let reaper = Reaper::start(Plan {
            name: "Postgres",
            prepare: Some(initdb(&bin, options)),
            launch,
            farewell: "QUIT",
            folder,
            owner,
        })
        .await?;
        let server = PrivatePostgres { reaper, socket_folder, pid: AtomicU32::new(0), clock };
        server.set_clock(SignedDuration::ZERO)?;
        server.launch().await?;
        Ok(server)
    }

    /// The address of a database, as sqlx and psql take it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@localhost:{PORT}/{database}?host={}&sslmode=disable", self.socket_folder)
    }

    /// The server's folder; its log is the file `log` in it.
    pub fn folder(&self) -> &Path {
        self.reaper.folder()
    }

    /// The process id of the server as it runs now.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Makes a database, as a copy of `template` where one is named. Nobody may be connected to that one.
    pub async fn create_database(&self, name: &str, template: Option<&str>) -> Result<(), PlaygroundError> {
        let copy = template.map_or(String::new(), |template| format!(" template {}", quoted(template)));
        self.say(&format!("create database {}{copy}", quoted(name))).await
    }

    /// Removes a database and throws out whoever is connected to it.
    pub async fn drop_database(&self, name: &str) -> Result<(), PlaygroundError> {
        self.say(&format!("drop database if exists {} with (force)", quoted(name))).await
    }

    /// Ends the server as a crash would. It stays down until [`PrivatePostgres::restart`].
    pub async fn kill_hard(&self) -> Result<(), PlaygroundError> {
        self.reaper.end("QUIT").await
    }

    /// Ends the server, cutting its connections, and starts it at the same address. It answers again.
    pub async fn restart(&self) -> Result<(), PlaygroundError> {
        self.reaper.end("INT").await?;
        self.launch().await
    }

    /// Starts the server again after [`PrivatePostgres::kill_hard`]. It answers.
    pub async fn start_again(&self) -> Result<(), PlaygroundError> {
        self.launch().await
    }

    /// The address of a database behind a forwarder on this machine.
    #[must_use]
    pub fn url_through(&self, door: SocketAddr, database: &str) -> String {
        format!("postgres://{USER}@{door}/{database}?sslmode=disable")
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        Path::new(&self.socket_folder).join(format!(".s.PGSQL.{PORT}"))
    }

    /// Ends every conversation with a database, as an operator does.
    pub async fn terminate_backends(&self, database: &str) -> Result<(), PlaygroundError> {
        self.say(&format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'",
            database.replace('\'', "''")
        ))
        .await
    }

    /// Refuses every write from now on, or takes them again, as a standby does after a switch-over.
    pub async fn set_read_only(&self, read_only: bool) -> Result<(), PlaygroundError> {
        let word = if read_only { "on" } else { "off" };
        self.say(&format!("alter system set default_transaction_read_only = {word}")).await?;
        self.say("select pg_reload_conf()").await
    }

    /// Steps its wall clock, forward or back, while it runs. Only where [`PostgresOptions::clock`] was asked
    /// for. Answers how far it is ahead of the machine's now.
    pub fn step_clock(&self, by: SignedDuration) -> Result<SignedDuration, PlaygroundError> {
        let wanted = self.clock.as_ref().map_or(SignedDuration::ZERO, Clock::ahead) + by;
        self.set_clock(wanted)?;
        Ok(wanted)
    }

    fn set_clock(&self, ahead: SignedDuration) -> Result<(), PlaygroundError> {
        let set = match &self.clock {
            Some(clock) => clock.set(ahead),
            None if ahead.is_zero() => Ok(()),
            None => Err(std::io::Error::other("its clock is the machine's")),
        };
        set.map_err(|source| PlaygroundError::SetClock { source })
    }

    /// Ends the server and waits until its folder is gone.
    pub async fn stop(self) -> Result<(), PlaygroundError> {
        self.reaper.stop().await
    }

    async fn launch(&self) -> Result<(), PlaygroundError> {
        self.pid.store(self.reaper.launch().await?, Ordering::Relaxed);
        self.reaper.until_up(|| async { self.connect().await.is_ok() }).await
    }

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let options: PgConnectOptions = self.url("postgres").parse()?;
        timeout(Duration::from_secs(5), options.connect())
            .await
            .unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut))
    }

    async fn say(&self, statement: &str) -> Result<(), PlaygroundError> {
        let failed =
            |source| PlaygroundError::Statement { statement: statement.to_owned(), source: Box::new(source) };
        let mut connection = self.connect().await.map_err(failed)?;
        // What stands in the way of nodes shall not stand in ours.
        connection.execute("set default_transaction_read_only = off").await.map_err(failed)?;
        connection.execute(AssertSqlSafe(statement)).await.map_err(failed)?;
        connection.close().await.map_err(failed)
    }
}

fn initdb(bin: &Path, options: &PostgresOptions) -> Vec<String> {
    let mut words = vec![bin.join("initdb").display().to_string()];
    words.extend(["-D", "data", "-U", USER, "-E", "UTF8", "--locale=C", "--auth=trust"].map(String::from));
    if !options.durable {
        words.push("--no-sync".to_owned());
    }
    words
}

fn postgres(bin: &Path, socket_folder: &str, options: &PostgresOptions) -> Vec<String> {
    let mut words = vec![bin.join("postgres").display().to_string(), "-D".to_owned(), "data".to_owned()];
    let mut set = |name: &str, value: &str| words.extend(["-c".to_owned(), format!("{name}={value}")]);
    set("listen_addresses", "");
    set("port", &PORT.to_string());
    set("unix_socket_directories", socket_folder);
    set("max_connections", &options.max_connections.to_string());
    // In the folder, so that it goes with the folder; /dev/shm would keep it after a crash.
    set("dynamic_shared_memory_type", "mmap");
    set("timezone", "UTC");
    set("log_timezone", "UTC");
    if !options.durable {
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            set(name, "off");
        }
    }
    for (name, value) in &options.settings {
        set(name, value);
    }
    words
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
