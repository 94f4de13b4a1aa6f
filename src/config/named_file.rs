//! Reads the files that a configuration names: secrets, certificates and keys.
//!
//! It does not read the configuration file itself, which may come through a pipe.
//!
//! A node reads these files while it works. So it opens no pipe that nobody writes to, and reads no file without end.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// More than every list of roots and of tokens has.
const MAX_BYTES: u64 = 1024 * 1024;

/// An open regular file. Its name may be a symbolic link.
pub(super) struct NamedFile {
    file: File,
    /// The mode of the opened file: the name may lead to another file a moment later.
    pub(super) mode: u32,
}

impl NamedFile {
    /// # Errors
    /// When the file cannot be opened, or is a folder, a pipe, a socket or a device.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Without NONBLOCK, a pipe opens only when somebody writes to it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        Ok(NamedFile { file, mode: metadata.mode() & 0o7777 })
    }

    /// # Errors
    /// When the file cannot be read, or has more than 1 MiB.
    pub(super) fn bytes(self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut bounded = self.file.take(MAX_BYTES + 1);
        bounded.read_to_end(&mut bytes)?;
        if bounded.limit() == 0 {
            return Err(io::Error::other("it has more than 1 MiB"));
        }
        Ok(bytes)
    }

    /// # Errors
    /// Those of [`NamedFile::bytes`], and when the file is not UTF-8.
    pub(super) fn text(self) -> io::Result<String> {
        // The error of the conversion holds the bytes of the secret, so it is left out.
        String::from_utf8(self.bytes()?)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
    }
}
