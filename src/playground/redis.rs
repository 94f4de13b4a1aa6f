//! A Redis of our own, in a temporary folder.
//!
//! It keeps nothing on disk by itself. A snapshot can be taken and given back at a restart, which is
//! how one shows what a Redis does that comes back with yesterday's memory.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::reaper::{Plan, Reaper};
use super::{PlaygroundError, find, place};

/// How a private Redis shall be.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// Also listen on a free TCP port of this machine.
    pub tcp: bool,
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
}

impl PrivateRedis {
    /// Starts one on a Unix socket.
    pub async fn start() -> Result<Self, PlaygroundError> {
        Self::start_with(&RedisOptions::default()).await
    }

    /// Starts one and waits until it answers.
    pub async fn start_with(options: &RedisOptions) -> Result<Self, PlaygroundError> {
        let program = find::redis()?;
        let folder = place::fresh_folder(None);
        let socket = folder.join("redis.sock");
        let port = if options.tcp { Some(free_port()?) } else { None };
        let reaper = Reaper::start(Plan {
            name: "Redis",
            prepare: None,
            launch: server(&program, &folder, &socket, port, options),
            farewell: "KILL",
            folder,
            owner: None,
        })
        .await?;
        let server = PrivateRedis { reaper, socket, port, pid: AtomicU32::new(0) };
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

    /// Ends the server and waits until its folder is gone.
    pub async fn stop(self) -> Result<(), PlaygroundError> {
        self.reaper.stop().await
    }

    async fn launch(&self) -> Result<(), PlaygroundError> {
        self.pid.store(self.reaper.launch().await?, Ordering::Relaxed);
        // While it still loads a snapshot it answers, but not with PONG.
        self.reaper.until_up(|| async { self.say("PING").await.is_ok_and(|answer| answer == "+PONG") }).await
    }

    /// Says one word on a connection of its own; the answer is one line.
    async fn say(&self, word: &str) -> std::io::Result<String> {
        let conversation = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            stream.write_all(format!("{word}\r\n").as_bytes()).await?;
            let mut answer = Vec::new();
            while !answer.ends_with(b"\n") && stream.read_buf(&mut answer).await? > 0 {}
            Ok(String::from_utf8_lossy(&answer).trim_end().to_owned())
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

/// A port nobody listens on, below those that the kernel lends to outgoing connections: from among
/// these a client that knocks while the server is down could be given the very port, and talk to itself.
fn free_port() -> Result<u16, PlaygroundError> {
    let tried = std::iter::repeat_with(|| fastrand::u16(10_000..32_000)).take(100);
    tried
        .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|_| port))
        .find_map(Result::ok)
        .ok_or(PlaygroundError::NoPort)
}
