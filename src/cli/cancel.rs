//! `refundd cancel`: withdraws refunds by their refs or a whole channel's backlog, and only refunds of which no byte ever left.

use std::path::PathBuf;
use std::process::ExitCode;

use super::bulk::{BulkWork, Manner, Which, Words};
use crate::bulk::{Bulk, BulkAction};
use crate::caller::Names;
use crate::config::{Config, Postgres};
use crate::refund::text::shown;
use crate::store::Canceller;

const AFTER_HELP: &str = "\
A refund that was sent before, and that the bank provably did not execute, stays. Cancel such a refund by itself: POST \
/v1/refunds/{id}/cancel. Its page on a node, /refunds/{id}, shows the command. With --channel, the command cancels exactly the \
refunds that its sums count, except those that a node sends meanwhile. What comes into the channel later stays. Pause the \
channel first if nothing of it may go out meanwhile. A dry run shows totals for --expect: with them, a later run changes \
nothing if the channel has other totals by then. A cancelled refund is never sent, and its refund_ref is used up. R-123@7 also \
names the version of the refund that you saw: a refund with another version stays, such as one that a colleague has moved \
since. A ref of the command line that is also another refund's id is refused: write it into a file, which names no ids and no \
versions.

Exit codes: 0 all named refunds are cancelled now, or were before; with --channel, all that the sums count; 1 a named refund \
stays, one of the sums was not cancelled, the totals differ, or the command failed; 2 the command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    manner: Manner,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Named {
    /// The refs of the refunds; R-123@7 names the version that you saw, too: `refundd show` tells it
    #[arg(value_name = "REF")]
    refs: Vec<String>,
    /// A file with one ref on each line, and no versions; - for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// All refunds of this channel that were never sent
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
}

pub(super) async fn cancel(
    args: Args,
    postgres: &Postgres,
    config: Option<&Config>,
) -> anyhow::Result<ExitCode> {
    let Args { named: Named { refs, file, channel }, manner } = args;
    let store = super::store(postgres).await?;
    let canceller = Canceller {
        // A refund of the backlog that somebody moves away meanwhile stays.
        channels: channel.clone().map_or(Names::All, |channel| Names::These([channel].into())),
        name: Some(manner.by.name()?),
        why: manner.reason()?,
        never_sent: true,
    };
    if let Some(channel) = &channel {
        super::channel_exists(&store, "--channel", channel).await?;
    }
    let question =
        format!("Cancel them, for ever, on channel {}?", shown(channel.as_deref().unwrap_or_default()));
    let words = Words {
        done: "cancelled",
        before: "was cancelled before",
        question: &question,
        unasked: "--channel cancels a whole backlog, for ever",
        target: "",
    };
    let which = Which::of(refs, file.as_ref(), channel, &store).await?;
    let bulk = Bulk::new(store.clone(), BulkAction::Cancel(canceller), Names::All, manner.dry_run).await?;
    BulkWork::new(&store, config, bulk, manner.dry_run, words).run(&which, &manner).await
}
