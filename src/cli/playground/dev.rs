//! `refundd dev`: runs a node to develop against, with its own servers and its own pretend bank.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

use playground::stage::Stage;

use crate::http::server;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Where the node's HTTP listens; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = super::address)]
    listen: SocketAddr,
    /// Where the pretend bank listens; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:9000", value_parser = super::address)]
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
    are_free(&args)?;
    let mut ends = Ends::new()?;
    println!("Starting a private Postgres and Redis ...");
    let program = std::env::current_exe().context("failed to find this program")?;
    let play = async {
        let stage = Stage::set(program.clone(), args.bank).await?;
        let node = stage.node("dev", args.listen, CHANNELS).await?;
        anyhow::Ok((stage, node))
    };
    let (stage, node) = tokio::select! {
        ready = play => ready?,
        () = ends.next() => return Ok(ExitCode::SUCCESS),
    };
    let (http, bank) = (node.address, stage.bank.address());
    let (file, log, pid) = (node.file().display(), node.log_file().display(), node.pid());
    let program = program.display();
    println!(
        "refundd dev is up; Ctrl-C ends it and removes everything.

  HTTP      http://{http}
  Postgres  {}
  Redis     {}
  Bank      http://{bank}/ledger
  Config    {file}
  Log       {log}

Channels: acme (20 a second), slow (1 a second). Save a refund:

  curl -i http://{http}/v1/refunds -H 'content-type: application/json' \\
    -d '{{\"refund_ref\":\"R-1\",\"channel\":\"acme\",\"payment_ref\":\"P-1\",\"amount_minor\":1250,\"currency\":\"EUR\"}}'

Or by SQL:

  psql '{}' -c \"select id, state, created from refundd.enqueue('R-2', 'acme', 'P-2', 990, 'EUR')\"

The state of the channels:

  {program} status --config {file}
  curl -s http://{http}/v1/channels

Let the bank misbehave. `next` is for one send each, `then` for all sends from now on:

  curl -X PUT http://{bank}/acme/next -d '500 hang cut'
  curl -X PUT http://{bank}/slow/then -d 429
  curl -X PUT http://{bank}/slow/then -d pays

  500 and others  answers with this status and does not pay; 429 also says Retry-After: 2
  hang            never answers
  cut             pays, and ends the connection within the answer
  reset           resets the connection
  slow            pays after three seconds
  pays-500        pays, and answers 500
  pays            pays, as at the beginning

The node reads a changed file after: kill -HUP {pid}",
        stage.database_url(),
        stage.redis.admin_url(),
        stage.database_url(),
    );
    ends.next().await;
    println!("\nStopping ...");
    node.stop().await?;
    stage.strike().await?;
    Ok(ExitCode::SUCCESS)
}

/// Tries both addresses before anything starts. A node would name a key of its file, which the person never wrote.
fn are_free(args: &Args) -> anyhow::Result<()> {
    let mut tried = Vec::new();
    for (option, address) in [("--listen", args.listen), ("--bank", args.bank)] {
        match server::listen(address) {
            Ok(listener) => tried.push(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                bail!("{option} {address} is taken; choose another, such as {option} 127.0.0.1:0")
            }
            Err(error) => bail!("{option} {address}: failed to listen there: {error}"),
        }
    }
    Ok(())
}

/// The signals that end the command. SIGHUP is one of them: a terminal that closes sends it, and without an end in
/// order the servers' folders would stay.
struct Ends(Vec<Signal>);

impl Ends {
    fn new() -> anyhow::Result<Self> {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals: std::io::Result<_> = kinds.into_iter().map(signal).collect();
        Ok(Ends(signals.context("failed to listen for signals")?))
    }

    async fn next(&mut self) {
        let waits = self.0.iter_mut().map(|signal| Box::pin(signal.recv()));
        let _ = futures_util::future::select_all(waits).await;
    }
}
