//! A node as a process of its own, to be sent signals.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use playground::Clock;
use rustix::process::{Pid, Signal, kill_process};

use super::Scratch;

pub struct NodeProcess {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    is_unread: Arc<AtomicBool>,
    /// Reads the log to its end.
    reader: Option<JoinHandle<()>>,
    file: tempfile::NamedTempFile,
    _hosts: Option<tempfile::NamedTempFile>,
}

impl NodeProcess {
    /// Starts `refundd run` and waits until it says that it runs.
    pub fn start(scratch: &Scratch, name: &str, channels: &str) -> NodeProcess {
        let node = NodeProcess::spawn(scratch, name, channels, None);
        node.wait_for_line("HTTP on");
        node
    }

    /// The same, under a wall clock of its own.
    pub fn start_under(clock: &Clock, scratch: &Scratch, name: &str, channels: &str) -> NodeProcess {
        let environment = clock.environment();
        let environment = environment.iter().map(|(name, value)| (*name, value.as_str()));
        let node = NodeProcess::spawn_where(scratch, name, channels, environment);
        node.wait_for_line("HTTP on");
        // libfaketime needs these names until the node is up, and would leave them behind.
        for kind in ["faketime_shm_", "sem.faketime_sem_"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{kind}{}", node.pid().as_raw_nonzero()));
        }
        node
    }

    /// Starts `refundd run`, to end by itself at this point of the money path, if one is named.
    pub fn spawn(scratch: &Scratch, name: &str, channels: &str, crash_at: Option<&str>) -> NodeProcess {
        let crash_at = crash_at.map(|point| ("REFUNDD_CRASH_AT", point));
        NodeProcess::spawn_where(scratch, name, channels, crash_at)
    }

    /// Starts `refundd run` with more in its environment.
    pub fn spawn_where<'e>(
        scratch: &Scratch,
        name: &str,
        channels: &str,
        environment: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> NodeProcess {
        NodeProcess::spawn_file(&scratch.file(name, channels), environment)
    }

    /// Starts `refundd run` with this text as its configuration.
    pub fn spawn_file<'e>(
        text: &str,
        environment: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> NodeProcess {
        let mut program = Command::new(env!("CARGO_BIN_EXE_refundd"));
        program.envs(environment);
        NodeProcess::spawn_as(program, text, None)
    }

    /// Starts `refundd run` with this text as its configuration, where `/etc/hosts` has the text `hosts`. There it cannot
    /// open the folders of the servers' sockets, so the configuration must lead to them by TCP.
    pub fn spawn_with_hosts<'e>(
        text: &str,
        hosts: &str,
        environment: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> NodeProcess {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), hosts).unwrap();
        let mut program = NodeProcess::program_with_hosts(file.path());
        program.envs(environment);
        NodeProcess::spawn_as(program, text, Some(file))
    }

    /// The program, where this file is `/etc/hosts`.
    pub fn program_with_hosts(hosts: &Path) -> Command {
        let mut program = Command::new("unshare");
        program.args(["--map-root-user", "--mount", "sh", "-c"]);
        program.arg("mount --bind \"$0\" /etc/hosts && exec \"$@\"").arg(hosts);
        program.arg(env!("CARGO_BIN_EXE_refundd"));
        program
    }

    fn spawn_as(mut program: Command, text: &str, hosts: Option<tempfile::NamedTempFile>) -> NodeProcess {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut child = program
            .args(["run", "--with-parent", "--config"])
            .arg(file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let is_unread: Arc<AtomicBool> = Arc::default();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::spawn({
            let (log, is_unread) = (Arc::clone(&log), Arc::clone(&is_unread));
            move || {
                for line in lines.map_while(Result::ok) {
                    log.lock().unwrap().push(line);
                    while is_unread.load(Ordering::Relaxed) {
                        std::thread::park_timeout(Duration::from_millis(10));
                    }
                }
            }
        });
        NodeProcess { child, log, is_unread, reader: Some(reader), file, _hosts: hosts }
    }

    /// Says whether nobody reads its output from its next line on.
    pub fn leave_unread(&self, is_unread: bool) {
        self.is_unread.store(is_unread, Ordering::Relaxed);
    }

    /// Where it serves HTTP, once it does.
    pub fn address(&self) -> Option<String> {
        self.log().iter().find_map(|line| {
            let (_, rest) = line.split_once("HTTP on ")?;
            Some(rest.chars().take_while(|c| !matches!(c, '"' | ' ')).collect())
        })
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Puts a pipe in the place of the configuration file, and answers its path.
    pub fn put_pipe_for_file(&mut self) -> &Path {
        let path = self.file.path();
        std::fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        path
    }

    pub fn rewrite(&mut self, text: &str) {
        std::fs::write(self.file.path(), text).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Blocks until a line of the log holds these words.
    pub fn wait_for_line(&self, words: &str) {
        let began = Instant::now();
        while !self.log().iter().any(|line| line.contains(words)) {
            assert!(began.elapsed() < Duration::from_secs(30), "no line with `{words}` in {:#?}", self.log());
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Blocks until it has ended and its log is whole.
    pub fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < Duration::from_mins(1), "it does not end: {:#?}", self.log());
            std::thread::park_timeout(Duration::from_millis(10));
        };
        self.leave_unread(false);
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
