//! Runs one server in a folder of its own, and makes sure that neither outlives us.
//!
//! A small shell stands between us and the server: it makes the folder, starts the server, and reads
//! from a pipe whose other end only we hold. Whatever ends us, be it a return from `main`, Ctrl-C or
//! kill -9, the kernel closes that end; the shell then ends the server and removes the folder. So it
//! works from a `static` too, which is never dropped.
//!
//! The shell is the one who starts the server, because a server started by us would be known to
//! nobody if we died before we passed its number on.

use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::sleep;

use super::PlaygroundError;
use super::place::Owner;

const SCRIPT: &str = include_str!("reaper.sh");

/// Long enough for a first start on a machine that is busy with a build.
const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(5);

/// What a reaper shall run.
#[derive(Debug)]
pub struct Plan {
    /// For messages: "Postgres" or "Redis".
    pub name: &'static str,
    /// Where it runs; must not exist yet.
    pub folder: PathBuf,
    /// Who it runs as, if not as ourselves.
    pub owner: Option<Owner>,
    /// Run once before the first start.
    pub prepare: Option<Vec<String>>,
    pub launch: Vec<String>,
    /// Ends the server when nobody needs it any more: `QUIT`, `KILL`.
    pub farewell: &'static str,
}

/// A server's keeper. Dropping it takes server and folder away soon after; [`Reaper::stop`] waits for it.
#[derive(Debug)]
pub struct Reaper {
    name: &'static str,
    folder: PathBuf,
    line: Mutex<Line>,
}

/// The shell, and our end of its pipe: while that is open, the server may live.
#[derive(Debug)]
struct Line {
    shell: Child,
    pipe: Option<ChildStdin>,
    asked: u64,
}

impl Reaper {
    /// Makes the folder and prepares it; the server is not started yet.
    pub async fn start(plan: Plan) -> Result<Reaper, PlaygroundError> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", r#"eval "$REFUNDD_REAPER""#, "refundd-reaper"])
            .arg(&plan.folder)
            .arg(plan.prepare.as_deref().map(shell_words).unwrap_or_default())
            .arg(shell_words(&plan.launch))
            .arg(plan.farewell)
            .current_dir("/")
            .env("LC_ALL", "C")
            .env("REFUNDD_REAPER", SCRIPT) // not an argument, so that a list of processes stays readable
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0); // Ctrl-C is for us; the reaper has work to do after it
        for (key, _) in std::env::vars_os().filter(|(key, _)| speaks_to_postgres(key)) {
            command.env_remove(key);
        }
        if let Some(owner) = plan.owner {
            command.gid(owner.gid).uid(owner.uid);
        }
        let mut shell =
            command.spawn().map_err(|source| PlaygroundError::Reaper { name: plan.name, source })?;
        let pipe = shell.stdin.take();
        let reaper =
            Reaper { name: plan.name, folder: plan.folder, line: Mutex::new(Line { shell, pipe, asked: 0 }) };
        reaper.answer(&mut *reaper.line.lock().await).await?;
        if plan.prepare.is_some() && reaper.ask("prepare").await? != "0" {
            let error = PlaygroundError::Prepare { name: reaper.name, log: reaper.log_tail() };
            reaper.stop().await?;
            return Err(error);
        }
        Ok(reaper)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the server and says its process id. It may not answer yet.
    pub async fn launch(&self) -> Result<u32, PlaygroundError> {
        let pid = self.ask("start").await?;
        pid.parse().map_err(|_| PlaygroundError::Died { name: self.name, log: self.log_tail() })
    }

    /// Ends the server with this signal (after six seconds, with KILL) and waits until it is gone.
    pub async fn end(&self, signal: &str) -> Result<(), PlaygroundError> {
        self.ask(&format!("stop {signal}")).await.map(drop)
    }

    /// Waits until the server answers as `look` has it; fails when it dies instead.
    pub async fn until_up<F>(&self, mut look: impl FnMut() -> F) -> Result<(), PlaygroundError>
    where
        F: Future<Output = bool>,
    {
        let started = Instant::now();
        loop {
            if look().await {
                return Ok(());
            }
            if self.folder.join("gone").exists() {
                return Err(PlaygroundError::Died { name: self.name, log: self.log_tail() });
            }
            if started.elapsed() > PATIENCE {
                return Err(PlaygroundError::Silent { name: self.name, log: self.log_tail() });
            }
            sleep(POLL).await;
        }
    }

    /// Ends the server and waits until its folder is gone.
    pub async fn stop(self) -> Result<(), PlaygroundError> {
        let mut line = self.line.lock().await;
        line.pipe = None;
        loop {
            match line.shell.try_wait().map_err(|source| self.lost(source))? {
                Some(status) if status.success() && !self.folder.exists() => return Ok(()),
                Some(_) => {
                    let folder = self.folder.clone();
                    return Err(PlaygroundError::LeftBehind { name: self.name, folder });
                }
                None => sleep(POLL).await,
            }
        }
    }

    async fn ask(&self, verb: &str) -> Result<String, PlaygroundError> {
        let mut line = self.line.lock().await;
        line.asked += 1;
        let question = format!("{} {verb}\n", line.asked);
        let pipe = line.pipe.as_mut().ok_or_else(|| self.lost(ErrorKind::BrokenPipe.into()))?;
        pipe.write_all(question.as_bytes()).map_err(|source| self.lost(source))?;
        self.answer(&mut line).await
    }

    /// Waits for the answer to the last question; the first is "ready", which nobody asked for.
    async fn answer(&self, line: &mut Line) -> Result<String, PlaygroundError> {
        let asked = Instant::now();
        let number = line.asked.to_string();
        loop {
            let reply = std::fs::read_to_string(self.folder.join("reply")).unwrap_or_default();
            match reply.trim_end().split_once(' ') {
                Some((answered, word)) if answered == number => return Ok(word.to_owned()),
                _ => {}
            }
            if line.shell.try_wait().map_err(|source| self.lost(source))?.is_some() {
                return Err(self.lost(ErrorKind::BrokenPipe.into()));
            }
            if asked.elapsed() > PATIENCE {
                return Err(PlaygroundError::Silent { name: self.name, log: self.log_tail() });
            }
            sleep(POLL).await;
        }
    }

    fn lost(&self, source: std::io::Error) -> PlaygroundError {
        PlaygroundError::Reaper { name: self.name, source }
    }

    /// The last lines of the server's log, for people.
    fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        let line = self.line.get_mut();
        line.pipe = None;
        // Asked once, so that a shell that is quick does not stay behind as a zombie.
        line.shell.try_wait().ok();
    }
}

/// Postgres's own variables would point its programs elsewhere.
fn speaks_to_postgres(variable: &OsStr) -> bool {
    variable.to_string_lossy().starts_with("PG")
}

/// One line that the shell reads back as exactly these words.
fn shell_words(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_reads_back_the_words_it_was_given() {
        let words = ["plain", "two words", "", "it's", "$HOME `x` \\ \"q\""].map(String::from);
        let script = format!("printf '%s\\n' {}", shell_words(&words));
        let out = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap().lines().collect::<Vec<_>>(), words);
    }
}
