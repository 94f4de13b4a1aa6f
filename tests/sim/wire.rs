//! A proxy between the store and Postgres, on one connection. It knows the frames of Postgres's protocol.
//!
//! - It may change the text of a statement on its way. So a known mistake gets into the shipped statements, and the
//!   product needs no hook for it.
//! - It sends Postgres the time in the same write as the next statement, and reads the rows right after that
//!   statement. So a step costs one round trip and not three.
//! - The simulation's own statements use the same connection: a run is one transaction that is never committed.
//!
//! The proxy does not interleave: the store and the simulation never send at the same time.

mod frames;

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, MutexGuard};

pub use frames::{Columns, number, text};
use frames::{Frames, bind_and_execute, frame};

/// Returns the text to send in place of a statement, if it changes the statement.
pub type Rewrite = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The name that Postgres gives to the socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// The statement that sets the clock; the simulation's own ones are named by their number.
const TELL: &str = "sim_tell";
const TELL_TEXT: &str = "select set_config('sim.at', $1, false)";

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

/// Rewrites a `Parse` message: the statement's name, its text, and the types of its parameters.
fn changed(message: &[u8], rewrite: &Rewrite) -> Option<Vec<u8>> {
    let name = message.iter().position(|byte| *byte == 0)? + 1;
    let end = name + message[name..].iter().position(|byte| *byte == 0)?;
    let text = rewrite(std::str::from_utf8(&message[name..end]).ok()?)?;
    Some([&message[..name], text.as_bytes(), &message[end..]].concat())
}
