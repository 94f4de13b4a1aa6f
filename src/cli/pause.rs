//! `refundd pause` and `refundd resume`: Postgres keeps the pause, and all nodes obey it.
//!
//! The commands end no request that is under way.

use std::process::ExitCode;

use anyhow::bail;

use crate::store::Store;

#[derive(Debug, clap::Args)]
pub(super) struct PauseArgs {
    /// The channel, as [channel.NAME] in the configuration
    channel: String,
    /// Why; shown to everyone who asks for the status
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    by: super::By,
}

#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    /// The channel, as [channel.NAME] in the configuration
    channel: String,
}

pub(super) async fn pause(args: PauseArgs, store: &Store) -> anyhow::Result<ExitCode> {
    if args.reason.trim().is_empty() {
        bail!("--reason is empty: say why, others will ask");
    }
    super::keeps_the_laws("--reason", args.reason.trim())?;
    if !store.pause(&args.channel, args.reason.trim(), &args.by.name()?, false).await? {
        bail!("no channel `{}` was ever run on this database; `refundd status` lists them", args.channel);
    }
    println!(
        "Channel {} is paused: nothing more is claimed, and every node knows within a second.",
        args.channel
    );
    println!("Calls that are under way still end. Undo with: refundd resume {}", args.channel);
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn resume(args: ResumeArgs, store: &Store) -> anyhow::Result<ExitCode> {
    if !store.resume(&args.channel).await? {
        bail!("no channel `{}` was ever run on this database; `refundd status` lists them", args.channel);
    }
    println!("Channel {} sends again within a second.", args.channel);
    Ok(ExitCode::SUCCESS)
}
