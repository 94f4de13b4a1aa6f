//! Watches how late this machine is: how late a timer fires, and how long a small write takes to reach the disk.
//!
//! A busy machine delays the nodes and Postgres's commits as well, and that is no fault of theirs.

use std::io::{Seek, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::rig::now_us;

/// Every stall of the run so far.
#[derive(Debug, Clone, Default)]
pub struct Stalls(Arc<Mutex<Vec<(i64, Duration)>>>);

impl Stalls {
    const EVERY: Duration = Duration::from_millis(50);

    /// Begins to watch, in a thread that ends with the process.
    pub fn watch() -> anyhow::Result<Stalls> {
        let (stalls, mut file) = (Stalls::default(), tempfile::tempfile()?);
        let kept = stalls.clone();
        std::thread::Builder::new().name("stalls".to_owned()).spawn(move || {
            loop {
                let began = Instant::now();
                #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
                std::thread::sleep(Self::EVERY);
                let written =
                    file.rewind().and_then(|()| file.write_all(b"late?")).and_then(|()| file.sync_data());
                let late = began.elapsed().saturating_sub(Self::EVERY);
                if written.is_err() {
                    return;
                }
                kept.0.lock().unwrap_or_else(PoisonError::into_inner).push((now_us(), late));
            }
        })?;
        Ok(stalls)
    }

    /// The longest stall that ended between these times.
    pub fn longest(&self, from_us: i64, until_us: i64) -> Duration {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let within = all.iter().filter(|(at, _)| (from_us..until_us).contains(at));
        within.map(|(_, late)| *late).max().unwrap_or_default()
    }
}
