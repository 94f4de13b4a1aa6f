//! A system that boots in a container of `systemd-nspawn`.

#![expect(
    clippy::disallowed_methods,
    reason = "a row runs alone, and waits for a process of another program"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::cache;

/// A booted system. It ends when this is dropped.
pub struct Machine {
    nspawn: Child,
    /// The process id of its systemd, outside.
    init: u32,
    log: PathBuf,
}

impl Machine {
    /// Boots the system in a container that keeps no change. `etc` becomes its `/etc/refundd`, and the package `/refundd.deb`.
    pub fn boot(
        root: &Path,
        package: &Path,
        etc: &Path,
        drop_in: &Path,
        log: PathBuf,
    ) -> anyhow::Result<Machine> {
        let read = |from: &Path, to: &str| format!("--bind-ro={}:{to}", from.display());
        let mut command = Command::new("setpriv");
        // nspawn shuts its container down when it gets SIGTERM, so the container ends also when this process is killed.
        command
            .args(["--pdeathsig", "TERM"])
            .args(cache::in_root(root, "usr/bin/systemd-nspawn"))
            .arg(format!("--directory={}", root.display()))
            .args(["--volatile=overlay", "--register=no", "--keep-unit", "--boot", "--console=pipe"])
            // `SocketBindDeny=` needs the second version of control groups, and programs in the kernel (BPF).
            .env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1")
            .args(["--system-call-filter=bpf", "--capability=CAP_BPF,CAP_NET_ADMIN"])
            .args(["--machine=refundd-compat", "--resolv-conf=off", "--timezone=off", "--link-journal=no"])
            .arg(read(package, "/refundd.deb"))
            .arg(read(drop_in, "/etc/systemd/system/refundd.service.d/compat.conf"))
            .arg(format!("--bind={}:/etc/refundd", etc.display()));
        let output = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let nspawn = command.spawn().context("failed to start systemd-nspawn")?;
        let mut machine = Machine { nspawn, init: 0, log };
        let began = Instant::now();
        while machine.init == 0 {
            if machine.nspawn.try_wait()?.is_some() || began.elapsed() > Duration::from_secs(20) {
                return cache::not_tried(format!("systemd-nspawn does not start: {}", machine.last_line()));
            }
            machine.init = machine.find_init().unwrap_or_default();
            std::thread::sleep(Duration::from_millis(50));
        }
        machine.wait("systemctl is-system-running", Duration::from_mins(1), |state| {
            ["running", "degraded"].contains(&state)
        })?;
        Ok(machine)
    }

    /// The child of nspawn that is number 1 inside.
    fn find_init(&self) -> Option<u32> {
        let pid = self.nspawn.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().find_map(|child| {
            let status = std::fs::read_to_string(format!("/proc/{child}/status")).ok()?;
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            (numbers.split_whitespace().last() == Some("1")).then(|| child.parse().ok())?
        })
    }

    fn last_line(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    }

    /// Runs a command inside; returns what it prints, and whether it succeeded.
    pub fn try_run(&self, words: &str) -> anyhow::Result<(String, bool)> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--all", "--", "/bin/sh", "-c", words]);
        let output = command.stdin(Stdio::null()).output().context("failed to run nsenter")?;
        let text = [output.stdout, output.stderr].concat();
        Ok((String::from_utf8_lossy(&text).trim().to_owned(), output.status.success()))
    }

    pub fn run(&self, words: &str) -> anyhow::Result<String> {
        let (text, succeeded) = self.try_run(words)?;
        ensure!(succeeded, "`{words}` failed: {text}\n{}", self.journal());
        Ok(text)
    }

    pub fn journal(&self) -> String {
        self.try_run("journalctl -u refundd -n 15 --no-pager").map(|(text, _)| text).unwrap_or_default()
    }

    /// Waits until the command prints a text that `fits`.
    pub fn wait(&self, words: &str, patience: Duration, fits: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let (text, _) = self.try_run(words)?;
            if fits(&text) {
                return Ok(());
            }
            if began.elapsed() > patience {
                bail!("`{words}` still prints `{text}` after {patience:?}\n{}", self.journal());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn property(&self, name: &str) -> anyhow::Result<String> {
        self.run(&format!("systemctl show --value -p {name} refundd"))
    }

    pub fn until_active(&self) -> anyhow::Result<()> {
        self.wait("systemctl is-active refundd", Duration::from_mins(1), |state| state == "active")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The container would outlive a killed nspawn. With its number 1 the kernel ends all processes in it.
        let init = i32::try_from(self.init).ok().and_then(Pid::from_raw);
        match init.map(|init| kill_process(init, Signal::KILL)) {
            Some(Ok(())) => {}
            _ => {
                self.nspawn.kill().ok();
            }
        }
        self.nspawn.wait().ok();
    }
}
