//! A wall clock of a server or a node that can be stepped while the program runs.
//!
//! libfaketime stands between the program and the C library. It reads an offset from a file and adds it to every
//! reading of the wall clock. The file of a server is in its folder, so the clock keeps its setting when the server is
//! restarted, as a machine's clock does.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jiff::SignedDuration;

use crate::lock::locked;
use crate::{PlaygroundError, find};

const SCRIPT: &str = include_str!("clock.sh");

/// A wall clock of its own for one program.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    folder: PathBuf,
    /// How far the clock is ahead of the machine's clock.
    ahead: Mutex<SignedDuration>,
}

impl Clock {
    /// A clock whose setting is in a file of this folder. Set it before a program starts under it.
    pub fn new(folder: &Path) -> Result<Clock, PlaygroundError> {
        let library = find::faketime()?;
        Ok(Clock { library, folder: folder.to_owned(), ahead: Mutex::new(SignedDuration::ZERO) })
    }

    /// What the environment of a program holds that runs under this clock. The monotonic clock is left alone.
    pub fn environment(&self) -> [(&'static str, String); 6] {
        [
            // The C library is preloaded as well, so that memory comes from it. Otherwise jemalloc asks for the time
            // while it starts, libfaketime asks for memory before it answers, and each waits for the other for ever.
            ("LD_PRELOAD", format!("{}:libc.so.6", self.library.display())),
            ("FAKETIME_TIMESTAMP_FILE", self.folder.join("clock").display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
    }

    /// The command line that starts a server under this clock.
    pub(crate) fn launch(&self, socket: &Path, server: Vec<String>) -> Vec<String> {
        let shell = ["/bin/sh", "-c", SCRIPT, "refundd-clock"].map(String::from);
        let environment = self.environment().map(|(name, value)| format!("{name}={value}"));
        shell.into_iter().chain([socket.display().to_string()]).chain(environment).chain(server).collect()
    }

    pub(crate) fn ahead(&self) -> SignedDuration {
        *locked(&self.ahead)
    }

    /// Sets the clock this far ahead of the machine's clock. The program sees it when it next reads the time.
    pub fn set(&self, ahead: SignedDuration) -> std::io::Result<()> {
        // Renamed into place, because the program may read the file at any moment.
        let (new, file) = (self.folder.join("clock.new"), self.folder.join("clock"));
        std::fs::write(&new, format!("{:+.6}\n", ahead.as_secs_f64()))?;
        std::fs::rename(new, file)?;
        *locked(&self.ahead) = ahead;
        Ok(())
    }
}
