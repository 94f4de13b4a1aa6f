//! A synchronous standby that is promoted behind `HAProxy` while the primary is killed under load.

use std::time::Duration;

use anyhow::ensure;
use playground::stage::Addresses;
use playground::{Front, PostgresOptions, PrivateRedis};
use sqlx::{Connection, PgConnection};

use crate::banks::{system, version};
use crate::drain::{Channel, finish, nodes, save, sections, stage_on};
use crate::found::Found;

/// Refunds that a producer saves one by one during the fail-over, through `HAProxy`.
const ONE_BY_ONE: u32 = 100;

pub async fn run() -> anyhow::Result<Found> {
    let haproxy = system("haproxy")?;
    let options = PostgresOptions { tcp: true, ..PostgresOptions::default() };
    let stage = stage_on(&options, PrivateRedis::start().await?).await?;
    let primary = &stage.postgres;
    let standby = primary.add_standby().await?;
    let [first, second] = [primary, &standby].map(|server| server.port().unwrap_or_default());

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
    })
    .await?;
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
    standby.promote().await?;
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
