//! A terminal for a command, as a person has one: a pseudo-terminal, whose other end the test reads.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Runs a command whose standard output and standard error are one terminal. Answers how it ended and what the terminal
/// got. With `until`, the command is killed once these words are there.
pub fn on_a_terminal(mut command: Command, until: Option<&str>) -> (ExitStatus, String) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    let terminal = OpenOptions::new().read(true).write(true).open(name).unwrap();
    command.stdin(Stdio::null()).stdout(terminal.try_clone().unwrap()).stderr(terminal).env("TERM", "xterm");
    let mut child = command.spawn().unwrap();
    // The command has the last copies of the terminal's end. Without them the other end can be read to its end.
    drop(command);
    let (mut controller, mut bytes, mut buffer) = (File::from(controller), Vec::new(), [0; 4096]);
    // At its end a terminal answers with an error, and not with nothing.
    while let Ok(read @ 1..) = controller.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..read]);
        if until.is_some_and(|words| String::from_utf8_lossy(&bytes).contains(words)) {
            child.kill().unwrap();
        }
    }
    (child.wait().unwrap(), String::from_utf8_lossy(&bytes).into_owned())
}
