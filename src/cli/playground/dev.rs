//! `refundd dev`: runs a node to develop against, with its own servers and its own pretend bank.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use playground::stage::Stage;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Where the node's HTTP listens; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where the pretend bank listens; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:9000")]
    bank: SocketAddr,
}

const CHANNELS: &str = r#"
[limit.acme]
permits = 20
per     = "1s"

[limit.slow]
permits = 1
per     = "1s"

[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits   = ["acme"]

[channel.slow]
endpoint = "http://{bank}/slow/refunds"
limits   = ["slow"]
"#;

pub(super) async fn dev(args: Args) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    println!("Starting a private Postgres and Redis ...");
    let program = std::env::current_exe().context("failed to find this program")?;
    let play = async {
        let stage = Stage::set(program, args.bank).await?;
        let node = stage.node("dev", args.listen, CHANNELS).await?;
        anyhow::Ok((stage, node))
    };
    let (stage, node) = tokio::select! {
        ready = play => ready?,
        _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
    };
    let (http, bank) = (node.address, stage.bank.address());
    let file = std::env::temp_dir().join(format!("refundd-dev-{}.toml", std::process::id()));
    std::fs::write(&file, stage.file("dev", args.listen, CHANNELS))
        .context("failed to write the configuration")?;
    println!(
        "refundd dev is up; Ctrl-C ends it and removes everything.

  HTTP      http://{http}
  Postgres  {}
  Redis     {}
  Bank      http://{bank}/ledger
  Config    {}

Channels: acme (20 a second), slow (1 a second). Save a refund:

  curl -i http://{http}/v1/refunds -H 'content-type: application/json' \\
    -d '{{\"refund_ref\":\"R-1\",\"channel\":\"acme\",\"payment_ref\":\"P-1\",\"amount_minor\":1250,\"currency\":\"EUR\"}}'

Or with plain SQL:

  psql '{}' -c \"insert into refundd.refunds
    (refund_ref, channel, payment_ref, amount_minor, currency) values ('R-2', 'acme', 'P-2', 990, 'EUR')\"

The state of the channels:

  refundd status --config {}
  curl -s http://{http}/v1/channels",
        stage.database_url(),
        stage.redis.admin_url(),
        file.display(),
        stage.database_url(),
        file.display(),
    );
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    println!("\nStopping ...");
    let _ = std::fs::remove_file(&file);
    node.stop().await?;
    stage.strike().await?;
    Ok(ExitCode::SUCCESS)
}
