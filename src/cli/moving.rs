//! `refundd move`: moves refunds from one channel to another, and only refunds of which no byte ever left.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;

use super::bulk::{BulkWork, Manner, Which, Words};
use crate::bulk::{Bulk, BulkAction};
use crate::caller::Names;
use crate::config::{Config, Postgres};
use crate::refund::text::shown;
use crate::store::Move;

const AFTER_HELP: &str = "\
Without refs and without --file, the command moves all refunds of the channel that were never sent: exactly those that its sums \
count, except those that a node sends meanwhile. What comes into the channel later stays. A moved refund keeps its refund_ref and \
payment_ref and gets a new request id, because another bank must see a key of its own. A refund that may have been sent is never \
moved: it is named with its reason. The other channel's max_backlog and max_amount_minor hold. Pause the channel first if nothing \
of it may go out meanwhile. A dry run shows totals for --expect: with them, a later run changes nothing if the channel has other \
totals by then. R-123@7 also names the version of the refund that you saw: a refund with another version stays. So a repeat of the \
command never undoes somebody's move back, as it does without versions. A ref of the command line that is also another refund's id \
is refused: write it into a file, which names no ids and no versions.

Exit codes: 0 all named refunds are in the other channel now, or were before; of a whole channel, all that the sums count; \
1 a named refund stays, one of the sums was not moved, the totals differ, the other channel is full, or the command failed; 2 the \
command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The channel that the refunds leave
    #[arg(long, value_name = "NAME")]
    from: String,
    /// The channel that they move to
    #[arg(long, value_name = "NAME")]
    to: String,
    /// The refs of the refunds; R-123@7 names the version that you saw, too: `refundd show` tells it
    #[arg(value_name = "REF", conflicts_with = "file")]
    refs: Vec<String>,
    /// A file with one ref on each line, and no versions; - for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    manner: Manner,
}

pub(super) async fn moving(
    args: Args,
    postgres: &Postgres,
    config: Option<&Config>,
) -> anyhow::Result<ExitCode> {
    let Args { from, to, refs, file, manner } = args;
    if from == to {
        bail!("--from and --to both name channel {}: name another channel; nothing was changed", shown(&to));
    }
    let store = super::store(postgres).await?;
    let (who, why) = (manner.by.name()?, manner.reason()?);
    super::channel_exists(&store, "--from", &from).await?;
    super::channel_exists(&store, "--to", &to).await?;
    if store.move_target(&to).await?.is_some_and(|target| target.is_retired) {
        bail!(
            "--to names channel `{to}`, which no node runs: its refunds would wait for ever; nothing was changed"
        );
    }
    let question = format!("Move them from channel {} to channel {}?", shown(&from), shown(&to));
    let words = Words {
        done: "moved",
        before: &format!("was in channel {} before", shown(&to)),
        question: &question,
        unasked: "without refs the command moves a whole backlog",
        target: &to,
    };
    let channel = refs.is_empty().then(|| from.clone());
    let which = Which::of(refs, file.as_ref(), channel, &store).await?;
    let order = Move { from, to: to.clone(), who, why: why.unwrap_or_default() };
    let bulk = Bulk::new(store.clone(), BulkAction::Move(order), Names::All, manner.dry_run).await?;
    BulkWork::new(&store, config, bulk, manner.dry_run, words).run(&which, &manner).await
}
