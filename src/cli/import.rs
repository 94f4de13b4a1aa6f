//! `refundd import`: saves a file of refunds, thousands in one commit, under the same rules as HTTP.
//!
//! The command does not stop at a wrong line, and undoes nothing. A dry run saves nothing. With control totals, every line
//! is foreseen, as in a dry run, before anything is saved.

mod dead;
mod deciding;
mod reading;
mod repeats;
mod rooms;
mod rows;
mod saving;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use self::reading::Reading;
use self::rows::FileFormat;
use self::saving::Import;
use super::totals::{ExpectedTotals, Totals};
use crate::config::Config;
use crate::refund::text::counted;
use crate::store::Store;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::rows::rows_of_csv;

const REFUNDS_IN_A_COMMIT: usize = 5_000;
/// While Postgres writes one commit to disk, the import prepares the next.
const COMMITS_AT_ONCE: usize = 2;
const IMPORT_AGAIN: &str =
    "after the repair, import the whole file again: refunds that are saved are not saved twice";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// The file, or - for standard input
    file: PathBuf,
    /// The format of the file [default: by the end of its name; csv for standard input]
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// Check every line and compare it with the database, and save nothing
    #[arg(long)]
    dry_run: bool,
    /// Save nothing unless the file has these totals, such as count=1200,EUR=340050; amounts are in minor units
    #[arg(long, value_name = "TOTALS", value_parser = ExpectedTotals::read)]
    expect: Option<ExpectedTotals>,
}

const HELP: &str = "\
CSV: the first line names the columns, in any order: refund_ref, channel, payment_ref, amount_minor, currency \
and, if wanted, payload (JSON), due_at, deadline_at. An empty cell is a field left out. NDJSON: one refund a \
line, as HTTP takes it.

Standard error shows the problems of wrong lines in the order of the file, each with its number; all other lines are \
saved. The whole file may be imported again: refunds that are saved are not saved twice. A refund that was saved before and is \
cancelled or failed is not sent again. The last line counts these, and names the first five.

A dry run and --expect print control totals: the number and the sum of each currency, of the accepted lines alone. A line \
below them has those of the refused lines.

With --expect the file is read twice, first as in a dry run: a file with a line that would be refused, or with other \
totals, saves nothing. A file that names one currency there may have no other. Between the two, somebody else may save one \
of its refs, or a channel may fill: such lines are refused, the others are saved, and the last line of standard error says \
how many.

A dry run and --expect count the lines of the file against the room that the max_backlog of each channel has now. They refuse what \
is beyond it.

Exit codes: 0 every line is saved, or would be; 1 a line was refused or not saved for now, the totals differ, the file has no refunds \
(unless count=0 is expected), or the command failed; 2 the command line is wrong.";

/// The file to import.
struct Source<'a> {
    file: &'a Path,
    format: FileFormat,
    config: &'a Config,
}

impl Source<'_> {
    fn read(&self) -> Reading {
        Reading::begin(self.file, self.format, self.config, REFUNDS_IN_A_COMMIT, COMMITS_AT_ONCE)
    }

    fn channels(&self) -> Vec<String> {
        self.config.channels.keys().map(ToString::to_string).collect()
    }
}

pub(super) async fn import(args: Args, config: &Config) -> anyhow::Result<ExitCode> {
    let format = args.format.map_or_else(|| FileFormat::of(&args.file), Ok)?;
    // A pipe that has a name, or one that the shell made of a command.
    let is_pipe = || args.file.metadata().is_ok_and(|data| !data.is_file() && !data.is_dir());
    let is_input = args.file == Path::new("-");
    if args.expect.is_some() && (is_input || is_pipe()) {
        let what = if is_input { "standard input".to_owned() } else { args.file.display().to_string() };
        eprintln!(
            "refundd: --expect reads the file twice, and {what} can be read only once: save it as a file"
        );
        return Ok(ExitCode::from(2));
    }
    let store = super::store(&config.postgres).await?;
    let path = args.file.display().to_string();
    let source = Source { file: &args.file, format, config };
    let before = match &args.expect {
        None => None,
        Some(expected) => {
            let found = rehearse(&source, &store, expected).await;
            let found = found.with_context(|| format!("nothing of {path} was saved"))?;
            if found.is_none() {
                eprintln!("refundd: nothing of {path} was saved");
                return Ok(ExitCode::FAILURE);
            }
            found
        }
    };

    let mut reading = source.read();
    let mut import = Import::new(&store, args.dry_run, source.channels());
    let saved = import.all(&mut reading).await;
    let read = reading.end();
    if let (Ok(()), Err(error), true) = (&saved, &read, import.is_empty()) {
        anyhow::bail!("{error:#}; nothing was saved");
    }
    print(&import, args.dry_run || args.expect.is_some());
    saved
        .map_err(|error| anyhow!(error))
        .with_context(|| format!("not all of {path} was saved; {IMPORT_AGAIN}"))?;
    read.map_err(|error| anyhow!("{error:#}; not all of it was read; {IMPORT_AGAIN}"))?;
    let saved = if args.dry_run { "nothing is".to_owned() } else { are(import.saved) };
    if before.is_some_and(|before| before != import.totals) {
        anyhow::bail!(
            "{path} changed while it was imported: {saved} saved, and the totals above are not those that were expected"
        );
    }
    if args.expect.is_some() && !args.dry_run && import.refused > 0 {
        let refused = counted(import.refused, "line");
        eprintln!(
            "refundd: {saved} saved, and {refused} refused that the check had passed: since then, somebody else saved a ref, \
             or a channel changed or filled. Keep the refs; {IMPORT_AGAIN}"
        );
    }
    if import.unsure > 0 {
        let lines = counted(import.unsure, "line");
        eprintln!(
            "refundd: not saved for now: {lines}; another transaction may be saving the same refs. Import the whole file again \
             later, and pay none of its lines in another way: refunds that are saved are not saved twice"
        );
    }
    if import.is_empty() && !args.expect.as_ref().is_some_and(ExpectedTotals::is_nothing) {
        eprintln!("refundd: {path} has no refunds; if that is right, say --expect count=0");
        return Ok(ExitCode::FAILURE);
    }
    Ok(if import.refused + import.unsure == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a file and foresees every line, before anything of it is saved. `None` if a line would be refused, or the totals
/// are others; that was shown.
async fn rehearse(
    source: &Source<'_>,
    store: &Store,
    expected: &ExpectedTotals,
) -> anyhow::Result<Option<Totals>> {
    let (mut reading, mut import) = (source.read(), Import::new(store, true, source.channels()));
    let foreseen = import.all(&mut reading).await;
    reading.end()?;
    foreseen?;
    if import.refused > 0 {
        print(&import, true);
        return Ok(None);
    }
    let differences = expected.differences(&import.totals, "the file");
    for difference in &differences {
        eprintln!("refundd: {difference}");
    }
    Ok(differences.is_empty().then_some(import.totals))
}

fn print(import: &Import<'_>, with_totals: bool) {
    println!("{}{}", import.tally(), import.dead.words());
    if let Some(totals) = import.control_totals().filter(|_| with_totals) {
        println!("{totals}");
    }
}

/// `1 refund is`, `2 refunds are`.
fn are(refunds: u64) -> String {
    format!("{} {}", counted(refunds, "refund"), if refunds == 1 { "is" } else { "are" })
}
