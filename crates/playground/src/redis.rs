//! A private Redis in a temporary folder.
//!
//! Its users are those that the project ships for production: nodes log in as the user of `config/redis.acl`, and the
//! user `default` is off. Another user, `admin`, may do everything; it is for whoever watches and breaks the server.
//!
//! It writes nothing to disk by itself. A test can take a snapshot and restore it at a restart, and so show a Redis
//! that comes back with old memory. Its wall clock can be stepped. [`pair`] is a primary with a replica,
//! [`sentinels`] fail over to a replica, and [`cluster`] is a Redis Cluster of three masters.

pub mod cluster;
pub mod forger;
pub mod pair;
pub mod sentinels;
mod time;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::clock::Clock;
use super::reaper::{Plan, Reaper};
use super::{PlaygroundError, find, place};

/// The rights of a node, as they are shipped.
const NODE: &str = include_str!("../../../config/redis.acl");
/// What stands there for the hash of the password: no server loads the file with it.
const NO_HASH: &str = "#CHANGE-ME";
/// The user and the password of a node.
const NODE_LOGIN: (&str, &str) = ("refundd", "CHANGE-ME");
/// The user that may do everything; its password is its name.
const ADMIN: &str = "admin";

/// The settings of a private Redis.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// Whether it also listens on a free TCP port of this machine.
    pub tcp: bool,
    /// Whether its wall clock can be stepped while it runs. Needs libfaketime.
    pub clock: bool,
    /// More settings, as in `redis.conf`. They override the settings that this module chooses.
    pub settings: Vec<(String, String)>,
    /// The command line that starts its program; empty for the program of this machine.
    pub program: Vec<String>,
    /// Whether anybody may do everything without a login. Otherwise only the shipped user and `admin` may log in.
    pub open: bool,
}

/// The memory of a Redis at one moment.
#[derive(Debug, Clone)]
pub struct RedisSnapshot(Vec<u8>);

/// A running private Redis. It ends when this is dropped.
#[derive(Debug)]
pub struct PrivateRedis {
    reaper: Reaper,
    socket: PathBuf,
    port: Option<u16>,
    open: bool,
    pid: AtomicU32,
    clock: Option<Clock>,
}

impl PrivateRedis {
    /// libfaketime rounds the clock by up to this much.
    const CLOCK_IS_SURE_TO: SignedDuration = SignedDuration::from_micros(10);

    /// Starts a Redis that listens on a Unix socket only.
    pub async fn start() -> Result<Self, PlaygroundError> {
        Self::start_with(&RedisOptions::default()).await
    }

    /// Starts a Redis with these settings and waits until it answers.
    pub async fn start_with(options: &RedisOptions) -> Result<Self, PlaygroundError> {
        let program = match options.program.as_slice() {
            [] => vec![find::redis()?.display().to_string()],
            words => words.to_vec(),
        };
        let folder = place::fresh_folder(None);
        let socket = folder.join("redis.sock");
        let port = if options.tcp { Some(place::free_port()?) } else { None };
        let clock = if options.clock { Some(Clock::new(&folder)?) } else { None };
        let users = folder.join("users.acl");
        let mut launch = server(program, &folder, &socket, port, options);
        if !options.open {
            let login =
                ["--aclfile", &users.display().to_string(), "--masteruser", ADMIN, "--masterauth", ADMIN];
            launch.extend(login.map(str::to_owned));
        }
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
        if !options.open {
            let node = NODE.replace(NO_HASH, &format!(">{}", NODE_LOGIN.1));
            let all = format!("user default off\nuser {ADMIN} on >{ADMIN} ~* &* +@all\n{node}");
            std::fs::write(users, all).map_err(|source| PlaygroundError::Reaper { name: "Redis", source })?;
        }
        let open = options.open;
        let server = PrivateRedis { reaper, socket, port, open, pid: AtomicU32::new(0), clock };
        server.set_clock(SignedDuration::ZERO)?;
        server.launch().await?;
        Ok(server)
    }

