//! The frames of Postgres's protocol.

use std::io::{ErrorKind, Result};

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// A row's columns, in binary; `None` is null.
pub type Columns = Vec<Option<Vec<u8>>>;

/// One end of the connection, read frame by frame.
#[derive(Debug)]
pub struct Frames {
    pub stream: UnixStream,
    buffer: Vec<u8>,
    at: usize,
}

impl Frames {
    pub fn new(stream: UnixStream) -> Self {
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
    pub async fn first(&mut self) -> Result<Vec<u8>> {
        self.need(4).await?;
        let length = self.length_at(self.at);
        self.need(length).await?;
        let message = self.buffer[self.at..self.at + length].to_vec();
        self.at += length;
        Ok(message)
    }

    /// A message: the byte that names its kind, and its body.
    pub async fn message(&mut self) -> Result<(u8, &[u8])> {
        self.need(5).await?;
        let length = self.length_at(self.at + 1);
        self.need(length + 1).await?;
        let (kind, from) = (self.buffer[self.at], self.at + 5);
        self.at += length + 1;
        Ok((kind, &self.buffer[from..self.at]))
    }

    /// Adds all messages of an answer to `reply`. The status always says "idle": the store must not see the run's
    /// transaction.
    pub async fn reply(&mut self, reply: &mut Vec<u8>) -> Result<()> {
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
    pub async fn answer(&mut self) -> Result<std::result::Result<Vec<Columns>, String>> {
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

/// A column of eight bytes as a number; `None` is null.
pub fn number(columns: &Columns, nth: usize) -> Option<i64> {
    columns[nth].as_deref().map(|bytes| i64::from_be_bytes(bytes.try_into().unwrap()))
}

pub fn text(columns: &Columns, nth: usize) -> &str {
    columns[nth].as_deref().map(|bytes| std::str::from_utf8(bytes).unwrap()).unwrap_or_default()
}

pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(body.len() + 5);
    frame.push(kind);
    frame.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    frame.extend(body);
    frame
}

/// Adds the messages that bind a prepared statement, with one value as text or none, and run it. The columns come in
/// binary.
pub fn bind_and_execute(message: &mut Vec<u8>, name: &str, value: Option<&str>) {
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
