//! A private Postgres in a temporary folder.
//!
//! It listens on a Unix socket, on TCP only if a caller wants that, and never touches another server of the machine. Its data is removed with its
//! folder, so it is ended without a clean shutdown, as a crash would end it.

mod commands;
mod owner;
mod standby;

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
use commands::{initdb, postgres};

/// Without TCP the port is only a part of the socket's name. It is set explicitly, so that `PGPORT` cannot change it.
const PORT: u16 = 5432;
const USER: &str = "refundd";
/// The user of nodes. It has the rights of the shipped role and no more.
const NODE: &str = "refundd_app";
/// Makes the shipped role of nodes.
const NODE_ROLE: &str = include_str!("../../../config/node-role.sql");

/// The settings of a private Postgres.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Whether a commit waits for the disk. Without it tests are faster, but a crash of the machine would lose data.
    pub durable: bool,
    pub max_connections: u32,
    /// Whether its wall clock can be stepped while it runs. Needs libfaketime.
    pub clock: bool,
    /// More settings, as `postgres -c` takes them. They override the settings that this module chooses.
    pub settings: Vec<(String, String)>,
    /// Whether it also listens on a free TCP port of this machine.
    pub tcp: bool,
    /// The folder of its programs; `None` for the newest version of this machine.
    pub bin: Option<PathBuf>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions {
            durable: true,
            max_connections: 300,
            clock: false,
            settings: Vec::new(),
            tcp: false,
            bin: None,
        }
    }
}

impl PostgresOptions {
    /// Settings for tests: no commit waits for the disk.
    #[must_use]
    pub fn for_tests() -> Self {
        PostgresOptions { durable: false, ..PostgresOptions::default() }
    }
}

/// A running private Postgres. It ends when this is dropped.
#[derive(Debug)]
pub struct PrivatePostgres {
    reaper: Reaper,
    socket_folder: String,
    port: u16,
    options: PostgresOptions,
    pid: AtomicU32,
    clock: Option<Clock>,
}

impl PrivatePostgres {
    /// Starts a Postgres whose commits wait for the disk, as in production.
    pub async fn start() -> Result<Self, PlaygroundError> {
        Self::start_with(&PostgresOptions::default()).await
    }

    /// Starts a Postgres with these settings and waits until it answers.
    pub async fn start_with(options: &PostgresOptions) -> Result<Self, PlaygroundError> {
        let bin = options.bin.clone().map_or_else(find::postgres, Ok)?;
        Self::begin(&bin, options, initdb(&bin, options)).await
    }

    /// Starts a Postgres on the data that the command `prepare` makes, and waits until it answers.
    async fn begin(
        bin: &Path,
        options: &PostgresOptions,
        prepare: Vec<String>,
    ) -> Result<Self, PlaygroundError> {
        let port = if options.tcp { place::free_port()? } else { PORT };
        let owner = place::server_owner()?;
        let folder = place::fresh_folder(owner);
        let socket_folder = folder.display().to_string();
        let clock = if options.clock { Some(Clock::new(&folder)?) } else { None };
        let launch = postgres(bin, &socket_folder, port, options);
        let launch = match &clock {
            Some(clock) => clock.launch(&folder.join(format!(".s.PGSQL.{port}")), launch),
            None => launch,
        };
        let reaper = Reaper::start(Plan {
            name: "Postgres",
            prepare: Some(prepare),
            launch,
            farewell: "QUIT",
            folder,
            owner,
        })
        .await?;
        let options = options.clone();
        let server = PrivatePostgres { reaper, socket_folder, port, options, pid: AtomicU32::new(0), clock };
        server.set_clock(SignedDuration::ZERO)?;
        server.launch().await?;
        Ok(server)
    }

