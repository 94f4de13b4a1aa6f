//! Saves the lines of a file, or foresees what a save would do. Shows what is refused in the order of the file.

use std::collections::VecDeque;

use tokio::task::JoinHandle;

use super::COMMITS_AT_ONCE;
use super::dead::DeadRepeats;
use super::deciding::{self, CommitLines, DecidedLines, DoubtfulLine, LineResults};
use super::reading::Reading;
use super::repeats::Repeats;
use super::rooms::BacklogRooms;
use super::rows::{Row, texts};
use crate::cli::progress::ProgressDisplay;
use crate::cli::totals::Totals;
use crate::refund::draft::{card_numbers_refused, no_such_channel};
use crate::refund::text::{counted, shown};
use crate::refund::{NewRefund, card};
use crate::store::{NotSaved, SaveResult, Store, StoreError};

/// The results of the lines so far.
pub(super) struct Import<'a> {
    store: &'a Store,
    is_dry: bool,
    under_way: VecDeque<Commit>,
    /// In the last chunk no refund was saved before, so those of the next chunk are probably new, too.
    all_new: bool,
    pub saved: u64,
    already_saved: u64,
    pub dead: DeadRepeats,
    pub refused: u64,
    /// The lines of commits that failed, as the answer to a commit may be lost, and the lines that another transaction held, as it
    /// may save them.
    pub unsure: u64,
    /// Of the lines that can be read.
    pub totals: Totals,
    /// Of the lines that are saved, or would be.
    accepted: Totals,
    /// Of the lines that can be read and are refused.
    refused_totals: Totals,
    /// Refused lines without an amount that can be read.
    unreadable: u64,
    /// The channels of the configuration file.
    channels: Vec<String>,
    /// In a dry run, the lines that would be saved.
    repeats: Repeats,
    /// In a dry run, what these lines leave of the backlogs.
    rooms: BacklogRooms,
    progress: ProgressDisplay,
}

/// The lines of one commit: those that are wrong already, and those that Postgres decides about.
struct Commit {
    refused: Vec<(u64, String)>,
    /// Of the lines that Postgres decides about, without the doubtful ones.
    totals: Totals,
    task: JoinHandle<Result<DecidedLines, StoreError>>,
}

impl<'a> Import<'a> {
    pub(super) fn new(store: &'a Store, is_dry: bool, channels: Vec<String>) -> Self {
        Import {
            store,
            is_dry,
            under_way: VecDeque::new(),
            all_new: true,
            saved: 0,
            already_saved: 0,
            dead: DeadRepeats::default(),
            refused: 0,
            unsure: 0,
            totals: Totals::default(),
            accepted: Totals::default(),
            refused_totals: Totals::default(),
            unreadable: 0,
            channels,
            repeats: Repeats::default(),
            rooms: BacklogRooms::default(),
            progress: ProgressDisplay::new(),
        }
    }

    pub(super) async fn all(&mut self, reading: &mut Reading) -> Result<(), StoreError> {
        let mut saved = self.begin_all(reading).await;
        // After a failure, too: the other commit under way may be saved.
        while !self.under_way.is_empty() {
            let ended = self.end_one().await;
            saved = saved.and(ended);
        }
        self.progress.clear();
        saved
    }

    async fn begin_all(&mut self, reading: &mut Reading) -> Result<(), StoreError> {
        while let Some(rows) = reading.chunks.recv().await {
            if self.under_way.len() == COMMITS_AT_ONCE {
                self.end_one().await?;
            }
            self.begin(rows);
            let tally = self.tally();
            self.progress.show(|| format!("{}{tally}", reading.share()));
        }
        Ok(())
    }

    fn begin(&mut self, rows: Vec<Row>) {
        let mut commit = CommitLines::default();
        let (mut refused, mut totals) = (Vec::new(), Totals::default());
        for Row { line, lines, refund } in rows {
            match refund.map_err(|refused| DoubtfulLine::of(line, lines, refused)) {
                Ok(refund) => {
                    self.totals.add(&refund.money);
                    totals.add(&refund.money);
                    commit.numbers.push(line);
                    commit.refunds.push(refund);
                }
                Err(Ok(doubtful)) => commit.doubtful.push(doubtful),
                Err(Err(wrong)) => self.refuse_unread(line, lines, wrong, &mut refused),
            }
        }
        let store = self.store.clone();
        let task = if self.is_dry {
            tokio::spawn(deciding::foresee(store, commit))
        } else {
            tokio::spawn(deciding::save(store, commit, self.all_new))
        };
        self.under_way.push_back(Commit { refused, totals, task });
    }

