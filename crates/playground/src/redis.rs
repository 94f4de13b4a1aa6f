//! A Redis of our own, in a temporary folder.
//!
//! It keeps nothing on disk by itself. A snapshot can be taken and given back at a restart, which is
//! how one shows what a Redis does that comes back with yesterday's memory. Its wall clock can be
//! stepped, if that was asked for. How two of them stand in for each other is [`pair`]'s business, who
//! notices that one is gone [`sentinels`]', and how three share the slots [`cluster`]'s.

pub mod cluster;
pub mod pair;
pub mod sentinels;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::clock::Clock;
use super::reaper::{Plan, Reaper};
use super::{PlaygroundError, find, place};

/// How a private Redis shall be.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// Also listen on a free TCP port of this machine.
    pub tcp: bool,
    /// Its wall clock can be stepped while it runs. Needs libfaketime.
    pub clock: bool,
    /// More settings, as in `redis.conf`; they win over the ones chosen here.
    pub settings: Vec<(String, String)>,
}

/// The memory of a Redis at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot(Vec<u8>);

/// A running private Redis.
#[derive(Debug)]
pub struct PrivateRedis {
    reaper: Reaper,
    socket: PathBuf,
    port: Option<u16>,
    pid: AtomicU32,
    clock: Option<Clock>,
}

impl PrivateRedis {
    /// What libfaketime rounds.
    const CLOCK_IS_SURE_TO: SignedDuration = SignedDuration::from_micros(10);

    /// Starts one on a Unix socket.
    pub async fn start() -> Result<Self, PlaygroundError> {
        Self::start_with(&RedisOptions::default()).await
    }

    /// Starts one and waits until it answers.
    pub async fn start_with(options: &RedisOptions) -> Result<Self, PlaygroundError> {
        let program = find::redis()?;
        let folder = place::fresh_folder(None);
        let socket = folder.join("redis.sock");
        let port = if options.tcp { Some(place::free_port()?) } else { None };
        let clock = if options.clock { Some(Clock::new(&folder)?) } else { None };
        let launch = server(&program, &folder, &socket, port, options);
        let launch = match &clock {
            Some(clock) => clock.launch(&socket, launch),
            None => launch,
        };
        let reaper = Reaper::start(Plan {
            name: "Redis",
            prepare: None,
            launch,
            farewell: "KILL",
            folder,
            owner: None,
        })
        .await?;
        let server = PrivateRedis { reaper, socket, port, pid: AtomicU32::new(0), clock };
        server.set_clock(SignedDuration::ZERO)?;
        server.launch().await?;
        Ok(server)
    }

