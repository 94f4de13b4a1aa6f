//! The priority that journald gives to a log line.
//!
//! A line that begins with `<4>` has the priority *warning*: systemd reads the prefix and removes it (sd-daemon(3)). Without
//! prefixes all lines would have one priority, and `journalctl -p warning` would find no warning.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use tracing::Level;

/// Whether standard output leads to the journal. `JOURNAL_STREAM` alone does not say so: a program that is started by a unit
/// inherits the variable, and its output may go elsewhere.
pub(super) fn stdout_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stdout = io::stdout().as_fd().try_clone_to_owned().and_then(|stdout| File::from(stdout).metadata());
    stdout.is_ok_and(|stdout| is_stream(&stream, stdout.dev(), stdout.ino()))
}

/// Whether `JOURNAL_STREAM` names this file: its device and its inode, as decimal numbers with a colon between (systemd.exec(5)).
fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    let named = stream.split_once(':').map(|(device, inode)| (device.parse().ok(), inode.parse().ok()));
    named == Some((Some(device), Some(inode)))
}

/// The prefix of a level, with the priorities of syslog.
pub(super) fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// These lines, each with the prefix: journald reads it anew in each line of a text.
pub(super) fn with_prefix(prefix: &str, text: &[u8]) -> Vec<u8> {
    text.split_inclusive(|byte| *byte == b'\n')
        .flat_map(|line| [prefix.as_bytes(), line])
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_priority_of_its_level_and_is_otherwise_as_it_was() {
        for (level, line) in [
            (Level::ERROR, "<3>{\"a\":1}\n"),
            (Level::WARN, "<4>{\"a\":1}\n"),
            (Level::INFO, "<6>{\"a\":1}\n"),
            (Level::DEBUG, "<7>{\"a\":1}\n"),
            (Level::TRACE, "<7>{\"a\":1}\n"),
        ] {
            assert_eq!(with_prefix(prefix(level), b"{\"a\":1}\n"), line.as_bytes());
        }
        assert_eq!(with_prefix("<4>", b"one\ntwo\n\nfour"), b"<4>one\n<4>two\n<4>\n<4>four");
        assert_eq!(with_prefix("<4>", b""), b"");
    }

    #[test]
    fn only_the_file_that_the_variable_names_is_the_journal() {
        assert!(is_stream("8:1234", 8, 1234));
        for stream in ["8:1235", "9:1234", "8", "", "8:", ":", "8:1234:5", "a:b"] {
            assert!(!is_stream(stream, 8, 1234), "{stream}");
        }
    }
}
