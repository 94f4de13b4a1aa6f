//! Standard output of the commands, which may be a closed pipe or a full disk.
//!
//! A command goes on when its output cannot be written: it may be in the middle of a change, and its exit code must
//! stay true. A reader that left, as `head` does, has read enough: that is no failure. Any other failure
//! becomes exit code 1.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// The first failure to write. It belongs to the process, as standard output does.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Writes to standard output, unless that failed before.
pub(super) fn write(text: Arguments<'_>) {
    if FAILURE.get().is_none() {
        note(io::stdout().write_fmt(text));
    }
}

/// Writes to standard error.
pub(super) fn complain(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Keeps the first failure.
pub(super) fn note(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = FAILURE.set(error);
    }
}

/// Hands on what was written so far, so that a failure shows.
pub(super) fn flush() {
    note(io::stdout().flush());
}

/// Whether nobody gets what is written from now on. A command that only shows something may stop.
pub(super) fn is_lost() -> bool {
    FAILURE.get().is_some()
}

/// The exit code of a command that wrote all that it could.
pub(super) fn exit_code(done: ExitCode) -> ExitCode {
    flush();
    match FAILURE.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(format_args!("refundd: failed to write to standard output: {error}\n"));
            ExitCode::FAILURE
        }
        _ => done,
    }
}

/// Writes a line to standard output. The standard library's own `println!` panics when nobody reads it, as in
/// `refundd review | head`, and when the disk is full. The name is the same, so that no command can forget it.
macro_rules! println {
    () => { $crate::cli::output::write(::std::format_args!("\n")) };
    ($($part:tt)*) => { $crate::cli::output::write(::std::format_args!("{}\n", ::std::format_args!($($part)*))) };
}

/// Writes to standard output, as `println!` does.
macro_rules! print {
    ($($part:tt)*) => { $crate::cli::output::write(::std::format_args!($($part)*)) };
}

/// Writes a line to standard error. If nobody reads it, there is nobody to tell.
macro_rules! eprintln {
    ($($part:tt)*) => { $crate::cli::output::complain(::std::format_args!("{}\n", ::std::format_args!($($part)*))) };
}

/// Writes to standard error, as `eprintln!` does.
macro_rules! eprint {
    ($($part:tt)*) => { $crate::cli::output::complain(::std::format_args!($($part)*)) };
}