    async fn end_one(&mut self) -> Result<(), StoreError> {
        let Some(Commit { mut refused, totals, task }) = self.under_way.pop_front() else { return Ok(()) };
        let decided = match task.await {
            Ok(decided) => decided,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let decided = match decided {
            Ok(decided) if self.is_dry => {
                self.rooms.look(&decided.results, self.store).await.map(|()| decided)
            }
            decided => decided,
        };
        let DecidedLines { results, doubtful } = match decided {
            Ok(decided) => decided,
            Err(error) => {
                if !self.is_dry {
                    self.unsure += totals.count();
                }
                self.show(&refused);
                return Err(error);
            }
        };
        for DoubtfulLine { line, lines, refund, wrong, saved } in doubtful {
            if let Some(state) = saved {
                self.dead.note(line, refund.refund_ref.as_str(), state);
                self.totals.add(&refund.money);
                self.already_saved += 1;
                self.accepted.add(&refund.money);
            } else {
                self.refuse_unread(line, lines, wrong, &mut refused);
            }
        }
        let judged = match results {
            LineResults::New(lines) => {
                self.saved += lines;
                self.accepted.add_all(&totals);
                Vec::new()
            }
            LineResults::Judged(lines) => lines,
        };
        self.all_new = judged.iter().all(|(.., result)| matches!(result, Ok(SaveResult::New)));
        for (line, refund, mut result) in judged {
            // A line that is refused here is compared with no later one, and takes no place.
            if self.is_dry
                && matches!(result, Ok(SaveResult::New))
                && !self.repeats.has(&refund)
                && let Some(max_backlog) = self.rooms.take(refund.channel.as_str())
            {
                result = Ok(SaveResult::Full { max_backlog });
            }
            let why = match result {
                Ok(SaveResult::New) => match self.is_dry.then(|| self.repeats.compare(&refund)).flatten() {
                    None => {
                        self.saved += 1;
                        self.accepted.add(&refund.money);
                        continue;
                    }
                    Some(differs) if differs.is_none() => {
                        self.already_saved += 1;
                        self.accepted.add(&refund.money);
                        continue;
                    }
                    Some(differs) => format!(
                        "refund_ref `{}` stands in an earlier line, with other content: {differs}",
                        refund.refund_ref
                    ),
                },
                Ok(SaveResult::Same { state }) => {
                    self.dead.note(line, refund.refund_ref.as_str(), state);
                    self.already_saved += 1;
                    self.accepted.add(&refund.money);
                    continue;
                }
                Ok(refusal) => self.refusal(&refund, refusal),
                Err(NotSaved::Locked) => {
                    self.unsure += 1;
                    refused.push((line, NotSaved::Locked.to_string()));
                    continue;
                }
                Err(why) => why.to_string(),
            };
            self.refused += 1;
            self.refused_totals.add(&refund.money);
            refused.push((line, why));
        }
        refused.sort_by_key(|(line, _)| *line);
        self.show(&refused);
        Ok(())
    }

    /// Counts a line that is refused before Postgres sees its refund.
    fn refuse_unread(&mut self, line: u64, lines: u64, wrong: Vec<String>, refused: &mut Vec<(u64, String)>) {
        self.refused += lines;
        self.unreadable += lines;
        refused.extend(wrong.into_iter().map(|wrong| (line, wrong)));
    }

    /// Why a save refuses a refund.
    fn refusal(&self, refund: &NewRefund, result: SaveResult) -> String {
        let (name, channel) = (&refund.refund_ref, refund.channel.as_str());
        match result {
            // Neither is a refusal.
            SaveResult::New | SaveResult::Same { .. } => String::new(),
            SaveResult::Conflict { id, differs } => {
                format!("refund_ref `{name}` is already refund {id}, with other content: {differs}")
            }
            SaveResult::NoSuchChannel => {
                let error = no_such_channel(channel, self.channels.iter().map(String::as_str));
                let (value, message) = (error.value.unwrap_or_default(), error.message);
                format!("channel {value}: {message}; `refundd status` lists the channels")
            }
            SaveResult::AboveBound(why) => format!("amount_minor {}: {why}", refund.money.amount_minor),
            SaveResult::CardNumbers(fields) => texts(card_numbers_refused(fields)).join("; "),
            SaveResult::Full { max_backlog } => {
                let most = counted(max_backlog.unsigned_abs(), "refund");
                let channel = card::masked(channel);
                let has = if self.is_dry { "has, with the lines before this one," } else { "already has" };
                format!("channel \"{channel}\": it {has} its max_backlog of {most} waiting; try later")
            }
        }
    }

    fn show(&mut self, refused: &[(u64, String)]) {
        if !refused.is_empty() {
            self.progress.clear();
        }
        for (line, why) in refused {
            eprintln!("line {line}: {}", shown(why));
        }
    }

    /// The control totals: a line for each currency of what is accepted, and one for all that is refused. `None` if the
    /// file has no amount.
    pub(super) fn control_totals(&self) -> Option<String> {
        let mut lines = self.accepted.parts();
        let mut refused = self.refused_totals.parts();
        if lines.is_empty() && refused.is_empty() {
            return None;
        }
        if self.unreadable > 0 {
            refused.push(format!("{} without a readable amount", counted(self.unreadable, "line")));
        }
        if !refused.is_empty() {
            lines.push(format!("Refused, and not in the totals: {}", refused.join("; ")));
        }
        Some(lines.join("\n"))
    }

    /// Whether the file had no line with a refund.
    pub(super) fn is_empty(&self) -> bool {
        self.saved + self.already_saved + self.refused + self.unsure == 0
    }

    pub(super) fn tally(&self) -> String {
        let Import { saved, already_saved, refused, unsure, .. } = self;
        if self.is_dry {
            return format!(
                "{saved} would be saved, {already_saved} were saved before, {refused} would be refused; nothing was changed"
            );
        }
        let sure = format!("{saved} saved, {already_saved} were saved before, {refused} refused");
        if *unsure == 0 { sure } else { format!("at least {sure}; up to {unsure} more may be saved") }
    }
}
