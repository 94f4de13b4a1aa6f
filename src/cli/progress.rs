//! Shows on standard error how far a long command is: one line that is written over on a terminal, otherwise a line every
//! ten seconds, for the log of a job.
//!
//! The module does not know what a line says.

use std::cell::RefCell;
use std::io::{IsTerminal, stderr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::status::cut;
use super::wrap::width_of;

/// How often the line of a terminal is written over.
const ON_A_TERMINAL: Duration = Duration::from_millis(200);
/// How often a line is written elsewhere.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// The progress of one command.
#[derive(Debug)]
pub(super) struct ProgressDisplay {
    is_terminal: bool,
    /// When a line was shown; `None` before the first one on a terminal, which is shown at once.
    last: Option<Instant>,
    /// A line stands on the terminal.
    is_shown: bool,
}

impl ProgressDisplay {
    pub(super) fn new() -> Self {
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let is_terminal = stderr().is_terminal() && !is_dumb;
        ProgressDisplay { is_terminal, last: (!is_terminal).then(Instant::now), is_shown: false }
    }

    fn every(&self) -> Duration {
        if self.is_terminal { ON_A_TERMINAL } else { ELSEWHERE }
    }

    /// Shows the line, unless one was shown a moment ago.
    pub(super) fn show(&mut self, line: impl FnOnce() -> String) {
        if self.last.is_some_and(|last| last.elapsed() < self.every()) {
            return;
        }
        self.last = Some(Instant::now());
        if self.is_terminal {
            self.is_shown = true;
            // A line that the terminal breaks would leave its first part there.
            eprint!("\r\x1b[K{}", cut(&line(), width_of(stderr()) - 1));
        } else {
            eprintln!("{}", line());
        }
    }

    /// Removes the line from the terminal. Call it before anything else is written there.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("\r\x1b[K");
        }
    }
}

/// The newest line of work that cannot show it itself.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgressLine(Rc<RefCell<String>>);

impl ProgressLine {
    pub(super) fn set(&self, line: String) {
        *self.0.borrow_mut() = line;
    }
}

/// Does the work, and shows its newest line meanwhile.
pub(super) async fn beside<T, F: Future<Output = T>>(work: impl FnOnce(ProgressLine) -> F) -> T {
    let (mut progress, line) = (ProgressDisplay::new(), ProgressLine::default());
    let work = work(line.clone());
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => {
                progress.clear();
                return done;
            }
            () = tokio::time::sleep(progress.every()) => progress.show(|| line.0.borrow().clone()),
        }
    }
}
