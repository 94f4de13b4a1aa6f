//! A terminal for a command, as a person has one: a pseudo-terminal, whose other end the test reads.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Runs a command whose standard output and standard error are one terminal. Answers how it ended and what the terminal
/// got. With `until`, the command is killed once these words are there.
pub fn on_a_terminal(command: Command, until: Option<&str>) -> (ExitStatus, String) {
    run(command, false, |said, _, child| {
        if until.is_some_and(|words| said.contains(words)) {
            child.kill().unwrap();
        }
    })
}

/// Runs a command on a terminal, and answers its question with `y` after `meanwhile` is done.
pub fn agreed_on_a_terminal(command: Command, meanwhile: impl FnOnce()) -> (ExitStatus, String) {
    let mut meanwhile = Some(meanwhile);
    run(command, true, |said, controller, _| {
        if said.contains("[y/N]")
            && let Some(meanwhile) = meanwhile.take()
        {
            meanwhile();
            controller.write_all(b"y\n").unwrap();
        }
    })
}

/// `seen` gets all that the command has said so far. If the command is asked something, its standard input is the terminal, too.
fn run(
    mut command: Command,
    is_asked: bool,
    mut seen: impl FnMut(&str, &mut File, &mut Child),
) -> (ExitStatus, String) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    let terminal = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let stdin = if is_asked { terminal.try_clone().unwrap().into() } else { Stdio::null() };
    command.stdin(stdin).stdout(terminal.try_clone().unwrap()).stderr(terminal).env("TERM", "xterm");
    let mut child = command.spawn().unwrap();
    // The command has the last copies of the terminal's end. Without them the other end can be read to its end.
    drop(command);
    let (mut controller, mut bytes, mut buffer) = (File::from(controller), Vec::new(), [0; 4096]);
    // At its end a terminal answers with an error, and not with nothing.
    while let Ok(read @ 1..) = controller.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..read]);
        seen(&String::from_utf8_lossy(&bytes), &mut controller, &mut child);
    }
    (child.wait().unwrap(), String::from_utf8_lossy(&bytes).into_owned())
}
