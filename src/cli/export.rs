//! `refundd export`: the sends of a channel in a period as CSV on standard output, and their sums on standard error.
//!
//! The command reads only Postgres, one page at a time, and changes nothing. The journal is its source, not the bank:
//! compare the sums with the bank's own statement.

mod sums;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use jiff::Timestamp;

use super::output;
use super::progress::ProgressDisplay;
use crate::prove::{Period, When};
use crate::refund::text::shown;
use crate::store::{SentLine, Store};
use sums::{Sums, shown_sums};

const AFTER_HELP: &str = "\
TIME is RFC 3339 (2026-03-29T12:00:00Z), a span back from now (\"90m\", \"2h 30m\", \"7d\"), or \"now\". A send belongs to \
the period in which its outcome was written (`ended_at`): from --from on, and before --to. So periods that touch each other have each send \
once. After an outage of Postgres, money that was sent on 31 October may stand in November: export both months, and sort them by \
`started_at`. The command first waits, at most 20 seconds, for transactions that may still write sends of the period. A standby does not know \
these transactions, so the command refuses it: run it on the primary.

Each line is one send that reached the bank, or may have; a refund that was sent twice has two lines. `state` is \
the refund's state now. `ended_by` says who ended it: bank; person, who decided; canceller, a person or a program that \
cancelled it while it was ready; or refundd, because its deadline passed. It is empty while the refund has not \
ended. `bank_ref` is the bank's reference of the refund now, the same on all its lines. A refund that is on another channel now has \
neither `bank_ref` nor `request_id` here, and the sums count it apart: ask this bank about its sends. Sums count each refund once, and \
stand on standard error: what the bank said, what a person decided, what was cancelled, what is still open, and what a \
later or an earlier period counts: the refund was sent again, the line of a send came late, or the send provably executed \
nothing, such as a 429, and an earlier one may have. The sums of that other period have the money. A refund that the \
bank's late answer contradicts is counted once more: it may be paid twice, or not at all. All its lines have \
yes in `contradicted`, and `refundd log --kind late_answer_differs` says how.

Lines that come late change past periods: a send that nobody could tell about leaves its period for that of the node's own line. \
So exports of two days that were made on different days may overlap or differ. Export all of them again before you compare. \
After a restore, or a fail-over that lost commits, the lost sends have no line: keep the bank's list of that span with the month.

The file is UTF-8 without a byte order mark. In a spreadsheet, import it as UTF-8, and `refund_ref`, `payment_ref` and `bank_ref` as \
text. Opened with a double click, references of digits lose digits, as in 1.23457E+16, and other letters may be wrong.

A cell that begins with =, +, -, @ or ' gets one ' before it, so that no spreadsheet runs it as a formula. So does each part \
of a cell behind a ;, because some spreadsheets begin a new cell there. Spaces and quotes before such a sign do not count. A control \
character, or another one that nobody sees, is written out, such as \\u{1b}: it could command a terminal.

Exit codes: 0 the whole period is in the output; 1 the journal does not go back that far, a transaction that may still \
write sends of the period stayed open, this Postgres is a standby, or the command failed; 2 the command line is wrong.";

/// How long the command waits for transactions that may still write sends of the period. Those of nodes last some milliseconds,
/// or as long as the synchronous standby hangs.
const WAIT_AT_MOST: Duration = Duration::from_secs(20);

/// A send that was dated so long ago is in the journal, or its transaction has locked the journal. So a past period need not wait for
/// transactions that began just now.
const SETTLED_AFTER_US: i64 = 5_000_000;

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The channel
    #[arg(long, value_name = "NAME")]
    channel: String,
    /// Where the period begins
    #[arg(long, value_name = "TIME", value_parser = When::read)]
    from: When,
    /// Where it ends
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = When::read)]
    to: When,
}

const COLUMNS: [&str; 18] = [
    "channel",
    "started_at",
    "ended_at",
    "refund_id",
    "refund_ref",
    "payment_ref",
    "amount_minor",
    "currency",
    "attempt",
    "outcome",
    "status",
    "code",
    "state",
    "bank_ref",
    "request_id",
    "permit",
    "ended_by",
    "contradicted",
];

