//! Reads the configuration file for a node that runs already. A file that is being written is not taken over.
//!
//! Many files that were cut off meet every requirement. So the text must stay as it is for a moment, and a reload may not
//! remove what a node never loses on purpose.

use std::path::Path;
use std::time::Duration;

use super::config_file::ConfigFile;
use super::{Config, ConfigError};

/// How long the text must stay as it is.
const PAUSE: Duration = Duration::from_millis(100);

impl Config {
    /// Reads the file at `path` as [`Config::load`] does, twice, with a pause of 100 ms. It blocks its thread meanwhile. A
    /// pipe gives its text only once, so it is read once.
    ///
    /// # Errors
    /// Those of [`Config::load`], and [`ConfigError::Changing`] when the second text is another one.
    pub fn load_settled(path: &Path) -> Result<Config, ConfigError> {
        let file = ConfigFile::open(path)?;
        if file.mode.is_some() {
            pause();
            if ConfigFile::open(path)?.text != file.text {
                return Err(ConfigError::Changing { path: path.to_owned() });
            }
        }
        Self::parse_part(&file, &Self::variable, Self::read)
    }

    /// Why a node that runs this configuration refuses `new`, although `new` meets every requirement.
    #[must_use]
    pub fn refuses(&self, new: &Config) -> Option<&'static str> {
        if new.callers.is_empty() && !self.callers.is_empty() {
            return Some(
                "the file has no [caller.NAME] any more, so every program that reaches the node could do everything; if the file was \
                 cut off, write it again; to run without callers, restart the node",
            );
        }
        if new.channels.is_empty() && !self.channels.is_empty() {
            return Some(
                "the file has no [channel.NAME] any more, so the node would send nothing; if the file was cut off, write it again; \
                 to stop sending, use `refundd pause`; to run without channels, restart the node",
            );
        }
        None
    }
}

#[expect(clippy::disallowed_methods, reason = "a reload reads on a thread of its own")]
fn pause() {
    std::thread::sleep(PAUSE);
}
