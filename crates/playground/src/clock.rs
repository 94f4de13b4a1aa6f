//! A wall clock of a server that can be stepped while the server runs.
//!
//! libfaketime stands between the server and the C library. It reads an offset from a file and adds it to every
//! reading of the wall clock. The file is in the server's folder, so the clock keeps its setting when the server is
//! restarted, as a machine's clock does.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jiff::SignedDuration;

use crate::lock::locked;
use crate::{PlaygroundError, find};

const SCRIPT: &str = include_str!("clock.sh");

#[derive(Debug)]
pub(crate) struct Clock {
    library: PathBuf,
    folder: PathBuf,
    /// How far the clock is ahead of the machine's clock.
    ahead: Mutex<SignedDuration>,
}

impl Clock {
    pub(crate) fn new(folder: &Path) -> Result<Clock, PlaygroundError> {
        let library = find::faketime()?;
        Ok(Clock { library, folder: folder.to_owned(), ahead: Mutex::new(SignedDuration::ZERO) })
    }

    /// The command line that starts a server under this clock.
    pub(crate) fn launch(&self, socket: &Path, server: Vec<String>) -> Vec<String> {
        let shell = ["/bin/sh", "-c", SCRIPT, "refundd-clock"].map(String::from);
        let files = [&*self.library, socket].map(|path| path.display().to_string());
        shell.into_iter().chain(files).chain(server).collect()
    }

    pub(crate) fn ahead(&self) -> SignedDuration {
        *locked(&self.ahead)
    }

    /// Sets the clock this far ahead of the machine's clock. The server sees it when it next reads the time.
    pub(crate) fn set(&self, ahead: SignedDuration) -> std::io::Result<()> {
        // Renamed into place, because the server may read the file at any moment.
        let (new, file) = (self.folder.join("clock.new"), self.folder.join("clock"));
        std::fs::write(&new, format!("{:+.6}\n", ahead.as_secs_f64()))?;
        std::fs::rename(new, file)?;
        *locked(&self.ahead) = ahead;
        Ok(())
    }
}
