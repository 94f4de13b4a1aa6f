//! Runs one server in its own folder, and removes both when this process ends.
//!
//! A small shell stands between this process and the server. It makes the folder, starts the server, and reads from a
//! pipe whose other end only this process has. When this process ends, by a return from `main`, by Ctrl-C or by
//! kill -9, the kernel closes that end. The shell then ends the server and removes the folder. So the removal also
//! works for a server in a `static`, which is never dropped.
//!
//! The shell starts the server itself. If this process started it and died before it passed on the process id, no
//! process would know which server to end.

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

/// The server that a reaper runs.
#[derive(Debug)]
pub struct Plan {
    /// The server's name in messages: "Postgres" or "Redis".
    pub name: &'static str,
    /// The server's folder. It must not exist yet.
    pub folder: PathBuf,
    /// The user of the server; `None` for the user of this process.
    pub owner: Option<Owner>,
    /// The command that runs once, before the first start.
    pub prepare: Option<Vec<String>>,
    /// The command line of the server.
    pub launch: Vec<String>,
    /// The signal that ends the server at last: `QUIT` or `KILL`.
    pub farewell: &'static str,
}

/// Runs one server. When the reaper is dropped, the shell soon ends the server and removes the folder.
/// [`Reaper::stop`] waits until both are gone.
#[derive(Debug)]
pub struct Reaper {
    name: &'static str,
    folder: PathBuf,
    shell: Mutex<Shell>,
}

/// The shell and our end of its pipe. While our end is open, the server runs.
#[derive(Debug)]
struct Shell {
    process: Child,
    pipe: Option<ChildStdin>,
    /// How many commands the shell was given.
    questions: u64,
}

impl Reaper {
    /// Makes the folder and runs `plan.prepare` in it. Does not start the server yet.
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
        let mut process =
            command.spawn().map_err(|source| PlaygroundError::Reaper { name: plan.name, source })?;
        let pipe = process.stdin.take();
        let reaper = Reaper {
            name: plan.name,
            folder: plan.folder,
            shell: Mutex::new(Shell { process, pipe, questions: 0 }),
        };
        reaper.answer(&mut *reaper.shell.lock().await).await?;
        if plan.prepare.is_some() && reaper.ask("prepare").await? != "0" {
            let error = PlaygroundError::Prepare { name: reaper.name, log: reaper.log_tail() };
            reaper.stop().await?;
            return Err(error);
        }
        Ok(reaper)
    }

    /// The server's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the server and returns its process id. The server may not answer yet.
    pub async fn launch(&self) -> Result<u32, PlaygroundError> {
        let pid = self.ask("start").await?;
        pid.parse().map_err(|_| PlaygroundError::Died { name: self.name, log: self.log_tail() })
    }

    /// Sends this signal to the server and waits until it has ended. After six seconds the shell sends KILL.
    pub async fn end(&self, signal: &str) -> Result<(), PlaygroundError> {
        self.ask(&format!("stop {signal}")).await.map(drop)
    }

    /// Waits until `look` returns true. Fails when the server ends first, or after two minutes.
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
        let mut shell = self.shell.lock().await;
        shell.pipe = None;
        loop {
            match shell.process.try_wait().map_err(|source| self.lost(source))? {
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
        let mut shell = self.shell.lock().await;
        shell.questions += 1;
        let question = format!("{} {verb}\n", shell.questions);
        let pipe = shell.pipe.as_mut().ok_or_else(|| self.lost(ErrorKind::BrokenPipe.into()))?;
        pipe.write_all(question.as_bytes()).map_err(|source| self.lost(source))?;
        self.answer(&mut shell).await
    }

    /// Waits for the shell's answer to the last command. The first answer, "ready", follows no command.
    async fn answer(&self, shell: &mut Shell) -> Result<String, PlaygroundError> {
        let started = Instant::now();
        let number = shell.questions.to_string();
        loop {
            let reply = std::fs::read_to_string(self.folder.join("reply")).unwrap_or_default();
            match reply.trim_end().split_once(' ') {
                Some((answered, reply)) if answered == number => return Ok(reply.to_owned()),
                _ => {}
            }
            if shell.process.try_wait().map_err(|source| self.lost(source))?.is_some() {
                return Err(self.lost(ErrorKind::BrokenPipe.into()));
            }
            if started.elapsed() > PATIENCE {
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
        let shell = self.shell.get_mut();
        shell.pipe = None;
        // Collects the exit status of a shell that has ended already, so that it does not stay as a zombie.
        shell.process.try_wait().ok();
    }
}

/// Whether Postgres's programs read this variable. Such a variable would lead them to another server.
fn speaks_to_postgres(variable: &OsStr) -> bool {
    variable.to_string_lossy().starts_with("PG")
}

/// Quotes the words so that the shell reads exactly these words from one line.
fn shell_words(words: &[String]) -> String {
    let quoted: Vec<String> =
        words.iter().map(|argument| format!("'{}'", argument.replace('\'', "'\\''"))).collect();
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
