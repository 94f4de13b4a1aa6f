//! Reads the configuration file itself, and looks at its mode: it may hold secrets.
//!
//! The file may come through a pipe. A pipe has no mode that counts, since only processes of its user open it.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::complaint::ConfigError;
use super::field::Field;
use super::source::Source;

pub(super) struct ConfigFile {
    pub(super) text: String,
    /// Its name for people.
    pub(super) name: String,
    /// Its mode, if it is a regular file.
    pub(super) mode: Option<u32>,
}

impl ConfigFile {
    /// # Errors
    /// [`ConfigError::Read`].
    pub(super) fn open(path: &Path) -> Result<Self, ConfigError> {
        let (text, mode) =
            read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Ok(ConfigFile { text, name: path.display().to_string(), mode })
    }
}

fn read(path: &Path) -> io::Result<(String, Option<u32>)> {
    let file = File::open(path)?;
    // Of the opened file: the name may lead to another one a moment later.
    let metadata = file.metadata()?;
    let mode = metadata.is_file().then(|| metadata.mode() & 0o7777);
    Ok((io::read_to_string(file)?, mode))
}

/// Complains about a field that has a password in a file to which others have rights. Its group may read it: the package
/// lets the service's group do so. The variable and the credential are other places for the address.
pub(super) fn require_closed_file(
    source: &Source<'_>,
    field: &mut Field<String>,
    variable: &str,
    credential: &str,
) {
    let is_open = |mode: &u32| mode & 0o007 != 0 && !source.is_credential(Path::new(source.file));
    let open = source.mode.filter(is_open);
    field.require(source, open.is_none(), || {
        let (file, mode) = (source.file, open.unwrap_or_default());
        format!(
            "has a password, and others than its owner and its group have rights to the configuration file {file}: its \
             mode is {mode:04o}; run `chgrp GROUP {file} && chmod 640 {file}` with a group of the node's user, or move the \
             address into a file with the mode 600 that `url_file` names; where a read-only mount sets the modes, move it into \
             the environment variable `{variable}` or the systemd credential `{credential}`"
        )
    });
}
