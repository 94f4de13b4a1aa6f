//! `refundd pretend-bank`: runs only the bank of the demo, to try refundd against.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;

use playground::PretendBank;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Where it listens; POST /NAME/refunds pays, GET /ledger tells what arrived
    #[arg(long, default_value = "127.0.0.1:9000", value_parser = super::address)]
    listen: SocketAddr,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let listen = args.listen;
    let open = PretendBank::serve_forever(listen, |address| {
        println!(
            "The pretend bank is open: POST http://{address}/NAME/refunds pays, GET http://{address}/ledger tells, \
             PUT http://{address}/NAME/then with 500, hang, 429 or cut lets it misbehave."
        );
    });
    tokio::select! {
        done = open => done.with_context(|| format!("failed to open the pretend bank on {listen}"))?,
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(ExitCode::SUCCESS)
}
