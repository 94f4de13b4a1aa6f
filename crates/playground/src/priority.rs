//! Threads that the system runs before those of other processes.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, setpriority_process};

/// The higher priority, as in `nice`: a thread of -10 gets about nine times the processor time of one of 0.
const NICE: i32 = -10;

/// Lets the threads of this process that have one of these names go before all others. Returns how many there are now.
/// Only a privileged process may do that; for others it returns 0 and changes nothing.
pub fn go_first(names: &[&str]) -> usize {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0 };
    threads
        .flatten()
        .filter(|thread| {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            names.contains(&name.trim_end()) && raise(&thread.path())
        })
        .count()
}

/// On Linux a thread's id in place of a process's means this thread alone.
fn raise(thread: &Path) -> bool {
    let id = thread.file_name().and_then(|id| id.to_str()).and_then(|id| id.parse().ok());
    id.and_then(Pid::from_raw).is_some_and(|id| setpriority_process(Some(id), NICE).is_ok())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_named_thread_goes_first_and_no_other() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let (ask, asked) = mpsc::channel::<()>();
        let (answer, answered) = mpsc::channel();
        let named = std::thread::Builder::new().name("goes-first".to_owned());
        let thread = named.spawn(move || asked.iter().for_each(|()| answer.send(own()).unwrap())).unwrap();
        let of_thread = || {
            ask.send(()).unwrap();
            answered.recv().unwrap()
        };
        // A thread has its name when it runs.
        let before = (own(), of_thread());
        assert_eq!(go_first(&["nobody"]), 0);
        assert_eq!((own(), of_thread()), before);
        // A system may keep this right from root.
        let raised = go_first(&["goes-first"]);
        assert_eq!((own(), of_thread()), (before.0, if raised == 1 { NICE } else { before.1 }));
        drop(ask);
        thread.join().unwrap();
    }
}