    /// The address of its Unix socket for nodes, as a URL for the redis crate.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(NODE_LOGIN)
    }

    /// The same address for the user that may do everything.
    #[must_use]
    pub fn admin_url(&self) -> String {
        self.url_of((ADMIN, ADMIN))
    }

    fn url_of(&self, (user, password): (&str, &str)) -> String {
        let login = if self.open { String::new() } else { format!("?user={user}&pass={password}") };
        format!("redis+unix://{}{login}", self.socket.display())
    }

    /// The address of its TCP port for nodes, if it has one.
    #[must_use]
    pub fn tcp_url(&self) -> Option<String> {
        self.port.map(|port| format!("redis://{}127.0.0.1:{port}", self.login()))
    }

    /// What stands before the host in the addresses of nodes.
    fn login(&self) -> String {
        let (user, password) = NODE_LOGIN;
        if self.open { String::new() } else { format!("{user}:{password}@") }
    }

    /// The path of its Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The server's folder; its log is the file `log` in it.
    pub fn folder(&self) -> &Path {
        self.reaper.folder()
    }

    /// The process id of the server. It changes when the server is restarted.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Kills the server with -9. It stays down until [`PrivateRedis::restart`].
    pub async fn kill_hard(&self) -> Result<(), PlaygroundError> {
        self.reaper.end("KILL").await
    }

    /// Starts the server at the same address, with empty memory or with a snapshot, and waits until it answers. Kills
    /// the server first if it runs.
    pub async fn restart(&self, memory: Option<&RedisSnapshot>) -> Result<(), PlaygroundError> {
        self.reaper.end("KILL").await?;
        let file = self.folder().join("dump.rdb");
        let written = match memory {
            Some(snapshot) => std::fs::write(&file, &snapshot.0),
            None if file.exists() => std::fs::remove_file(&file),
            None => Ok(()),
        };
        written.map_err(|source| PlaygroundError::RedisSnapshot { source })?;
        self.launch().await
    }

    /// Copies the server's present memory.
    pub async fn snapshot(&self) -> Result<RedisSnapshot, PlaygroundError> {
        let saved = self.say("SAVE").await.and_then(|answer| match answer.as_str() {
            "+OK" => Ok(()),
            _ => Err(std::io::Error::other(answer)),
        });
        saved
            .and_then(|()| std::fs::read(self.folder().join("dump.rdb")))
            .map(RedisSnapshot)
            .map_err(|source| PlaygroundError::RedisSnapshot { source })
    }

    /// Removes all keys.
    pub async fn flush(&self) -> Result<(), PlaygroundError> {
        self.command("FLUSHALL").await
    }

    /// Makes the server a replica without its primary. It answers, and refuses to write.
    pub async fn demote(&self) -> Result<(), PlaygroundError> {
        self.follow(Some(pair::NOBODY)).await
    }

    /// Makes the server a primary, with its present memory.
    pub async fn promote(&self) -> Result<(), PlaygroundError> {
        self.follow(None).await
    }

    /// Makes the server a replica of the server on this port, or a primary. Does not wait for the memory.
    async fn follow(&self, port: Option<u16>) -> Result<(), PlaygroundError> {
        match port {
            Some(port) => self.command(&format!("REPLICAOF 127.0.0.1 {port}")).await,
            None => self.command("REPLICAOF NO ONE").await,
        }
    }

    /// Whether the server is a replica and has received all the memory of its primary.
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
        // While it loads a snapshot it answers, but not with PONG.
        self.reaper.until_up(|| async { self.say("PING").await.is_ok_and(|answer| answer == "+PONG") }).await
    }

    /// Sends a command whose answer must be OK.
    async fn command(&self, words: &str) -> Result<(), PlaygroundError> {
        let answer = self.ask(words, 1).await?;
        if answer.first().is_some_and(|line| line.starts_with("+OK")) {
            return Ok(());
        }
        Err(PlaygroundError::Say { words: words.to_owned(), source: std::io::Error::other(answer.join(" ")) })
    }

    /// Sends a command and reads at most this many lines of the answer.
    async fn ask(&self, words: &str, lines: usize) -> Result<Vec<String>, PlaygroundError> {
        self.converse(words, lines)
            .await
            .map_err(|source| PlaygroundError::Say { words: words.to_owned(), source })
    }

    /// Sends a command and reads one line of the answer.
    async fn say(&self, text: &str) -> std::io::Result<String> {
        Ok(self.converse(text, 1).await?.swap_remove(0))
    }

    /// Sends a command on a new connection.
    async fn converse(&self, words: &str, lines: usize) -> std::io::Result<Vec<String>> {
        let conversation = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            let login = if self.open { String::new() } else { format!("AUTH {ADMIN} {ADMIN}\r\n") };
            // After QUIT the server closes the connection, and that marks the end of the answer.
            stream.write_all(format!("{login}{words}\r\nQUIT\r\n").as_bytes()).await?;
            let mut answer = Vec::new();
            while stream.read_buf(&mut answer).await? > 0 {}
            let text = String::from_utf8_lossy(&answer);
            let read = text.lines().skip(usize::from(!self.open)).take(lines);
            let mut read: Vec<String> = read.map(str::to_owned).collect();
            if read.is_empty() {
                read.push(String::new());
            }
            Ok(read)
        };
        timeout(Duration::from_secs(10), conversation).await?
    }
}

fn server(
    program: Vec<String>,
    folder: &Path,
    socket: &Path,
    port: Option<u16>,
    options: &RedisOptions,
) -> Vec<String> {
    let mut words = program;
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
