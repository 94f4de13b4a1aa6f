//! A proxy between the store and Postgres, on one connection. It knows the frames of Postgres's protocol.
//!
//! - It may change the text of a statement on its way. So a known mistake gets into the shipped statements, and the
//!   product needs no hook for it.
//! - It sends Postgres the time in the same write as the next statement, and reads the rows right after that
//!   statement. So a step costs one round trip and not three.
//! - The simulation's own statements use the same connection: a run is one transaction that is never committed.
//!
//! The proxy does not interleave: the store and the simulation never send at the same time.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, MutexGuard};

/// Returns the text to send in place of a statement, if it changes the statement.
pub type Rewrite = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The name that Postgres gives to the socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// The statement that sets the clock; the simulation's own ones are named by their number.
const TELL: &str = "sim_tell";
const TELL_TEXT: &str = "select set_config('sim.at', $1, false)";

/// A row's columns, in binary; `None` is null.
pub type Columns = Vec<Option<Vec<u8>>>;

#[derive(Debug)]
pub struct Wire {
    /// The folder of the proxy's socket. The store takes it for the server's folder.
    pub folder: String,
    connection: Arc<Mutex<Connection>>,
}

#[derive(Debug, Default)]
struct Connection {
    server: Option<Frames>,
    /// The time to send to Postgres before the next statement, if it changed.
    time: Option<String>,
    /// The number of the simulation's statement that runs right after the store's next statement.
    next: Option<usize>,
    /// The rows of that statement.
    seen: Option<Vec<Columns>>,
    /// How often the store connected.
    connected: u32,
}

