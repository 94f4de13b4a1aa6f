//! Saves the lines of a file, or foresees what a save would do. Shows what is refused in the order of the file.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::task::JoinHandle;

use super::COMMITS_AT_ONCE;
use super::reading::Reading;
use super::rows::Row;
use super::totals::Totals;
use crate::cli::progress::ProgressDisplay;
use crate::refund::NewRefund;
use crate::refund::text::shown;
use crate::store::{SaveResult, Saved, Store, StoreError};

/// The results of the lines so far.
pub(super) struct Import<'a> {
    store: &'a Store,
    is_dry: bool,
    under_way: VecDeque<Commit>,
    /// In the last chunk no refund was saved before, so those of the next chunk are probably new, too.
    all_new: bool,
    saved: u64,
    already_saved: u64,
    pub refused: u64,
    /// Of the lines that are right.
    pub totals: Totals,
    /// In a dry run, the refs so far, each with its content; as hashes, because a file may have millions.
    seen: HashMap<u64, u64>,
    progress: ProgressDisplay,
}

/// The lines of one commit: those that are wrong already, and those that Postgres decides about.
struct Commit {
    refused: Vec<(u64, String)>,
    task: JoinHandle<Result<Chunk, StoreError>>,
}

enum Chunk {
    /// This many lines, and all of them are saved now.
    New(u64),
    /// Each line with its ref and its result.
    Judged(Vec<(u64, String, SaveResult)>),
}

impl<'a> Import<'a> {
    pub(super) fn new(store: &'a Store, is_dry: bool) -> Self {
        Import {
            store,
            is_dry,
            under_way: VecDeque::new(),
            all_new: true,
            saved: 0,
            already_saved: 0,
            refused: 0,
            totals: Totals::default(),
            seen: HashMap::new(),
            progress: ProgressDisplay::new(),
        }
    }

    pub(super) async fn all(&mut self, reading: &mut Reading) -> Result<(), StoreError> {
        while let Some(rows) = reading.chunks.recv().await {
            if self.under_way.len() == COMMITS_AT_ONCE {
                self.end_one().await?;
            }
            self.begin(rows);
            let tally = self.tally();
            self.progress.show(|| format!("{}{tally}", reading.share()));
        }
        while !self.under_way.is_empty() {
            self.end_one().await?;
        }
        self.progress.clear();
        Ok(())
    }

    fn begin(&mut self, rows: Vec<Row>) {
        let mut lines = Vec::with_capacity(rows.len());
        let mut refunds = Vec::with_capacity(rows.len());
        let mut refused = Vec::new();
        for row in rows {
            match row.refund {
                Ok(refund) => {
                    self.totals.add(&refund.money);
                    match self.is_dry.then(|| self.is_repeated(&refund)).flatten() {
                        None => {
                            lines.push(row.line);
                            refunds.push(refund);
                        }
                        Some(true) => self.already_saved += 1,
                        Some(false) => {
                            self.refused += 1;
                            let name = &refund.refund_ref;
                            let why =
                                format!("refund_ref `{name}` stands in an earlier line, with other content");
                            refused.push((row.line, why));
                        }
                    }
                }
                Err(wrong) => {
                    self.refused += 1;
                    refused.extend(wrong.into_iter().map(|wrong| (row.line, wrong)));
                }
            }
        }
        let store = self.store.clone();
        let task = if self.is_dry {
            tokio::spawn(foresee(store, lines, refunds))
        } else {
            tokio::spawn(save(store, lines, refunds, self.all_new))
        };
        self.under_way.push_back(Commit { refused, task });
    }

    /// Whether an earlier line of a dry run has this ref with the same content; `None` if no earlier line has the ref.
    fn is_repeated(&mut self, refund: &NewRefund) -> Option<bool> {
        let NewRefund { refund_ref, channel, payment_ref, money, payload, .. } = refund;
        let content = (channel.as_str(), payment_ref, money.amount_minor, &money.currency);
        let payload = payload.as_ref().map(ToString::to_string);
        let content = hash(&(content, payload));
        self.seen.insert(hash(refund_ref), content).map(|earlier| earlier == content)
    }

    async fn end_one(&mut self) -> Result<(), StoreError> {
        let Some(Commit { mut refused, task }) = self.under_way.pop_front() else { return Ok(()) };
        let chunk = match task.await {
            Ok(chunk) => chunk,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let judged = match chunk {
            Ok(Chunk::New(lines)) => {
                self.saved += lines;
                Vec::new()
            }
            Ok(Chunk::Judged(lines)) => lines,
            Err(error) => {
                self.show(&refused);
                return Err(error);
            }
        };
        self.all_new = judged.iter().all(|(.., result)| *result == SaveResult::New);
        for (line, name, result) in judged {
            let why = match result {
                SaveResult::New => {
                    self.saved += 1;
                    continue;
                }
                SaveResult::Same => {
                    self.already_saved += 1;
                    continue;
                }
                SaveResult::Conflict { id } => {
                    format!("refund_ref `{name}` is already refund {id}, with other content")
                }
                SaveResult::NoSuchChannel => {
                    "channel: no node runs it; `refundd status` lists the channels".to_owned()
                }
                SaveResult::Full { max_backlog } => {
                    format!(
                        "channel: it already has its max_backlog of {max_backlog} refunds waiting; try later"
                    )
                }
            };
            self.refused += 1;
            refused.push((line, why));
        }
        refused.sort_by_key(|(line, _)| *line);
        self.show(&refused);
        Ok(())
    }

    fn show(&mut self, refused: &[(u64, String)]) {
        if !refused.is_empty() {
            self.progress.clear();
        }
        for (line, why) in refused {
            eprintln!("line {line}: {}", shown(why));
        }
    }

    /// Whether the file had no line with a refund.
    pub(super) fn is_empty(&self) -> bool {
        self.saved + self.already_saved + self.refused == 0
    }

    pub(super) fn tally(&self) -> String {
        let Import { saved, already_saved, refused, .. } = self;
        if self.is_dry {
            return format!(
                "{saved} would be saved, {already_saved} were saved before, {refused} would be refused; nothing was changed"
            );
        }
        format!("{saved} saved, {already_saved} were saved before, {refused} refused")
    }
}

async fn foresee(store: Store, lines: Vec<u64>, refunds: Vec<NewRefund>) -> Result<Chunk, StoreError> {
    let results = store.foresee(&refunds).await?;
    Ok(judged(lines, refunds, results))
}

async fn save(
    store: Store,
    lines: Vec<u64>,
    refunds: Vec<NewRefund>,
    all_new: bool,
) -> Result<Chunk, StoreError> {
    if all_new && store.copy(&refunds).await? {
        return Ok(Chunk::New(refunds.len() as u64));
    }
    let mut saved = store.save(&refunds).await;
    // Another commit saves some of the same refs in another order. It will end soon.
    for _ in 0..3 {
        if saved.as_ref().is_err_and(StoreError::is_a_lock) {
            saved = store.save(&refunds).await;
        }
    }
    Ok(judged(lines, refunds, saved?.iter().map(Saved::result)))
}

fn judged(lines: Vec<u64>, refunds: Vec<NewRefund>, results: impl IntoIterator<Item = SaveResult>) -> Chunk {
    let refs = refunds.into_iter().map(|refund| refund.refund_ref);
    let judged = lines.into_iter().zip(refs).zip(results).map(|((line, name), result)| (line, name, result));
    Chunk::Judged(judged.collect())
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
