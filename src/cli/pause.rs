//! `refundd pause` and `refundd resume`: Postgres keeps the pause, and all nodes obey it.
//!
//! The commands end no request that is under way. A pause by a person and the suspensions by refundd itself are records
//! of their own: `resume` ends the pause, and with a flag one of the others.
//!
//! There is one pause of a channel, and one of everything. A new one takes the place of the one that is in force, so that
//! `resume` or the new end would lift a colleague's pause. So unless it is told to, `pause` replaces no pause under another name, and lets
//! none end earlier: several people may have one name, such as `root`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;

use crate::config::duration;
use crate::desk::channel::SuspensionStatus;
use crate::refund::text::shown;
use crate::store::{Pause, Paused, Resumed, Seen, Store, StoreError, SuspendedBy, Suspension, SuspensionEnd};

/// The exit code of `resume` when nothing was suspended for that cause, and of `pause` when a pause is in force that it does not replace.
const NOTHING_CHANGED: u8 = 3;
/// How often `pause` tries while a pause that is in the way ends before it is read.
const TRIES: u32 = 3;
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// One channel, or everything.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The channel, as [channel.NAME] in the configuration
    channel: Option<String>,
    /// All channels, also those that are added later, and the permits of other services
    #[arg(long)]
    all: bool,
}

const PAUSE_HELP: &str = "\
A pause under the same name is replaced if it ends no later than the new one, and the command prints it. Any other pause stays, \
unless --replace is given: the command prints who paused, since when, until when and why. Exit code 3: such a pause is in force, and \
nothing was changed. A pause of one channel and the pause of everything do not replace each other.";

#[derive(Debug, clap::Args)]
#[command(after_help = PAUSE_HELP)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    which: Which,
    /// Why; shown to everyone who asks for the status
    #[arg(long)]
    reason: String,
    /// The pause ends by itself after this time, such as "30m" or "2h" [default: until somebody resumes]
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    lasts: Option<Duration>,
    /// Replace the pause that is in force, also another person's and one that ends later
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    by: super::By,
}

/// One channel, or the pause of everything.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct WhichResumed {
    /// The channel, as [channel.NAME] in the configuration
    channel: Option<String>,
    /// End the pause of everything; a channel that is paused or suspended on its own stays so
    #[arg(long)]
    all: bool,
}

const RESUME_HELP: &str = "\
A person's pause, the suspension after refused credentials, the breaker's suspension and the wait that a bank asked for are \
separate. Without a flag the command ends the pause by a person; --credentials, --breaker or --cooling ends that suspension \
instead. --cooling also ends the lower rate after the wait, and works while there is only the lower rate. A bank that is not well yet \
asks to wait again. The command says whose pause it \
ended, since when and why. What suspends the channel still is printed with the command that ends it. Exit code 3: nothing was \
suspended for that cause, and nothing was changed.";

#[derive(Debug, clap::Args)]
#[command(after_help = RESUME_HELP)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    which: WhichResumed,
    /// End the suspension after the bank's 401, 403 or 407, and leave a person's pause
    #[arg(long, conflicts_with_all = ["all", "breaker", "cooling"])]
    credentials: bool,
    /// End the breaker's suspension, and leave a person's pause
    #[arg(long, conflicts_with_all = ["all", "credentials", "cooling"])]
    breaker: bool,
    /// End the wait that the bank asked for and the lower rate after it, and leave a person's pause
    #[arg(long, conflicts_with_all = ["all", "credentials", "breaker"])]
    cooling: bool,
    /// Why; kept in the events
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    by: super::By,
}

/// Reads a time of a flag.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let span = duration::read(text)?;
    if span.is_zero() || span > LONGEST {
        return Err(format!("must lie between \"1us\" and \"{}\"", duration::say(LONGEST)));
    }
    Ok(span)
}

