//! A stage: private servers, a pretend bank, and real nodes, each a process.
//!
//! The demo, `refundd dev` and the measurements run on a stage. A node ends when the process that started it ends,
//! because each node watches its standard input.

mod process;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use tempfile::TempDir;

pub use process::NodeProcess;

use super::place::write_private;
use super::{PostgresOptions, PretendBank, PrivatePostgres, PrivateRedis};

/// Private servers, a pretend bank, and the program to start nodes with.
#[derive(Debug)]
pub struct Stage {
    pub postgres: PrivatePostgres,
    pub redis: PrivateRedis,
    pub bank: PretendBank,
    folder: TempDir,
    program: PathBuf,
    environment: Vec<(String, OsString)>,
}

/// The addresses that a node's configuration names.
#[derive(Debug, Clone)]
pub struct Addresses {
    pub postgres: String,
    pub redis: String,
    pub bank: SocketAddr,
    /// Further lines of `[http]`.
    pub http: String,
}

/// The database on the private Postgres.
const DATABASE: &str = "payments";
/// Listens on any free port of this machine.
pub const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Stage {
    /// Starts the servers, opens the bank on `bank`, and creates the schema. `program` is the refundd that nodes run.
    pub async fn set(program: PathBuf, bank: SocketAddr) -> anyhow::Result<Stage> {
        Self::set_with(program, bank, &PostgresOptions::default()).await
    }

    /// Like [`Stage::set`], with these options for Postgres.
    pub async fn set_with(
        program: PathBuf,
        bank: SocketAddr,
        postgres: &PostgresOptions,
    ) -> anyhow::Result<Stage> {
        let bank =
            PretendBank::start(bank).with_context(|| format!("failed to open the pretend bank on {bank}"))?;
        Self::set_around(program, bank, postgres).await
    }

    /// Like [`Stage::set_with`], with a bank that is open already.
    pub async fn set_around(
        program: PathBuf,
        bank: PretendBank,
        postgres: &PostgresOptions,
    ) -> anyhow::Result<Stage> {
        let (postgres, redis) =
            tokio::try_join!(PrivatePostgres::start_with(postgres), PrivateRedis::start())?;
        Self::set_of(program, bank, postgres, redis).await
    }

    /// Like [`Stage::set`], with servers and a bank that run already. Creates the database.
    pub async fn set_of(
        program: PathBuf,
        bank: PretendBank,
        postgres: PrivatePostgres,
        redis: PrivateRedis,
    ) -> anyhow::Result<Stage> {
        postgres.create_database(DATABASE, None).await?;
        let folder = TempDir::new().context("failed to make a temporary folder")?;
        let stage = Stage { postgres, redis, bank, folder, program, environment: Vec::new() };
        stage.migrate().await?;
        stage.postgres.admit_nodes(DATABASE).await?;
        Ok(stage)
    }

    /// Nodes that start from now on have this variable in their environment.
    pub fn set_variable(&mut self, name: &str, value: impl Into<OsString>) {
        self.environment.push((name.to_owned(), value.into()));
    }

    /// Creates the schema with `refundd migrate`, as an operator does.
    async fn migrate(&self) -> anyhow::Result<()> {
        let file = self.folder.path().join("migrate.toml");
        let owner = Addresses { postgres: self.database_url(), ..self.addresses() };
        write_private(&file, &Self::file_at("migrate", ANY, "", &owner))
            .context("failed to write a configuration to migrate by")?;
        let mut command = Command::new(&self.program);
        command.args(["migrate", "--config"]).arg(&file).stdin(Stdio::null());
        let ended = tokio::task::spawn_blocking(move || command.output()).await?;
        let output = ended.with_context(|| format!("failed to start {}", self.program.display()))?;
        if !output.status.success() {
            bail!("failed to create the schema: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(())
    }

    /// The address of the stage's database for its owner.
    pub fn database_url(&self) -> String {
        self.postgres.url(DATABASE)
    }

    /// The addresses of the servers and the bank for nodes, without forwarders in between.
    pub fn addresses(&self) -> Addresses {
        Addresses {
            postgres: self.postgres.node_url(DATABASE),
            redis: self.redis.url(),
            bank: self.bank.address(),
            http: String::new(),
        }
    }

    /// The address of the database for nodes, behind a forwarder that leads to Postgres's socket.
    #[must_use]
    pub fn database_through(&self, door: SocketAddr) -> String {
        self.postgres.url_through(door, DATABASE)
    }

    /// Ends every connection to the database.
    pub async fn terminate_backends(&self) -> anyhow::Result<()> {
        Ok(self.postgres.terminate_backends(DATABASE).await?)
    }

    /// From now on what writes to the database's main tables fails as on a full disk.
    pub async fn fill_disk(&self) -> anyhow::Result<()> {
        self.each_main_table(
            "create or replace function refundd.full_disk() returns trigger language plpgsql as $$ begin raise disk_full; end $$",
            "create or replace trigger full_disk before insert or update on {} for each statement execute function refundd.full_disk()",
        )
        .await
    }

    /// Ends what [`Stage::fill_disk`] began.
    pub async fn empty_disk(&self) -> anyhow::Result<()> {
        self.each_main_table("select", "drop trigger if exists full_disk on {}").await
    }

    /// One transaction for each table, so that none waits for one table while it has locked another.
    async fn each_main_table(&self, first: &str, of_each: &str) -> anyhow::Result<()> {
        self.postgres.say(DATABASE, first).await?;
        for table in ["refunds", "attempts", "permits", "nodes"] {
            self.postgres.say(DATABASE, &of_each.replace("{}", &format!("refundd.{table}"))).await?;
        }
        Ok(())
    }

    /// A node's configuration; `{bank}` in `channels` becomes the bank's address.
    pub fn file(&self, node: &str, listen: SocketAddr, channels: &str) -> String {
        self.file_with(node, listen, channels, &self.redis.url())
    }

    /// Like [`Stage::file`], with the address of another Redis.
    pub fn file_with(&self, node: &str, listen: SocketAddr, channels: &str, redis: &str) -> String {
        Self::file_at(node, listen, channels, &Addresses { redis: redis.to_owned(), ..self.addresses() })
    }

    /// Like [`Stage::file`], with these addresses.
    pub fn file_at(node: &str, listen: SocketAddr, channels: &str, at: &Addresses) -> String {
        format!(
            "[node]\nname = \"{node}\"\n[http]\nlisten = \"{listen}\"\n{}[postgres]\nurl = \"{}\"\n[redis]\nurl = \"{}\"\n[log]\nformat = \"json\"\nlevel = \"info\"\n{}",
            at.http,
            at.postgres,
            at.redis,
            channels.replace("{bank}", &at.bank.to_string())
        )
    }

    /// Starts a node and waits until it runs.
    pub async fn node(&self, name: &str, listen: SocketAddr, channels: &str) -> anyhow::Result<NodeProcess> {
        self.node_with(name, listen, channels, &self.redis.url()).await
    }

    /// Like [`Stage::node`], with the address of another Redis.
    pub async fn node_with(
        &self,
        name: &str,
        listen: SocketAddr,
        channels: &str,
        redis: &str,
    ) -> anyhow::Result<NodeProcess> {
        let at = Addresses { redis: redis.to_owned(), ..self.addresses() };
        self.node_at(name, listen, channels, &at).await
    }

    /// Like [`Stage::node`], with these addresses. If a node of this name ran before, its log is continued.
    pub async fn node_at(
        &self,
        name: &str,
        listen: SocketAddr,
        channels: &str,
        at: &Addresses,
    ) -> anyhow::Result<NodeProcess> {
        let file = self.folder.path().join(format!("{name}.toml"));
        write_private(&file, &Self::file_at(name, listen, channels, at))
            .context("failed to write a node's configuration")?;
        let log = self.folder.path().join(format!("{name}.log"));
        let begins = std::fs::metadata(&log).map_or(0, |kept| kept.len());
        let mut output = std::fs::OpenOptions::new();
        let output = output.create(true).append(true).open(&log).context("failed to make a node's log")?;
        let mut command = Command::new(&self.program);
        command
            .args(["run", "--with-parent", "--config"])
            .arg(&file)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output);
        // Ctrl-C must reach this process only; it then stops the nodes.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().with_context(|| format!("failed to start {}", self.program.display()))?;
        let mut node = NodeProcess { name: name.to_owned(), child, address: listen, file, log, begins };
        node.address = node.wait_until_up().await?;
        Ok(node)
    }

    /// Ends the servers and removes their folders.
    pub async fn strike(self) -> anyhow::Result<()> {
        self.redis.stop().await?;
        self.postgres.stop().await?;
        Ok(())
    }
}
