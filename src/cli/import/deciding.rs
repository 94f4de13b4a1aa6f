//! Asks Postgres about the lines of one commit: it saves them, or foresees what a save would do.
//!
//! A line that a rule refuses is looked up, too. Rules become stricter, so its refund may be saved already. A person who reads
//! "refused" may pay it in another way.

use super::rows::RefusedLine;
use crate::refund::{NewRefund, State};
use crate::store::{NotSaved, SaveResult, Store, StoreError};

/// How often the lines of one commit are saved together while another transaction holds some of them. After that, those are set
/// apart.
const LOCK_TRIES: u32 = 4;

/// The lines of one commit.
#[derive(Debug, Default)]
pub(super) struct CommitLines {
    /// The number of each line that has a refund.
    pub numbers: Vec<u64>,
    /// Their refunds, in the same order.
    pub refunds: Vec<NewRefund>,
    pub doubtful: Vec<DoubtfulLine>,
}

/// A line that a rule refuses, and whose refund may be saved already.
#[derive(Debug)]
pub(super) struct DoubtfulLine {
    pub line: u64,
    /// How many lines of the file it has.
    pub lines: u64,
    pub refund: NewRefund,
    /// All problems of the line.
    pub wrong: Vec<String>,
    /// The state of the refund, if an earlier call saved it with the same content.
    pub saved: Option<State>,
}

impl DoubtfulLine {
    /// The doubtful line, or the problems of a line that has no refund.
    pub fn of(line: u64, lines: u64, refused: RefusedLine) -> Result<Self, Vec<String>> {
        match refused {
            RefusedLine { wrong, readable: None } => Err(wrong),
            RefusedLine { wrong, readable: Some(refund) } => {
                Ok(DoubtfulLine { line, lines, refund: *refund, wrong, saved: None })
            }
        }
    }
}

/// What became of the lines of one commit.
pub(super) struct DecidedLines {
    pub results: LineResults,
    pub doubtful: Vec<DoubtfulLine>,
}

pub(super) enum LineResults {
    /// This many lines, and all of them are saved now.
    New(u64),
    /// Each line with its result, or with the reason why Postgres did not take it.
    Judged(Vec<(u64, NewRefund, Result<SaveResult, NotSaved>)>),
}

pub(super) async fn foresee(store: Store, commit: CommitLines) -> Result<DecidedLines, StoreError> {
    let CommitLines { numbers, refunds, mut doubtful } = commit;
    look_up(&store, &mut doubtful).await?;
    let results = store.foresee(&refunds).await?;
    Ok(DecidedLines { results: judged(numbers, refunds, results.into_iter().map(Ok)), doubtful })
}

/// Saves the lines. With `all_new` they are probably new, and `COPY` is tried first.
pub(super) async fn save(
    store: Store,
    commit: CommitLines,
    all_new: bool,
) -> Result<DecidedLines, StoreError> {
    let CommitLines { numbers, refunds, mut doubtful } = commit;
    look_up(&store, &mut doubtful).await?;
    if all_new && store.copy(&refunds).await? {
        return Ok(DecidedLines { results: LineResults::New(refunds.len() as u64), doubtful });
    }
    // An import works through a file on connections of its own, so the database may refuse any number.
    let results = store.save_each(&refunds, LOCK_TRIES, usize::MAX).await?;
    let results = results.into_iter().map(|saved| saved.map(|saved| saved.result()));
    Ok(DecidedLines { results: judged(numbers, refunds, results), doubtful })
}

/// Notes which of these lines are saved already.
async fn look_up(store: &Store, doubtful: &mut [DoubtfulLine]) -> Result<(), StoreError> {
    if doubtful.is_empty() {
        return Ok(());
    }
    let refunds: Vec<NewRefund> = doubtful.iter().map(|line| line.refund.clone()).collect();
    for (place, saved) in store.saved_before(&refunds).await? {
        doubtful[place].saved = Some(saved.state);
    }
    Ok(())
}

fn judged(
    numbers: Vec<u64>,
    refunds: Vec<NewRefund>,
    results: impl IntoIterator<Item = Result<SaveResult, NotSaved>>,
) -> LineResults {
    let judged = numbers.into_iter().zip(refunds).zip(results);
    LineResults::Judged(judged.map(|((number, refund), result)| (number, refund, result)).collect())
}