pub(super) async fn pause(args: PauseArgs, store: &Store) -> anyhow::Result<ExitCode> {
    let reason = args.reason.trim();
    if reason.is_empty() {
        bail!("--reason is empty: say why, others will ask");
    }
    super::check_text("--reason", 400, reason)?;
    let pause = Pause { reason, who: &args.by.name()?, lasts: args.lasts };
    let until = match args.lasts {
        Some(lasts) => format!("for {}", duration::say(lasts)),
        None => "until somebody resumes it".to_owned(),
    };
    let channel = args.which.channel.as_deref();
    // Postgres compares with what was seen, so a pause that somebody else begins meanwhile stays, too.
    let mut done = pause_if_none(store, channel, &pause).await?;
    let mut replaced = None;
    if let Paused::Changed(Some(there)) = &done
        && (args.replace || there.who == pause.who && !ends_later(there, &pause))
        && let Some(since) = there.since
    {
        replaced = Some(there.clone());
        done = store.pause_seen(channel, &pause, Seen::Since(since)).await?;
        if matches!(done, Paused::Changed(None)) {
            // There is none to replace any more.
            replaced = None;
            done = pause_if_none(store, channel, &pause).await?;
        }
    }
    match done {
        Paused::NoSuchChannel => return Err(no_such_channel(channel.unwrap_or_default())),
        Paused::Changed(Some(there)) => {
            print_refused(there, &pause, args.replace);
            return Ok(ExitCode::from(NOTHING_CHANGED));
        }
        Paused::Changed(None) => {
            bail!("pauses of other people ended meanwhile, and nothing was changed; run the command again")
        }
        Paused::Now => {}
    }
    if let Some(replaced) = replaced {
        let replaced = SuspensionStatus::from(replaced);
        let end = replaced.until.map(|until| format!("It would have ended at {until:.0}."));
        let end = end.unwrap_or_else(|| "It had no end.".to_owned());
        println!("Replaced: {}\n{end}", shown(&replaced.past_sentence()));
    }
    let (subject, more, undo) = if let Some(channel) = channel {
        (format!("Channel {channel}"), "nothing more is claimed", channel)
    } else {
        let more = "nothing more is claimed in any channel, and no permit is given to other services";
        ("Everything".to_owned(), more, "--all")
    };
    println!("{subject} is paused {until}: {more}. Every node knows within a second.");
    println!("Requests in progress still end. Undo with: refundd resume {undo}");
    Ok(ExitCode::SUCCESS)
}

/// Whether this pause ends later than a new one would.
fn ends_later(there: &Suspension, new: &Pause<'_>) -> bool {
    new.lasts.is_some_and(|lasts| there.left.is_none_or(|left| left > lasts))
}

/// Pauses, unless there is a pause. If the pause that was in the way has just ended, it tries again: exit code 3 says that a pause is in
/// force.
async fn pause_if_none(
    store: &Store,
    channel: Option<&str>,
    pause: &Pause<'_>,
) -> Result<Paused, StoreError> {
    for _ in 0..TRIES {
        let done = store.pause_seen(channel, pause, Seen::Nothing).await?;
        if !matches!(done, Paused::Changed(None)) {
            return Ok(done);
        }
    }
    Ok(Paused::Changed(None))
}

