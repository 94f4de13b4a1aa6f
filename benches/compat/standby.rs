//! A synchronous standby that is promoted behind `HAProxy` while the primary is killed under load.

use std::time::Duration;

use anyhow::{Context, ensure};
use playground::stage::Addresses;
use playground::{PostgresOptions, PrivatePostgres, PrivateRedis};
use sqlx::{Connection, Executor, PgConnection};

use crate::banks::{Front, system, version};
use crate::drain::{Channel, finish, nodes, save, sections, stage_on};
use crate::found::Found;

/// Refunds that a producer saves one by one during the fail-over, through `HAProxy`.
const ONE_BY_ONE: u32 = 100;

fn listening(settings: &[(&str, String)]) -> PostgresOptions {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    PostgresOptions { tcp: true, settings, ..PostgresOptions::default() }
}

pub async fn run() -> anyhow::Result<Found> {
    let haproxy = system("haproxy")?;
    let stage = stage_on(&listening(&[]), PrivateRedis::start().await?).await?;
    let primary = &stage.postgres;
    // The standby copies the data of a server that does not run, and then follows it.
    primary.kill_hard().await?;
    let first = primary.port().context("the primary has no port")?;
    let follows = format!("host=127.0.0.1 port={first} user=refundd");
    let standby = PrivatePostgres::start_with(&PostgresOptions {
        standby_of: Some(primary.folder().to_owned()),
        ..listening(&[("primary_conninfo", follows), ("wal_retrieve_retry_interval", "200ms".to_owned())])
    })
    .await?;
    let second = standby.port().context("the standby has no port")?;
    primary.start_again().await?;
    become_synchronous(primary).await?;

    let front = Front::start(|folder, port| {
        let text = format!(
            "defaults\n  mode tcp\n  timeout connect 2s\n  timeout client 1h\n  timeout server 1h\n\
             listen postgres\n  bind 127.0.0.1:{port}\n  default-server check inter 200ms fall 2 on-marked-down shutdown-sessions\n  \
             server first 127.0.0.1:{first}\n  server second 127.0.0.1:{second} backup\n"
        );
        std::fs::write(folder.join("haproxy.cfg"), text)?;
        let mut command = std::process::Command::new(&haproxy);
        command.arg("-db").arg("-f").arg(folder.join("haproxy.cfg"));
        Ok(command)
    })?;
    let through = primary.url_through(front.address, "payments");
    let mut channel = Channel { refunds: 150, ..Channel::usual() };
    let channels = sections(std::slice::from_ref(&channel), "http://{bank}");
    let at = Addresses { postgres: through.clone(), ..stage.addresses() };
    let nodes = nodes(&stage, &channels, &at).await?;
    save(&through, std::slice::from_ref(&channel)).await?;
    let producer = tokio::spawn(save_one_by_one(through));
    ensure!(
        stage.bank.until(Duration::from_secs(30), |ledger| ledger.all().len() >= 60).await,
        "fewer than 60 refunds arrived"
    );
    primary.kill_hard().await?;
    let mut connection = PgConnection::connect(&standby.url("postgres")).await?;
    let promoted: bool = sqlx::query_scalar("select pg_promote()").fetch_one(&mut connection).await?;
    ensure!(promoted, "the standby was not promoted");
    connection.close().await?;
    producer.await?;
    channel.refunds += ONE_BY_ONE;
    let outcome = finish(&stage, &[channel], nodes, &standby.url("payments")).await?;
    let pause = longest_pause(&stage.bank.ledger().all().iter().map(|a| a.at_us).collect::<Vec<_>>());
    let version = format!(
        "Postgres {}, HAProxy {}",
        crate::postgres::version(&standby).await?,
        version(&haproxy, "-v")?
    );
    drop(front);
    standby.stop().await?;
    stage.strike().await?;
    Ok(Found { version, outcome: format!("{outcome}; the bank saw a pause of {:.1} s", pause.as_secs_f64()) })
}

/// From now on a commit waits for the standby.
async fn become_synchronous(primary: &PrivatePostgres) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&primary.url("postgres")).await?;
    connection.execute("alter system set synchronous_standby_names = '*'").await?;
    connection.execute("select pg_reload_conf()").await?;
    for _ in 0..300 {
        let look = "select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')";
        let count: i64 = sqlx::query_scalar(look).fetch_one(&mut connection).await?;
        if count == 1 {
            return Ok(connection.close().await?);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the standby does not follow")
}

/// Saves each refund until Postgres confirmed it, as a producer does.
async fn save_one_by_one(url: String) {
    let insert = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
                  values ($1, 'acme', 'P', 100, 'EUR') on conflict (refund_ref) do nothing";
    let mut connection = None;
    for n in 0..ONE_BY_ONE {
        let name = format!("one-{n}");
        loop {
            let mut open = match connection.take() {
                Some(open) => open,
                None => {
                    if let Ok(open) = PgConnection::connect(&url).await {
                        open
                    } else {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                }
            };
            if sqlx::query(insert).bind(&name).execute(&mut open).await.is_ok() {
                connection = Some(open);
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn longest_pause(times: &[i64]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
    Duration::from_micros(longest.unsigned_abs())
}