impl Wire {
    /// Listens in a new folder within the server's folder, and is deleted with it. `own` are the simulation's
    /// statements.
    pub fn start(server: &str, own: &'static [&'static str], rewrite: Option<Rewrite>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = format!("{server}/wire{}", COUNT.fetch_add(1, Ordering::Relaxed));
        std::fs::create_dir(&folder).unwrap();
        let listener = UnixListener::bind(format!("{folder}/{SOCKET}")).unwrap();
        let server = format!("{server}/{SOCKET}");
        let connection = Arc::<Mutex<Connection>>::default();
        let shared = Arc::clone(&connection);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = UnixStream::connect(&server).await else { return };
                let (connection, rewrite) = (Arc::clone(&shared), rewrite.clone());
                tokio::spawn(async move {
                    // An error means that the store or Postgres closed its end.
                    let _ = carry(Frames::new(client), Frames::new(server), &connection, own, rewrite).await;
                });
            }
        });
        Wire { folder, connection }
    }

    /// How often the store connected. A lost connection loses its uncommitted run.
    pub async fn connected(&self) -> u32 {
        self.connection.lock().await.connected
    }

    /// Makes Postgres's clock show `time` from the next statement on.
    pub async fn tell(&self, time: String) {
        self.connection.lock().await.time = Some(time);
    }

    /// Runs one of the simulation's statements right after the store's next statement.
    pub async fn then(&self, own: usize) {
        let mut connection = self.connection.lock().await;
        (connection.next, connection.seen) = (Some(own), None);
    }

    /// The rows of the statement given to [`Wire::then`]; `None` if the store has run nothing since.
    pub async fn seen(&self) -> Option<Vec<Columns>> {
        let mut connection = self.connection.lock().await;
        connection.next = None;
        connection.seen.take()
    }

    /// Runs one of the simulation's statements now, and returns its rows.
    pub async fn ask(&self, own: usize, value: Option<&str>) -> Vec<Columns> {
        let mut message = Vec::new();
        bind_and_execute(&mut message, &own.to_string(), value);
        message.extend(frame(b'S', &[]));
        self.exchange(&message).await
    }

    /// Runs statements and ignores their rows. Cancels the statement given to [`Wire::then`].
    pub async fn execute(&self, text: &str) {
        self.seen().await;
        let message = frame(b'Q', &[text.as_bytes(), b"\0"].concat());
        self.exchange(&message).await;
    }

    async fn exchange(&self, message: &[u8]) -> Vec<Columns> {
        let mut connection = self.connection.lock().await;
        let server = connection.server.as_mut().expect("the store is connected");
        server.stream.write_all(message).await.unwrap();
        server.answer().await.unwrap().unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Carries the store's statements to Postgres, and the answers back, until one end closes.
async fn carry(
    mut client: Frames,
    mut server: Frames,
    connection: &Mutex<Connection>,
    own: &[&str],
    rewrite: Option<Rewrite>,
) -> Result<()> {
    let first = client.first().await?;
    server.stream.write_all(&first).await?;
    let mut reply = Vec::new();
    server.reply(&mut reply).await?;
    client.stream.write_all(&reply).await?;
    let mut prepare = Vec::new();
    for (name, text) in own
        .iter()
        .enumerate()
        .map(|(nth, text)| (nth.to_string(), *text))
        .chain([(TELL.to_owned(), TELL_TEXT)])
    {
        prepare.extend(frame(b'P', &[name.as_bytes(), b"\0", text.as_bytes(), b"\0\0\0"].concat()));
    }
    prepare.extend(frame(b'S', &[]));
    server.stream.write_all(&prepare).await?;
    server.answer().await?.map_err(Error::other)?;
    let mut locked = connection.lock().await;
    (locked.server, locked.connected) = (Some(server), locked.connected + 1);
    drop(locked);
    loop {
        let (mut batch, mut executes) = (Vec::new(), false);
        loop {
            let (kind, body) = client.message().await?;
            let changed = match (kind, &rewrite) {
                (b'P', Some(rewrite)) => changed(body, rewrite),
                (b'X', _) => return Ok(()),
                _ => None,
            };
            executes |= kind == b'E';
            batch.extend(frame(kind, changed.as_deref().unwrap_or(body)));
            if matches!(kind, b'S' | b'Q' | b'H' | b'c' | b'f') {
                break;
            }
        }
        pass_on(&batch, executes, &mut client, connection.lock().await).await?;
    }
}

async fn pass_on(
    batch: &[u8],
    executes: bool,
    client: &mut Frames,
    mut connection: MutexGuard<'_, Connection>,
) -> Result<()> {
    let mut message = Vec::new();
    let time = connection.time.take_if(|_| executes);
    if let Some(time) = &time {
        bind_and_execute(&mut message, TELL, Some(time));
    }
    message.extend(batch);
    let next = connection.next.filter(|_| executes);
    if let Some(next) = next {
        bind_and_execute(&mut message, &next.to_string(), None);
        message.extend(frame(b'S', &[]));
    }
    let server = connection.server.as_mut().ok_or(ErrorKind::NotConnected)?;
    server.stream.write_all(&message).await?;
    if time.is_some() {
        // The replies to the time: bound, one row, complete.
        while !matches!(server.message().await?.0, b'C' | b'E') {}
    }
    let mut reply = Vec::new();
    server.reply(&mut reply).await?;
    if next.is_some() {
        // After a statement that failed, Postgres refuses this one, and there are no rows.
        connection.seen = connection.server.as_mut().ok_or(ErrorKind::NotConnected)?.answer().await?.ok();
    }
    drop(connection);
    client.stream.write_all(&reply).await
}

/// One end of the connection, read frame by frame.
#[derive(Debug)]
struct Frames {
    stream: UnixStream,
    buffer: Vec<u8>,
    at: usize,
}

impl Frames {
    fn new(stream: UnixStream) -> Self {
        Frames { stream, buffer: Vec::with_capacity(16_384), at: 0 }
    }

    async fn need(&mut self, bytes: usize) -> Result<()> {
        while self.buffer.len() - self.at < bytes {
            if self.at > 0 {
                self.buffer.drain(..self.at);
                self.at = 0;
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn length_at(&self, at: usize) -> usize {
        let bytes = [self.buffer[at], self.buffer[at + 1], self.buffer[at + 2], self.buffer[at + 3]];
        u32::from_be_bytes(bytes) as usize
    }

    /// The first message has no byte for its kind.
    async fn first(&mut self) -> Result<Vec<u8>> {
        self.need(4).await?;
        let length = self.length_at(self.at);
        self.need(length).await?;
        let message = self.buffer[self.at..self.at + length].to_vec();
        self.at += length;
        Ok(message)
    }

    /// A message: the byte that names its kind, and its body.
    async fn message(&mut self) -> Result<(u8, &[u8])> {
        self.need(5).await?;
        let length = self.length_at(self.at + 1);
        self.need(length + 1).await?;
        let (kind, from) = (self.buffer[self.at], self.at + 5);
        self.at += length + 1;
        Ok((kind, &self.buffer[from..self.at]))
    }

    /// Adds all messages of an answer to `reply`. The status always says "idle": the store must not see the run's
    /// transaction.
    async fn reply(&mut self, reply: &mut Vec<u8>) -> Result<()> {
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'Z' => reply.extend(frame(kind, b"I")),
                _ => reply.extend(frame(kind, body)),
            }
            if matches!(kind, b'Z' | b'G') {
                return Ok(());
            }
        }
    }

    /// The rows of an answer to the simulation, or Postgres's error.
    async fn answer(&mut self) -> Result<std::result::Result<Vec<Columns>, String>> {
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            match self.message().await? {
                (b'D', body) => rows.push(columns(body)),
                (b'E', body) => error = Some(String::from_utf8_lossy(body).replace('\0', " ")),
                (b'Z', _) => return Ok(error.map_or(Ok(rows), Err)),
                _ => {}
            }
        }
    }
}

fn columns(body: &[u8]) -> Columns {
    let mut rest = &body[2..];
    let mut columns = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            columns.push(None);
            rest = after;
            continue;
        };
        columns.push(Some(after[..length].to_vec()));
        rest = &after[length..];
    }
    columns
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(body.len() + 5);
    frame.push(kind);
    frame.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    frame.extend(body);
    frame
}

/// Adds the messages that bind a prepared statement, with one value as text or none, and run it. The columns come in
/// binary.
fn bind_and_execute(message: &mut Vec<u8>, name: &str, value: Option<&str>) {
    let mut body = [b"\0", name.as_bytes(), b"\0\0\0"].concat();
    body.extend(u16::from(value.is_some()).to_be_bytes());
    if let Some(value) = value {
        body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(value.as_bytes());
    }
    body.extend([0, 1, 0, 1]);
    message.extend(frame(b'B', &body));
    message.extend(frame(b'E', &[0; 5]));
}

/// Rewrites a `Parse` message: the statement's name, its text, and the types of its parameters.
fn changed(message: &[u8], rewrite: &Rewrite) -> Option<Vec<u8>> {
    let name = message.iter().position(|byte| *byte == 0)? + 1;
    let end = name + message[name..].iter().position(|byte| *byte == 0)?;
    let text = rewrite(std::str::from_utf8(&message[name..end]).ok()?)?;
    Some([&message[..name], text.as_bytes(), &message[end..]].concat())
}
