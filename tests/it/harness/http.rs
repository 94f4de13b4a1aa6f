//! Plain requests, each on a connection of its own.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};

pub const JSON: (&str, &str) = ("content-type", "application/json");

/// The status and the body of a GET; `None` if nobody answers.
pub async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let text = ask(address, &format!("GET {path}"), &[], "").await.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((status(head)?, body.to_owned()))
}

/// Sends a request such as "GET /metrics". Returns the whole answer, its status line and headers included.
pub async fn ask(
    address: impl ToSocketAddrs,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<String> {
    ask_on(TcpStream::connect(address).await?, "localhost", request, headers, body).await
}

/// As [`ask`], on this new connection.
pub async fn ask_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<String> {
    let mut text = format!("{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    for (name, value) in headers {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    write!(text, "content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream.write_all(text.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

pub fn status(answer: &str) -> Option<u16> {
    answer.split(' ').nth(1)?.parse().ok()
}