pub(super) async fn export(args: Args, store: &Store) -> anyhow::Result<ExitCode> {
    if let Some(standby) = store.replayed().await? {
        bail!(
            "nothing was exported: {standby}. A standby cannot tell which sends its primary wrote since then, and which ones it still \
             writes. Run the command on the primary"
        );
    }
    super::channel_exists(store, "--channel", &args.channel).await?;
    let now = store.now().await?;
    let period = Period { from_us: args.from.us(now)?, to_us: args.to.us(now)? };
    if period.to_us > now.as_microsecond() {
        bail!("--to: by Postgres's clock it is {now:.0}, and the period is not over yet; write \"now\"");
    }
    if period.from_us >= period.to_us {
        bail!("--from is not before --to: the period is empty");
    }
    let (mut sums, mut progress) = (Sums::default(), ProgressDisplay::new());
    let waits =
        || progress.show(|| "waiting for transactions that may still write sends of this period".to_owned());
    // Sends after the period say where its money is, so they must be whole, too.
    let whole_us = period.to_us.max(now.as_microsecond() - SETTLED_AFTER_US);
    let is_whole = store.journal_is_whole_before(whole_us, WAIT_AT_MOST, waits).await?;
    progress.clear();
    if !is_whole {
        bail!(
            "nothing was exported: a transaction that is still open may write sends of this period, or later ones. Try again later. If it \
             stays open, look for the oldest one in pg_stat_activity and pg_prepared_xacts, and end it"
        );
    }
    print!("{}", csv_of([COLUMNS.map(str::to_owned)])?);
    let mut failed = None;
    let see = |lines: &[SentLine], percent| {
        match csv_of(lines.iter().map(|line| cells(&args.channel, line))) {
            Ok(text) => print!("{text}"),
            Err(error) => failed = Some(error),
        }
        for line in lines {
            sums.add(line);
        }
        progress.show(|| format!("{percent} % of the journal of this period read"));
        failed.is_none() && !output::is_lost()
    };
    store.each_page_of_sent(&args.channel, period, whole_us, see).await?;
    progress.clear();
    if let Some(error) = failed {
        return Err(error);
    }
    output::flush();
    if output::is_lost() {
        bail!("the output was cut off: not all sends were read, so there are no sums");
    }
    let begins = |us| Timestamp::from_microsecond(us).map_or_else(|_| us.to_string(), |at| at.to_string());
    let (from, to) = (begins(period.from_us), begins(period.to_us));
    eprintln!("{} from {from} to {to}, as read at {now}", shown(&args.channel));
    eprint!("{}", shown_sums(&sums));
    let since = store.journal_since().await?.filter(|since| since.as_microsecond() > period.from_us);
    if let Some(since) = since {
        bail!(
            "the journal begins at {since} ([recovery] keep_attempts): earlier sends are not in the output"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn csv_of(records: impl IntoIterator<Item = [String; COLUMNS.len()]>) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let mut writer = csv::Writer::from_writer(&mut bytes);
    for record in records {
        writer.write_record(record)?;
    }
    writer.flush()?;
    drop(writer);
    Ok(String::from_utf8(bytes)?)
}

fn cells(channel: &str, line: &SentLine) -> [String; COLUMNS.len()] {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
    let cells = [
        channel.to_owned(),
        time(line.started_at),
        time(line.finished_at),
        line.refund.to_string(),
        line.refund_ref.clone(),
        line.payment_ref.clone(),
        line.money.amount_minor.to_string(),
        line.money.currency.clone(),
        line.number.to_string(),
        line.outcome.clone(),
        line.status.map(|status| status.to_string()).unwrap_or_default(),
        line.code.clone().unwrap_or_default(),
        line.state.to_string(),
        line.bank_ref.clone().unwrap_or_default(),
        line.request_id.clone().unwrap_or_default(),
        line.permit.clone().unwrap_or_default(),
        line.ended_by.map(|by| by.as_str().to_owned()).unwrap_or_default(),
        if line.is_contradicted { "yes".to_owned() } else { String::new() },
    ];
    cells.map(|cell| harmless(&cell))
}

/// A text that commands no terminal, and that a spreadsheet does not run as a formula. Removing one `'` at the beginning and
/// one behind each `;` gives a text without hidden characters back.
///
/// In most of Europe a spreadsheet splits such a file at `;` and takes quotes within a cell for text. So each part may become a
/// cell. Tabs and line breaks are hidden characters.
fn harmless(text: &str) -> String {
    let is_read = |first: char| matches!(first, '=' | '+' | '-' | '@' | '\'' | '＝' | '＋' | '－' | '＠');
    let is_passed_over = |first: char| first == '"' || first.is_whitespace();
    let part = |part: &str| {
        let is_run = part.trim_start_matches(is_passed_over).starts_with(is_read);
        if is_run { format!("'{part}") } else { part.to_owned() }
    };
    shown(text).split(';').map(part).collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_a_spreadsheet_would_run_is_made_harmless_and_can_be_read_back() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "'=1", "＝1"] {
            assert_eq!(harmless(text), format!("'{text}"));
        }
        for text in ["", "R-1", "1=1", "é", "a;b", ";;", "a,=1", "a;1=1"] {
            assert_eq!(harmless(text), text);
        }
    }

    #[test]
    fn a_part_that_becomes_a_cell_where_spreadsheets_split_at_semicolons_is_made_harmless_too() {
        for (text, cell) in [
            ("a;=cmd|' /C calc'!A0;b", "a;'=cmd|' /C calc'!A0;b"),
            ("=1;+2;-3", "'=1;'+2;'-3"),
            ("a;'=1", "a;''=1"),
            ("a; =1", "a;' =1"),
            ("a;\"=1", "a;'\"=1"),
            (" =1", "' =1"),
            ("a;\t=1", r"a;\t=1"),
        ] {
            assert_eq!(harmless(text), cell);
            let back: Vec<&str> =
                cell.split(';').map(|part| part.strip_prefix('\'').unwrap_or(part)).collect();
            assert_eq!(back.join(";"), shown(text), "it cannot be read back");
        }
    }

    #[test]
    fn a_cell_commands_no_terminal_wherever_the_character_stands() {
        for (text, cell) in [("\t=1", r"\t=1"), ("B\u{1b}[2J", r"B\u{1b}[2J"), ("=\u{202e}", r"'=\u{202e}")] {
            assert_eq!(harmless(text), cell);
        }
    }
}
