//! Reads a file in a thread of its own, beside the commits.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use tokio::sync::mpsc;

use super::rows::{self, FileFormat, Row};
use crate::config::Config;

/// A file that is being read.
pub(super) struct Reading {
    pub chunks: mpsc::Receiver<Vec<Row>>,
    thread: JoinHandle<anyhow::Result<()>>,
    /// The bytes read so far, and all bytes; `None` for standard input.
    bytes: Option<(Arc<AtomicU64>, u64)>,
}

impl Reading {
    /// Begins to read. `ahead` chunks of `at_once` refunds may wait.
    pub(super) fn begin(
        file: &Path,
        format: FileFormat,
        config: &Config,
        at_once: usize,
        ahead: usize,
    ) -> Self {
        let (outbox, chunks) = mpsc::channel(ahead);
        let size = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
        let read = Arc::new(AtomicU64::new(0));
        let (path, config, count) = (file.to_owned(), config.clone(), Arc::clone(&read));
        let thread = std::thread::spawn(move || {
            let shown =
                if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
            let file = open(&path, count).with_context(|| format!("failed to open {shown}"))?;
            rows::read(file, format, at_once, &config, &outbox)
                .with_context(|| format!("failed to read {shown}"))
        });
        Reading { chunks, thread, bytes: size.map(|size| (read, size.max(1))) }
    }

    /// How much of the file was read, such as `47 %: `; nothing for standard input.
    pub(super) fn share(&self) -> String {
        let share = |(read, size): &(Arc<AtomicU64>, u64)| {
            format!("{} %: ", (read.load(Ordering::Relaxed) * 100 / size).min(100))
        };
        self.bytes.as_ref().map(share).unwrap_or_default()
    }

    /// Ends the reading, also in the middle, and answers whether all was read.
    pub(super) fn end(self) -> anyhow::Result<()> {
        drop(self.chunks);
        self.thread.join().map_err(|_| anyhow!("the thread that reads panicked"))?
    }
}

fn open(file: &Path, count: Arc<AtomicU64>) -> std::io::Result<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    Ok(Box::new(BufReader::new(Counted { file: File::open(file)?, count })))
}

/// A file that counts the bytes that were read of it.
struct Counted {
    file: File,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