    /// The address of its Unix socket, as the redis crate takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket.display())
    }

    /// The address of its TCP port, if it has one.
    #[must_use]
    pub fn tcp_url(&self) -> Option<String> {
        self.port.map(|port| format!("redis://127.0.0.1:{port}"))
    }

    /// Its Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The server's folder; its log is the file `log` in it.
    pub fn folder(&self) -> &Path {
        self.reaper.folder()
    }

    /// The process id of the server as it runs now.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Kills the server with -9. It stays down until [`PrivateRedis::restart`].
    pub async fn kill_hard(&self) -> Result<(), PlaygroundError> {
        self.reaper.end("KILL").await
    }

    /// Starts the server at the same address, killing it first if it runs, with nothing in its memory
    /// or with what a snapshot holds. It answers again.
    pub async fn restart(&self, memory: Option<&Snapshot>) -> Result<(), PlaygroundError> {
        self.reaper.end("KILL").await?;
        let file = self.folder().join("dump.rdb");
        let written = match memory {
            Some(snapshot) => std::fs::write(&file, &snapshot.0),
            None if file.exists() => std::fs::remove_file(&file),
            None => Ok(()),
        };
        written.map_err(|source| PlaygroundError::Snapshot { source })?;
        self.launch().await
    }

    /// Copies the server's memory as it is now.
    pub async fn snapshot(&self) -> Result<Snapshot, PlaygroundError> {
        let saved = self.say("SAVE").await.and_then(|answer| match answer.as_str() {
            "+OK" => Ok(()),
            _ => Err(std::io::Error::other(answer)),
        });
        saved
            .and_then(|()| std::fs::read(self.folder().join("dump.rdb")))
            .map(Snapshot)
            .map_err(|source| PlaygroundError::Snapshot { source })
    }

    /// Forgets everything.
    pub async fn flush(&self) -> Result<(), PlaygroundError> {
        self.command("FLUSHALL").await
    }

    /// Steps its wall clock, forward or back, while it runs, and makes sure that it shows. Only where
    /// [`RedisOptions::clock`] was asked for. Answers how far it is ahead of the machine's now.
    pub async fn step_clock(&self, by: SignedDuration) -> Result<SignedDuration, PlaygroundError> {
        let wanted = self.ahead() + by;
        self.set_clock(wanted)?;
        let (least, most) = self.shown_ahead().await?;
        let slack = Self::CLOCK_IS_SURE_TO;
        if wanted < least - slack || wanted > most + slack {
            return Err(PlaygroundError::Clock { wanted, least, most });
        }
        Ok(wanted)
    }

    /// How far its wall clock was set ahead of the machine's.
    pub fn ahead(&self) -> SignedDuration {
        self.clock.as_ref().map_or(SignedDuration::ZERO, Clock::ahead)
    }

    /// Between which bounds its own `TIME` is ahead of the machine's clock; asking takes a moment.
    async fn shown_ahead(&self) -> Result<(SignedDuration, SignedDuration), PlaygroundError> {
        let before = Timestamp::now().as_duration();
        let answer = self.ask("TIME", 5).await?;
        let after = Timestamp::now().as_duration();
        // *2, then each number under its length.
        let number = |line: usize| answer.get(line).and_then(|word| word.parse::<i64>().ok());
        let unread = || PlaygroundError::Say {
            words: "TIME".to_owned(),
            source: std::io::Error::other(answer.join(" ")),
        };
        let (seconds, micros) = number(2).zip(number(4)).ok_or_else(unread)?;
        let shown = SignedDuration::from_micros(seconds * 1_000_000 + micros);
        Ok((shown - after, shown - before))
    }

    fn set_clock(&self, ahead: SignedDuration) -> Result<(), PlaygroundError> {
        match &self.clock {
            Some(clock) => clock.set(ahead),
            None if ahead.is_zero() => Ok(()),
            None => Err(std::io::Error::other("its clock is the machine's")),
        }
        .map_err(|source| PlaygroundError::Say { words: "what the time is".to_owned(), source })
    }

    /// Becomes a replica that has lost its primary: it answers, and refuses to write.
    pub async fn demote(&self) -> Result<(), PlaygroundError> {
        self.follow(Some(pair::NOBODY)).await
    }

    /// Becomes a primary, with what it has.
    pub async fn promote(&self) -> Result<(), PlaygroundError> {
        self.follow(None).await
    }

    /// Follows another server from now on, or nobody; waits for the word only, not for the memory.
    async fn follow(&self, port: Option<u16>) -> Result<(), PlaygroundError> {
        match port {
            Some(port) => self.command(&format!("REPLICAOF 127.0.0.1 {port}")).await,
            None => self.command("REPLICAOF NO ONE").await,
        }
    }

    /// Whether it follows another and has all its memory.
    async fn has_caught_up(&self) -> Result<bool, PlaygroundError> {
        let info = self.ask("INFO replication", 30).await?;
        Ok(info.iter().any(|line| line == "master_link_status:up"))
    }

    /// Ends the server and waits until its folder is gone.
    pub async fn stop(self) -> Result<(), PlaygroundError> {
        self.reaper.stop().await
    }

    async fn launch(&self) -> Result<(), PlaygroundError> {
        self.pid.store(self.reaper.launch().await?, Ordering::Relaxed);
        // While it still loads a snapshot it answers, but not with PONG.
        self.reaper.until_up(|| async { self.say("PING").await.is_ok_and(|answer| answer == "+PONG") }).await
    }

    /// Says something that is answered with OK.
    async fn command(&self, words: &str) -> Result<(), PlaygroundError> {
        let answer = self.ask(words, 1).await?;
        if answer.first().is_some_and(|line| line.starts_with("+OK")) {
            return Ok(());
        }
        Err(PlaygroundError::Say { words: words.to_owned(), source: std::io::Error::other(answer.join(" ")) })
    }

    /// Says something, and reads this many lines at most of the answer.
    async fn ask(&self, words: &str, lines: usize) -> Result<Vec<String>, PlaygroundError> {
        self.converse(words, lines)
            .await
            .map_err(|source| PlaygroundError::Say { words: words.to_owned(), source })
    }

    /// Says one word; the answer is one line.
    async fn say(&self, word: &str) -> std::io::Result<String> {
        Ok(self.converse(word, 1).await?.swap_remove(0))
    }

    /// One question on a connection of its own.
    async fn converse(&self, words: &str, lines: usize) -> std::io::Result<Vec<String>> {
        let conversation = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            // The answer is over when the server has also taken its leave.
            stream.write_all(format!("{words}\r\nQUIT\r\n").as_bytes()).await?;
            let mut answer = Vec::new();
            while stream.read_buf(&mut answer).await? > 0 {}
            let text = String::from_utf8_lossy(&answer);
            let mut read: Vec<String> = text.lines().take(lines).map(str::to_owned).collect();
            if read.is_empty() {
                read.push(String::new());
            }
            Ok(read)
        };
        timeout(Duration::from_secs(10), conversation).await?
    }
}

fn server(
    program: &Path,
    folder: &Path,
    socket: &Path,
    port: Option<u16>,
    options: &RedisOptions,
) -> Vec<String> {
    let mut words = vec![program.display().to_string()];
    let mut set = |name: &str, value: &str| words.extend([format!("--{name}"), value.to_owned()]);
    set("port", &port.unwrap_or(0).to_string());
    set("bind", "127.0.0.1");
    set("unixsocket", &socket.display().to_string());
    set("unixsocketperm", "700");
    set("dir", &folder.display().to_string());
    set("save", "");
    set("appendonly", "no");
    set("maxmemory-policy", "noeviction");
    set("stop-writes-on-bgsave-error", "no");
    for (name, value) in &options.settings {
        set(name, value);
    }
    words
}
