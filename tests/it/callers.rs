//! Who may do what over HTTP: real nodes, real tokens, and callers that try what they may not do.

mod attacks;
mod beyond_loopback;
mod certificates;
mod clocks;
mod deeds;
mod in_a_browser;
mod matrix;
mod moving;
mod places;
mod refusals;
mod reload;
mod two_people;
mod without_look;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use jiff::{SignedDuration, Timestamp};
use refundd::caller::token::Token;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::harness::node::Answer;
use crate::harness::{Scratch, TestNode, http};

/// Two channels that are open to callers, each with a limit of its own. Nothing is sent through them while they
/// cool.
pub const TWO_CHANNELS: &str = "[limit.acme]\npermits = 100\nper = \"1s\"\n[limit.other]\npermits = 100\nper = \"1s\"\n\
     [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n\
     [channel.other]\nendpoint = \"http://{bank}/other/refunds\"\nlimits = [\"other\"]\n";

/// The `[caller.*]` tables of a test, and the folder with their tokens.
pub struct CallerTables {
    folder: tempfile::TempDir,
    tables: String,
}

impl CallerTables {
    pub fn new() -> CallerTables {
        CallerTables { folder: tempfile::tempdir().unwrap(), tables: String::new() }
    }

    /// Adds a caller with a new token that is valid for an hour. `keys` are the other keys of its table.
    pub fn caller(&mut self, name: &str, keys: &str) -> Token {
        let token = Token::mint().unwrap();
        self.tokens(name, &[(&token, in_an_hour())]);
        let file = self.file(name);
        let table = format!("[caller.{name}]\ntokens_file = \"{}\"\n{keys}\n", file.display());
        self.tables.push_str(&table);
        token
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a caller's tokens file.
    fn tokens(&self, name: &str, tokens: &[(&Token, Timestamp)]) {
        let lines: Vec<String> = tokens.iter().map(|(token, ends)| token.stored(*ends).to_string()).collect();
        std::fs::write(self.file(name), lines.join("\n")).unwrap();
        std::fs::set_permissions(self.file(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// A configuration file: these channels, then the callers.
    pub fn with_channels(&self, channels: &str) -> String {
        format!("{channels}{}", self.tables)
    }

    /// A node with these callers, whose two channels cool.
    pub async fn node(&self, scratch: &Scratch) -> TestNode {
        self.node_with(scratch, TWO_CHANNELS).await
    }

    /// The same, with a file of more channels.
    pub async fn node_with(&self, scratch: &Scratch, channels: &str) -> TestNode {
        let node = TestNode::start(scratch, "a", &self.with_channels(channels)).await;
        let cool = "update refundd.channels set cool_until = now() + interval '1 hour', cool_reason = 'so that nothing is sent'
                     where channel in ('acme', 'other')";
        assert_eq!(scratch.sql(cool).await, 2);
        node
    }
}

fn in_an_hour() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(1)
}

/// A request of the caller with this token, or of a program without one.
async fn ask(node: &TestNode, token: Option<&Token>, method: Method, path: &str, body: &Value) -> Answer {
    let bearer = token.map(bearer);
    let mut headers: Vec<(&str, &str)> =
        bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    if !body.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    node.request_with(method, path, &headers, &body).await
}

fn bearer(token: &Token) -> String {
    format!("Bearer {}", token.expose())
}

/// What a browser sends when somebody logs in with this token as password.
pub fn basic(user: &str, token: &Token) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{}", token.expose())))
}

/// Sends a form of the page as a browser does: with its origin, the cookie, and the cookie's value as the form's key.
pub async fn post_form(node: &TestNode, authorization: Option<&str>, path: &str, fields: &str) -> Answer {
    let key = "0123456789abcdef0123456789abcdef";
    let (origin, cookie) = (format!("http://{}", node.daemon.address()), format!("refundd_form={key}"));
    let mut headers = vec![
        ("content-type", "application/x-www-form-urlencoded"),
        ("accept", "text/html"),
        ("origin", origin.as_str()),
        ("cookie", cookie.as_str()),
    ];
    headers.extend(authorization.map(|value| ("authorization", value)));
    node.request_with(Method::POST, path, &headers, &format!("key={key}&{fields}")).await
}

pub async fn post(node: &TestNode, token: &Token, path: &str, body: &Value) -> Answer {
    ask(node, Some(token), Method::POST, path, body).await
}

pub async fn get(node: &TestNode, token: &Token, path: &str) -> Answer {
    ask(node, Some(token), Method::GET, path, &Value::Null).await
}

/// The status of a GET from a node that is a process, and the whole answer.
pub async fn get_at(address: &str, token: Option<&Token>, path: &str) -> (u16, String) {
    let stream = TcpStream::connect(address).await.unwrap();
    ask_on(stream, token, &format!("GET {path}"), "").await.unwrap()
}

/// The status of one request on a new connection, and the whole answer; an error if there is none.
pub async fn ask_on(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    token: Option<&Token>,
    request: &str,
    body: &str,
) -> io::Result<(u16, String)> {
    let bearer = token.map(|token| format!("Bearer {}", token.expose()));
    let mut headers = vec![http::JSON];
    headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    let answer = http::ask_on(stream, "localhost", request, &headers, body).await?;
    let status = http::status(&answer).ok_or_else(|| io::Error::other(format!("no answer: {answer}")))?;
    Ok((status, answer))
}
