//! The Debian package, installed into a container of `systemd-nspawn`, and its unit, started by the real systemd in there.
//!
//! The container shares the network of this machine. So the node in it works with private servers and with the
//! pretend bank outside.

#![expect(
    clippy::disallowed_methods,
    reason = "a row runs alone, and waits for a process of another program"
)]

mod hardening;
mod machine;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use playground::load::save_in;
use playground::stage::Stage;
use playground::{PostgresOptions, PrivateRedis, RedisOptions};
use sqlx::{Connection, PgConnection};

use crate::cache;
use crate::drain::{Channel, program, sections, stage_on, verdict};
use crate::found::Found;
use machine::Machine;

/// systemd reads `SocketBindDeny=` with libbpf1, which it only suggests. The package depends on the last two.
const PACKAGES: &str = "systemd,systemd-sysv,systemd-container,dbus,libbpf1,ca-certificates,tzdata";
/// Shorter than the unit's, so that the row sees a starting node ask for more time.
const START_TIMEOUT: Duration = Duration::from_secs(8);
/// Keeps the configuration that is there. Run again, it is an upgrade.
const INSTALL: &str = "dpkg --install --force-confold /refundd.deb";

/// Makes the package of the program that this bench runs.
fn packed(folder: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tools/package"))
        .env("PROGRAM", program())
        .env("TO", folder)
        .env("DEB_OPTIONS", "-Zgzip -z1")
        .output()
        .context("failed to run tools/package")?;
    ensure!(output.status.success(), "tools/package failed: {}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut made = printed.lines().map(PathBuf::from);
    match made.find(|path| path.extension().is_some_and(|kind| kind == "deb")) {
        Some(package) => Ok(package),
        None => cache::not_tried("this system has no dpkg-deb"),
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
    save_in(&mut connection, &channel.name, channel.refunds + 1..=channel.refunds + 40).await?;
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

/// Boots this release of Debian.
pub async fn run(suite: &str) -> anyhow::Result<Found> {
    if !rustix::process::geteuid().is_root() {
        return cache::not_tried("systemd-nspawn needs root");
    }
    let root = cache::debian_system(suite, PACKAGES)?;
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
    let package = packed(folder.path())?;
    let machine = Machine::boot(&root, &package, etc.path(), &drop_in, folder.path().join("console"))?;
    let version = machine.run("systemctl --version | head -1")?;
    machine.run(
        "chmod 755 /etc/refundd && chmod 600 /etc/refundd/*-url && chmod 640 /etc/refundd/refundd.toml",
    )?;
    machine.run(INSTALL)?;
    ensure!(machine.property("ActiveState")? == "inactive", "the installation started the node");
    machine.run("systemctl start --no-block refundd")?;
    std::thread::sleep(START_TIMEOUT * 2);
    ensure!(machine.property("ActiveState")? == "activating", "not starting\n{}", machine.journal());
    ensure!(machine.property("NRestarts")? == "0", "systemd gave the start up\n{}", machine.journal());
    stage.postgres.start_again().await?;
    machine.until_active()?;
    more(&stage, &mut acme).await?;
    hardening::node_has_no_rights(&machine)?;
    let refusals = hardening::refusals(&machine, etc.path())?;

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

    // An upgrade leaves the node running.
    let before = machine.property("MainPID")?;
    machine.run(INSTALL)?;
    ensure!(machine.property("MainPID")? == before, "the upgrade touched the node");
    more(&stage, &mut beta).await?;

    machine.run("systemctl stop refundd")?;
    ensure!(machine.property("Result")? == "success", "it did not stop well\n{}", machine.journal());
    // A bad file stops the start, and the journal has the reason.
    put("refundd.toml", "[gibberish]\n")?;
    ensure!(!machine.try_run("systemctl start refundd")?.1, "it starts with a bad file");
    let log = "journalctl -u refundd --no-pager";
    machine.wait(log, Duration::from_secs(10), |log| log.contains("gibberish"))?;

    // A removal stops the node.
    put("refundd.toml", &file(&stage, http, &[acme.clone(), beta.clone()]))?;
    machine.run("systemctl restart refundd")?;
    more(&stage, &mut acme).await?;
    machine.run("dpkg --remove refundd")?;
    let (running, found) = machine.try_run("pgrep --exact refundd || grep -l refundd /proc/[0-9]*/comm")?;
    ensure!(!found, "the removal left a node running: {running}");
    let kept = verdict(&stage, &[acme, beta], &stage.database_url()).await?;
    drop(machine);
    stage.strike().await?;
    Ok(Found {
        version: version.split(" (").next().unwrap_or_default().to_owned(),
        outcome: format!("{kept}; {refusals}"),
    })
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
