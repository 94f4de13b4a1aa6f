//! One node of a stage: its process, its log and its configuration file.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// One running node of the stage. It is killed when this is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    pub name: String,
    pub address: SocketAddr,
    pub(super) child: Child,
    pub(super) file: PathBuf,
    pub(super) log: PathBuf,
    /// Byte of the log file at which this process began to log.
    pub(super) begins: u64,
}

impl NodeProcess {
    pub(super) async fn wait_until_up(&mut self) -> anyhow::Result<SocketAddr> {
        let began = Instant::now();
        loop {
            let log = self.new_log(&mut self.begins.clone());
            let line =
                log.iter().find_map(|line| line.split_once("HTTP on ").map(|(_, rest)| rest.to_owned()));
            if let Some(rest) = line {
                let address = rest.split(['"', ' ']).next().unwrap_or_default();
                return address
                    .parse()
                    .with_context(|| format!("node {} said it listens on `{address}`", self.name));
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("node {} ended at once ({status}); its log says:\n{}", self.name, log.join("\n"));
            }
            if began.elapsed() > Duration::from_secs(20) {
                bail!("node {} did not come up; its log says:\n{}", self.name, log.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// All lines of the log, also those of earlier nodes with this name.
    pub fn log(&self) -> Vec<String> {
        let Ok(file) = std::fs::File::open(&self.log) else { return Vec::new() };
        BufReader::new(file).lines().map_while(Result::ok).collect()
    }

    /// The whole lines that were logged after byte `seen` of the log. Moves `seen` to the end of the last line.
    pub fn new_log(&self, seen: &mut u64) -> Vec<String> {
        let Ok(mut file) = std::fs::File::open(&self.log) else { return Vec::new() };
        let mut text = Vec::new();
        if file.seek(SeekFrom::Start(*seen)).and_then(|_| file.read_to_end(&mut text)).is_err() {
            return Vec::new();
        }
        // The last line may still be incomplete.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        *seen += whole as u64;
        String::from_utf8_lossy(&text[..whole]).lines().map(str::to_owned).collect()
    }

    /// The path of the log.
    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// The path of the configuration file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Replaces the node's configuration file. The node reads it after a SIGHUP.
    pub fn rewrite(&self, text: &str) -> anyhow::Result<()> {
        std::fs::write(&self.file, text).context("failed to write a node's configuration")
    }

    /// The process id of the node.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the node.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("failed to signal node {}", self.name))
    }

    /// Kills the node with SIGKILL, as a power cut would.
    pub fn kill_hard(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("failed to kill node {}", self.name))?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM and waits. Returns whether the node ended with success; false also when it had to be killed
    /// after one minute.
    pub async fn stop(self) -> anyhow::Result<bool> {
        self.signal(Signal::TERM)?;
        self.end().await
    }

    /// Stops all these nodes at the same time. Fails if one of them did not end with success.
    pub async fn stop_all(nodes: Vec<NodeProcess>) -> anyhow::Result<()> {
        for node in &nodes {
            node.signal(Signal::TERM)?;
        }
        for node in nodes {
            let name = node.name.clone();
            if !node.end().await? {
                bail!("node {name} did not end well");
            }
        }
        Ok(())
    }

    /// Waits for a node that was told to stop.
    async fn end(mut self) -> anyhow::Result<bool> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            if began.elapsed() > Duration::from_mins(1) {
                self.child.kill()?;
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