pub(super) async fn resume(args: ResumeArgs, store: &Store) -> anyhow::Result<ExitCode> {
    let who = args.by.name()?;
    let reason = args.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
    if let Some(reason) = reason {
        super::check_text("--reason", 400, reason)?;
    }
    let channel = args.which.channel.as_deref();
    // clap takes one flag at most.
    let own = [
        (args.credentials, SuspendedBy::Credentials),
        (args.breaker, SuspendedBy::Breaker),
        (args.cooling, SuspendedBy::Cooling),
    ];
    let own = own.into_iter().find_map(|(is_meant, by)| is_meant.then_some(by));
    let ends = own.unwrap_or(if channel.is_none() { SuspendedBy::All } else { SuspendedBy::Person });
    // Whoever types the command means what is there now; its answer says whose pause that was.
    let done = store.end(&SuspensionEnd { channel, by: ends, who: &who, reason, seen: None }).await?;
    let subject = channel.map_or_else(|| "Everything".to_owned(), |channel| format!("Channel {channel}"));
    let left = || async {
        let all = store.suspensions().await?.suspensions;
        // Without a channel, all that is suspended still.
        let is_about = |one: &Suspension| {
            channel.is_none() || one.channel.is_none() || one.channel.as_deref() == channel
        };
        anyhow::Ok(all.into_iter().filter(is_about).collect::<Vec<_>>())
    };
    let was = match ends {
        SuspendedBy::Credentials => "suspended because of its credentials",
        SuspendedBy::Breaker => "suspended by its breaker",
        SuspendedBy::Cooling => "cooling",
        SuspendedBy::All | SuspendedBy::Person => "paused",
    };
    match done {
        Resumed::NoSuchChannel => Err(no_such_channel(channel.unwrap_or_default())),
        Resumed::WasNot | Resumed::Changed(_) => {
            let left = left().await?;
            let by_person = left.iter().any(|one| matches!(one.by, SuspendedBy::Person | SuspendedBy::All));
            if ends == SuspendedBy::Person && !by_person && left.iter().any(is_by_refundd) {
                // The state of such a channel may be `paused`.
                let channel = channel.unwrap_or_default();
                println!(
                    "No person paused channel {channel}: refundd suspended it itself. Nothing was changed."
                );
            } else {
                println!("{subject} was not {was}; nothing was changed.");
            }
            print_left(&left);
            Ok(ExitCode::from(NOTHING_CHANGED))
        }
        Resumed::Now(ended) => {
            println!("Ended: {}", shown(&SuspensionStatus::from(ended).past_sentence()));
            let left = left().await?;
            if left.is_empty() && store.is_run(channel).await? {
                let how = if ends == SuspendedBy::Cooling { "at its full rate" } else { "again" };
                println!("{subject} sends {how} within a second.");
            } else if left.is_empty() {
                let nobody =
                    if channel.is_some() { "no living node runs the channel" } else { "no node lives" };
                println!("{subject} is not {was} any more. Nothing is sent: {nobody}.");
            } else if channel.is_none() {
                println!(
                    "The pause of everything has ended. These channels are still suspended on their own:"
                );
            } else {
                println!("{subject} is not {was} any more.");
            }
            print_left(&left);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn is_by_refundd(suspension: &Suspension) -> bool {
    match suspension.by {
        SuspendedBy::Credentials | SuspendedBy::Breaker | SuspendedBy::Cooling => true,
        SuspendedBy::All | SuspendedBy::Person => false,
    }
}

fn no_such_channel(channel: &str) -> anyhow::Error {
    anyhow::anyhow!("no channel `{channel}` was ever run on this database; `refundd status` lists them")
}

/// Says which pause is in force instead, and how to replace it. A command that `replaces` meets only a pause that was begun meanwhile.
fn print_refused(there: Suspension, new: &Pause<'_>, replaces: bool) {
    let would_shorten = there.who == new.who && ends_later(&there, new);
    println!("{}", shown(&SuspensionStatus::from(there).sentence()));
    let way_out = if replaces {
        "This pause was begun meanwhile. To replace it, agree with that person, and run the command again."
    } else if would_shorten {
        "This pause ends later than the new one. If it is yours, or you agree with that person, add --replace."
    } else {
        "To replace this pause, agree with that person, and add --replace."
    };
    println!("Nothing was changed. {way_out}");
}

/// Says what suspends the channel still, and how to end it.
fn print_left(left: &[Suspension]) {
    for one in left {
        println!("{}", shown(&SuspensionStatus::from(one.clone()).with_way_out()));
    }
}