    /// The address of a database, as sqlx and psql take it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let (port, folder) = (self.port, &self.socket_folder);
        format!("postgres://{USER}@localhost:{port}/{database}?host={folder}&sslmode=disable")
    }

    /// The same address for nodes; see [`PrivatePostgres::admit_nodes`].
    #[must_use]
    pub fn node_url(&self, database: &str) -> String {
        self.url(database).replacen(USER, NODE, 1)
    }

    /// Gives the user of [`PrivatePostgres::node_url`] the rights in this database that `config/node-role.sql` gives,
    /// as an operator does after each `refundd migrate`.
    pub async fn admit_nodes(&self, database: &str) -> Result<(), PlaygroundError> {
        let failed = |source| PlaygroundError::Statement {
            statement: "config/node-role.sql".to_owned(),
            source: Box::new(source),
        };
        let log_in = format!(
            "do $$ begin
                 if not exists (select from pg_roles where rolname = '{NODE}') then
                     create role {NODE} login in role refundd_node;
                 end if;
             end $$;"
        );
        // The script is for psql, whose own commands start with a backslash.
        let lines = NODE_ROLE.lines().filter(|line| !line.starts_with('\\'));
        let script: Vec<&str> = lines.chain([log_in.as_str()]).collect();
        let mut connection = PgConnection::connect(&self.url(database)).await.map_err(failed)?;
        connection.execute(AssertSqlSafe(script.join("\n"))).await.map_err(failed)?;
        connection.close().await.map_err(failed)
    }

    /// Its TCP port, if it has one.
    pub fn port(&self) -> Option<u16> {
        self.options.tcp.then_some(self.port)
    }

    /// The server's folder; its log is the file `log` in it.
    pub fn folder(&self) -> &Path {
        self.reaper.folder()
    }

    /// The process id of the server. It changes when the server is restarted.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Creates a database, as a copy of `template` if one is named. The template must have no connections.
    pub async fn create_database(&self, name: &str, template: Option<&str>) -> Result<(), PlaygroundError> {
        let copy = template.map_or(String::new(), |template| format!(" template {}", quoted(template)));
        self.say("postgres", &format!("create database {}{copy}", quoted(name))).await
    }

    /// Ends the server as a crash would. It stays down until [`PrivatePostgres::start_again`].
    pub async fn kill_hard(&self) -> Result<(), PlaygroundError> {
        self.reaper.end("QUIT").await
    }

    /// Ends the server with its connections, starts it at the same address, and waits until it answers.
    pub async fn restart(&self) -> Result<(), PlaygroundError> {
        self.reaper.end("INT").await?;
        self.launch().await
    }

    /// Starts the server again after [`PrivatePostgres::kill_hard`] and waits until it answers.
    pub async fn start_again(&self) -> Result<(), PlaygroundError> {
        self.launch().await
    }

    /// The address of a database for nodes, behind a forwarder on this machine.
    #[must_use]
    pub fn url_through(&self, door: SocketAddr, database: &str) -> String {
        format!("postgres://{NODE}@{door}/{database}?sslmode=disable")
    }

    /// The path of its Unix socket.
    pub fn socket(&self) -> PathBuf {
        Path::new(&self.socket_folder).join(format!(".s.PGSQL.{}", self.port))
    }

    /// Ends every connection to a database with `pg_terminate_backend`.
    pub async fn terminate_backends(&self, database: &str) -> Result<(), PlaygroundError> {
        let database = database.replace('\'', "''");
        let end =
            format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'");
        self.say("postgres", &end).await
    }

    /// Makes the server refuse writes, as a standby does, or accept them again.
    pub async fn set_read_only(&self, read_only: bool) -> Result<(), PlaygroundError> {
        let value = if read_only { "on" } else { "off" };
        self.say("postgres", &format!("alter system set default_transaction_read_only = {value}")).await?;
        self.say("postgres", "select pg_reload_conf()").await
    }

    /// Steps its wall clock by `by`, forward or back, while it runs. Needs [`PostgresOptions::clock`]. Returns how
    /// far the clock is now ahead of the machine's clock.
    pub fn step_clock(&self, by: SignedDuration) -> Result<SignedDuration, PlaygroundError> {
        let wanted = self.ahead() + by;
        self.set_clock(wanted)?;
        Ok(wanted)
    }

    /// How far its wall clock was set ahead of the machine's clock.
    pub fn ahead(&self) -> SignedDuration {
        self.clock.as_ref().map_or(SignedDuration::ZERO, Clock::ahead)
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
        self.reaper.until_up(|| async { self.connect("postgres").await.is_ok() }).await
    }

    async fn connect(&self, database: &str) -> Result<PgConnection, sqlx::Error> {
        let options: PgConnectOptions = self.url(database).parse()?;
        timeout(Duration::from_secs(5), options.connect())
            .await
            .unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
