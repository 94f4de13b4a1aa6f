//! Runs a server of another maker beside the pretend bank, mostly in front of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::place;

/// A running server with a folder of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct Front {
    pub address: SocketAddr,
    child: Child,
    folder: tempfile::TempDir,
}

impl Front {
    /// Starts a server on a free port, and waits until it accepts connections. `command` gets the folder and the port.
    pub async fn start(command: impl FnOnce(&Path, u16) -> anyhow::Result<Command>) -> anyhow::Result<Front> {
        let (folder, port) = (tempfile::tempdir()?, place::free_port()?);
        let mut command = command(folder.path(), port)?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("failed to start {command:?}"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut front = Front { address, child, folder };
        let began = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            if front.child.try_wait()?.is_some() || began.elapsed() > Duration::from_secs(20) {
                bail!("{command:?} does not start: {}", front.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(front)
    }

    /// The server's output so far.
    pub fn log(&self) -> String {
        self.read("log")
    }

    /// A file of the server's folder; empty if there is none.
    pub fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // The workers end only if their master gets SIGTERM before it is killed.
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(5) {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
