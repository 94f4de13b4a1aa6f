//! The shipped unit, booted by a real systemd in a container of `systemd-nspawn`.
//!
//! The container shares the network of this machine. So the node in it works with private servers and with the
//! pretend bank outside.

#![expect(
    clippy::disallowed_methods,
    reason = "a row runs alone, and waits for a process of another program"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use playground::stage::Stage;
use playground::{PostgresOptions, PrivateRedis, RedisOptions};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};

use crate::cache;
use crate::drain::{Channel, program, sections, stage_on, verdict};
use crate::found::Found;

const SUITE: &str = "bookworm";
const PACKAGES: &str = "systemd,systemd-sysv,systemd-container,dbus";
/// Shorter than the unit's, so that the row sees a starting node ask for more time.
const START_TIMEOUT: Duration = Duration::from_secs(8);

/// A booted system. It ends when this is dropped.
struct Machine {
    nspawn: Child,
    /// The process id of its systemd, outside.
    init: u32,
    log: PathBuf,
}

impl Machine {
    /// Boots the system in a container that keeps no change. `etc` becomes its `/etc/refundd`.
    fn boot(root: &Path, etc: &Path, drop_in: &Path, log: PathBuf) -> anyhow::Result<Machine> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |from: &Path, to: &str| format!("--bind-ro={}:{to}", from.display());
        let mut command = Command::new("setpriv");
        // nspawn shuts its container down when it gets SIGTERM, so the container ends also when this process is killed.
        command
            .args(["--pdeathsig", "TERM"])
            .args(cache::in_root(root, "usr/bin/systemd-nspawn"))
            .arg(format!("--directory={}", root.display()))
            .args(["--volatile=overlay", "--register=no", "--keep-unit", "--boot", "--console=pipe"])
            .args(["--machine=refundd-compat", "--resolv-conf=off", "--timezone=off", "--link-journal=no"])
            .arg(read(&program(), "/usr/bin/refundd"))
            .arg(read(&here.join("systemd/refundd.service"), "/etc/systemd/system/refundd.service"))
            .arg(read(&here.join("systemd/sysusers.d/refundd.conf"), "/etc/sysusers.d/refundd.conf"))
            .arg(read(drop_in, "/etc/systemd/system/refundd.service.d/compat.conf"))
            .arg(format!("--bind={}:/etc/refundd", etc.display()));
        let output = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let nspawn = command.spawn().context("failed to start systemd-nspawn")?;
        let mut machine = Machine { nspawn, init: 0, log };
        let began = Instant::now();
        while machine.init == 0 {
            if machine.nspawn.try_wait()?.is_some() || began.elapsed() > Duration::from_secs(20) {
                return cache::not_tried(format!("systemd-nspawn does not start: {}", machine.last_line()));
            }
            machine.init = machine.find_init().unwrap_or_default();
            std::thread::sleep(Duration::from_millis(50));
        }
        machine.wait("systemctl is-system-running", Duration::from_mins(1), |state| {
            ["running", "degraded"].contains(&state)
        })?;
        Ok(machine)
    }

    /// The child of nspawn that is number 1 inside.
    fn find_init(&self) -> Option<u32> {
        let pid = self.nspawn.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().find_map(|child| {
            let status = std::fs::read_to_string(format!("/proc/{child}/status")).ok()?;
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            (numbers.split_whitespace().last() == Some("1")).then(|| child.parse().ok())?
        })
    }

    fn last_line(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    }

    /// Runs a command inside; returns what it prints, and whether it succeeded.
    fn try_run(&self, words: &str) -> anyhow::Result<(String, bool)> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--all", "--", "/bin/sh", "-c", words]);
        let output = command.stdin(Stdio::null()).output().context("failed to run nsenter")?;
        let text = [output.stdout, output.stderr].concat();
        Ok((String::from_utf8_lossy(&text).trim().to_owned(), output.status.success()))
    }

    fn run(&self, words: &str) -> anyhow::Result<String> {
        let (text, succeeded) = self.try_run(words)?;
        ensure!(succeeded, "`{words}` failed: {text}\n{}", self.journal());
        Ok(text)
    }

    fn journal(&self) -> String {
        self.try_run("journalctl -u refundd -n 15 --no-pager").map(|(text, _)| text).unwrap_or_default()
    }

    /// Waits until the command prints a text that `fits`.
    fn wait(&self, words: &str, patience: Duration, fits: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let (text, _) = self.try_run(words)?;
            if fits(&text) {
                return Ok(());
            }
            if began.elapsed() > patience {
                bail!("`{words}` still prints `{text}` after {patience:?}\n{}", self.journal());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn property(&self, name: &str) -> anyhow::Result<String> {
        self.run(&format!("systemctl show --value -p {name} refundd"))
    }

    fn until_active(&self) -> anyhow::Result<()> {
        self.wait("systemctl is-active refundd", Duration::from_mins(1), |state| state == "active")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The container would outlive a killed nspawn. With its number 1 the kernel ends all processes in it.
        let init = i32::try_from(self.init).ok().and_then(Pid::from_raw);
        match init.map(|init| kill_process(init, Signal::KILL)) {
            Some(Ok(())) => {}
            _ => {
                self.nspawn.kill().ok();
            }
        }
        self.nspawn.wait().ok();
    }
}

fn channel(name: &str) -> Channel {
    Channel { name: name.to_owned(), refunds: 0, permits: 40, ..Channel::usual() }
}

/// The node's file. The addresses of the servers are not in it: systemd passes them as credentials.
fn file(stage: &Stage, port: u16, channels: &[Channel]) -> String {
    let channels = sections(channels, &format!("http://{}", stage.bank.address()));
    format!(
        "[node]\nname = \"unit\"\n[http]\nlisten = \"127.0.0.1:{port}\"\n[log]\nformat = \"json\"\n{channels}"
    )
}

/// Saves 40 refunds and waits until they arrived.
async fn more(stage: &Stage, channel: &mut Channel) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&stage.database_url()).await?;
    let save = sqlx::query(
        "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
         select $1 || '-' || n, $1, 'P-' || n, n, 'EUR' from generate_series($2 + 1, $2 + 40) n",
    );
    save.bind(&channel.name).bind(i32::try_from(channel.refunds)?).execute(&mut connection).await?;
    channel.refunds += 40;
    let open = "select count(*) from refundd.refunds where state <> 'succeeded'";
    for _ in 0..600 {
        let open: i64 = sqlx::query_scalar(open).fetch_one(&mut connection).await?;
        if open == 0 {
            return Ok(connection.close().await?);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the refunds of {} were not sent", channel.name)
}

pub async fn run() -> anyhow::Result<Found> {
    if !rustix::process::geteuid().is_root() {
        return cache::not_tried("systemd-nspawn needs root");
    }
    let root = cache::debian_system(SUITE, PACKAGES)?;
    let postgres = PostgresOptions { tcp: true, ..PostgresOptions::default() };
    let redis = PrivateRedis::start_with(&RedisOptions { tcp: true, ..RedisOptions::default() }).await?;
    let stage = stage_on(&postgres, redis).await?;
    let (folder, etc) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let put = |name: &str, text: &str| {
        std::fs::write(etc.path().join(name), text).with_context(|| format!("failed to write {name}"))
    };
    let http = playground::place::free_port()?;
    let mut acme = channel("acme");
    put("refundd.toml", &file(&stage, http, std::slice::from_ref(&acme)))?;
    let port = stage.postgres.port().context("Postgres has no port")?;
    let door = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    put("postgres-url", &format!("{}\n", stage.database_through(door)))?;
    put("redis-url", &stage.redis.tcp_url().context("Redis has no port")?)?;
    let drop_in = folder.path().join("compat.conf");
    let seconds = START_TIMEOUT.as_secs();
    std::fs::write(
        &drop_in,
        format!(
            "[Service]\nLoadCredential=postgres-url:/etc/refundd/postgres-url\n\
             LoadCredential=redis-url:/etc/refundd/redis-url\nTimeoutStartSec={seconds}\n\
             SocketBindAllow=ipv4:tcp:{http}\n"
        ),
    )?;

    // Postgres is away when the machine boots.
    stage.postgres.kill_hard().await?;
    let machine = Machine::boot(&root, etc.path(), &drop_in, folder.path().join("console"))?;
    let version = machine.run("systemctl --version | head -1")?;
    machine.run("systemd-sysusers && chown root:refundd /etc/refundd /etc/refundd/refundd.toml")?;
    machine.run(
        "chmod 750 /etc/refundd && chmod 600 /etc/refundd/*-url && chmod 640 /etc/refundd/refundd.toml",
    )?;
    machine.run("systemctl daemon-reload && systemctl start --no-block refundd")?;
    std::thread::sleep(START_TIMEOUT * 2);
    ensure!(machine.property("ActiveState")? == "activating", "not starting\n{}", machine.journal());
    ensure!(machine.property("NRestarts")? == "0", "systemd gave the start up\n{}", machine.journal());
    stage.postgres.start_again().await?;
    machine.until_active()?;
    more(&stage, &mut acme).await?;

    // A reload takes a new channel over, and refuses a bad file.
    let mut beta = channel("beta");
    put("refundd.toml", &file(&stage, http, &[acme.clone(), beta.clone()]))?;
    machine.run("systemctl reload refundd")?;
    let published = "select count(*) from refundd.channels where channel = 'beta'";
    until_counted(&stage, published).await.context("the reload published no channel")?;
    more(&stage, &mut beta).await?;
    put("refundd.toml", "[nonsense]\n")?;
    machine.run("systemctl reload refundd")?;
    machine
        .wait("journalctl -u refundd --no-pager", Duration::from_secs(10), |log| log.contains("nonsense"))?;
    more(&stage, &mut beta).await?;
    put("refundd.toml", &file(&stage, http, &[acme.clone(), beta.clone()]))?;

    // systemd starts a killed node again.
    let before = machine.property("MainPID")?;
    machine.run("kill -KILL $(systemctl show --value -p MainPID refundd)")?;
    machine
        .wait("systemctl show --value -p NRestarts refundd", Duration::from_secs(30), |count| count == "1")?;
    machine.until_active()?;
    ensure!(machine.property("MainPID")? != before, "the node was not started again");
    more(&stage, &mut acme).await?;

    // The watchdog ends a node that lives and does nothing, and starts it again.
    machine.run("kill -STOP $(systemctl show --value -p MainPID refundd)")?;
    let count = "systemctl show --value -p NRestarts refundd";
    machine.wait(count, Duration::from_secs(90), |count| count == "2")?;
    machine.wait("journalctl -u refundd --no-pager", Duration::from_secs(5), |log| {
        log.contains("Watchdog timeout")
    })?;
    machine.until_active()?;
    more(&stage, &mut acme).await?;

    machine.run("systemctl stop refundd")?;
    ensure!(machine.property("Result")? == "success", "it did not stop well\n{}", machine.journal());
    // A bad file stops the start, and the journal has the reason.
    put("refundd.toml", "[gibberish]\n")?;
    ensure!(!machine.try_run("systemctl start refundd")?.1, "it starts with a bad file");
    let log = "journalctl -u refundd --no-pager";
    machine.wait(log, Duration::from_secs(10), |log| log.contains("gibberish"))?;
    let kept = verdict(&stage, &[acme, beta], &stage.database_url()).await?;
    drop(machine);
    stage.strike().await?;
    Ok(Found { version: version.split(" (").next().unwrap_or_default().to_owned(), outcome: kept })
}

async fn until_counted(stage: &Stage, count: &'static str) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&stage.database_url()).await?;
    for _ in 0..300 {
        let count: i64 = sqlx::query_scalar(count).fetch_one(&mut connection).await?;
        if count > 0 {
            return Ok(connection.close().await?);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("nothing after 30 s")
}
