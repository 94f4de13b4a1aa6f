//! A wall clock that can be stepped while its server runs.
//!
//! libfaketime stands between the server and the C library and adds to every reading of the wall clock
//! what a file says. The clock belongs to the server's folder, not to its process: it keeps its setting
//! when the server is killed and restarted, as a machine's clock does.

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
    /// How far it is ahead of the machine's.
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

    /// Sets the clock this far ahead of the machine's; it shows at the server's next look.
    pub(crate) fn set(&self, ahead: SignedDuration) -> std::io::Result<()> {
        // Moved into place whole, because it is read at every look.
        let (new, file) = (self.folder.join("clock.new"), self.folder.join("clock"));
        std::fs::write(&new, format!("{:+.6}\n", ahead.as_secs_f64()))?;
        std::fs::rename(new, file)?;
        *locked(&self.ahead) = ahead;
        Ok(())
    }
}
