//! `refundd import`: saves a file of refunds, thousands in one commit, under the same rules as HTTP.
//!
//! The command does not stop at a wrong line, and undoes nothing.

mod rows;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::rows::{FileFormat, Row};
use crate::config::Config;
use crate::refund::text::shown;
use crate::store::{Saved, Store, StoreError};

#[cfg(any(test, feature = "fuzzing"))]
pub use self::rows::rows_of_csv;

const REFUNDS_IN_A_COMMIT: usize = 5_000;
/// While Postgres writes one commit to disk, the import prepares the next.
const COMMITS_AT_ONCE: usize = 2;
/// How often progress is printed.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
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
}

const HELP: &str = "\
CSV: the first line names the columns, in any order: refund_ref, channel, payment_ref, amount_minor, currency \
and, if wanted, payload (JSON), due_at, deadline_at. An empty cell is a field left out. NDJSON: one refund a \
line, as HTTP takes it.

Standard error shows the problems of a wrong line with the line's number; all other lines are saved. The whole \
file may be imported again: refunds that are saved are not saved twice. Exit code 1 if a line was refused.";

pub(super) async fn import(args: Args, config: &Config) -> anyhow::Result<ExitCode> {
    let store = super::store(config).await?;
    let config = config.clone();
    let format = args.format.map_or_else(|| FileFormat::of(&args.file), Ok)?;
    let path = args.file.display().to_string();
    let (outbox, mut chunks) = mpsc::channel(COMMITS_AT_ONCE);
    let reader = std::thread::spawn(move || {
        rows::read(open(&args.file)?, format, REFUNDS_IN_A_COMMIT, &config, &outbox)
    });
    let mut import = Import::new(&store);
    let saved = import.all(&mut chunks).await;
    drop(chunks);
    let read = reader.join().map_err(|_| anyhow!("reading {path} panicked"))?;
    println!("{}", import.tally());
    saved
        .map_err(|error| anyhow!(error))
        .with_context(|| format!("not all of {path} was saved; {IMPORT_AGAIN}"))?;
    read.with_context(|| format!("not all of {path} was read; {IMPORT_AGAIN}"))?;
    Ok(if import.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn open(file: &Path) -> std::io::Result<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    Ok(Box::new(BufReader::new(File::open(file)?)))
}

/// The results of the lines so far.
struct Import<'a> {
    store: &'a Store,
    under_way: VecDeque<JoinHandle<Result<Chunk, StoreError>>>,
    /// In the last chunk no refund was saved before, so those of the next chunk are probably new, too.
    all_new: bool,
    saved: u64,
    already_saved: u64,
    refused: u64,
    last_progress: Instant,
}

/// The lines of one commit.
enum Chunk {
    /// This many lines, and all of them are saved now.
    New(u64),
    /// Each line with its ref and its result.
    Judged(Vec<(u64, String, Saved)>),
}

impl<'a> Import<'a> {
    fn new(store: &'a Store) -> Self {
        Import {
            store,
            under_way: VecDeque::new(),
            all_new: true,
            saved: 0,
            already_saved: 0,
            refused: 0,
            last_progress: Instant::now(),
        }
    }

    async fn all(&mut self, chunks: &mut mpsc::Receiver<Vec<Row>>) -> Result<(), StoreError> {
        while let Some(rows) = chunks.recv().await {
            if self.under_way.len() == COMMITS_AT_ONCE {
                self.end_one().await?;
            }
            self.begin(rows);
        }
        while !self.under_way.is_empty() {
            self.end_one().await?;
        }
        Ok(())
    }

    fn begin(&mut self, rows: Vec<Row>) {
        let mut lines = Vec::with_capacity(rows.len());
        let mut refunds = Vec::with_capacity(rows.len());
        for row in rows {
            match row.refund {
                Ok(refund) => {
                    lines.push(row.line);
                    refunds.push(refund);
                }
                Err(wrong) => {
                    self.refused += 1;
                    for wrong in wrong {
                        eprintln!("line {}: {}", row.line, shown(&wrong));
                    }
                }
            }
        }
        let (store, all_new) = (self.store.clone(), self.all_new);
        self.under_way.push_back(tokio::spawn(async move {
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
            let refs = refunds.into_iter().map(|refund| refund.refund_ref);
            let judged =
                lines.into_iter().zip(refs).zip(saved?).map(|((line, name), saved)| (line, name, saved));
            Ok(Chunk::Judged(judged.collect()))
        }));
    }

    async fn end_one(&mut self) -> Result<(), StoreError> {
        let Some(commit) = self.under_way.pop_front() else { return Ok(()) };
        let chunk = match commit.await {
            Ok(chunk) => chunk?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let judged = match chunk {
            Chunk::New(lines) => {
                self.saved += lines;
                Vec::new()
            }
            Chunk::Judged(lines) => lines,
        };
        self.all_new = judged.iter().all(|(.., saved)| matches!(saved, Saved::Created(_)));
        for (line, name, saved) in judged {
            let wrong = match saved {
                Saved::Created(_) => {
                    self.saved += 1;
                    continue;
                }
                Saved::Same(_) => {
                    self.already_saved += 1;
                    continue;
                }
                Saved::Conflict { id } => {
                    format!("refund_ref `{name}` is already refund {id}, with other content")
                }
                Saved::NoSuchChannel => {
                    "channel: no node runs it; `refundd status` lists the channels".to_owned()
                }
                Saved::Full { max_backlog } => {
                    format!(
                        "channel: it already has its max_backlog of {max_backlog} refunds waiting; try later"
                    )
                }
            };
            self.refused += 1;
            eprintln!("line {line}: {}", shown(&wrong));
        }
        if stderr().is_terminal() && self.last_progress.elapsed() > PROGRESS_EVERY {
            self.last_progress = Instant::now();
            eprintln!("{}", self.tally());
        }
        Ok(())
    }

    fn tally(&self) -> String {
        format!("{} saved, {} were saved before, {} refused", self.saved, self.already_saved, self.refused)
    }
}
