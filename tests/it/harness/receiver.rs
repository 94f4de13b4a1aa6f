//! A receiver of webhooks: a real server over HTTP or HTTPS that checks every signature, and keeps what arrives.
//!
//! It follows Standard Webhooks with code of its own. It can refuse, hang, and be killed and come back at its address.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{Pending, pending};
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use playground::Authority;
use rustls::ServerConfig;
use serde_json::Value;
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

const KEY: [u8; 24] = *b"a secret of twenty-four!";

/// One message that arrived whole.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Its `webhook-id`.
    pub id: String,
    pub cursor: i64,
    pub refund_id: i64,
    pub state: String,
    /// Whether the receiver answered that it has taken the message.
    pub taken: bool,
}

/// What the receiver does with a message.
#[derive(Debug, Clone, Copy)]
pub enum Reply {
    Status(u16),
    /// 200 with a page of 70 KiB.
    LongPage,
    /// 200 with a body that does not end.
    EndlessPage,
    /// No answer, while the connection stays open.
    Silence,
}

#[derive(Debug)]
struct Books {
    arrivals: Vec<Arrival>,
    wrong: Vec<String>,
    next: VecDeque<Reply>,
    then: Reply,
    /// Refunds about which every message is refused.
    refused: Vec<i64>,
}

pub struct Receiver {
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    ca_file: Option<PathBuf>,
    folder: tempfile::TempDir,
    books: Arc<Mutex<Books>>,
    server: Mutex<Option<tokio::runtime::Runtime>>,
}

impl Receiver {
    /// Starts one that takes everything; with an authority it speaks TLS.
    pub fn start(authority: Option<&Authority>) -> Receiver {
        let tls = authority.map(|authority| {
            let identity = authority.identity().unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let config = config.unwrap().with_no_client_auth();
            TlsAcceptor::from(Arc::new(config.with_single_cert(identity.certificates, identity.key).unwrap()))
        });
        let folder = tempfile::tempdir().unwrap();
        let mut options = std::fs::OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(folder.path().join("secret")).unwrap();
        writeln!(file, "whsec_{}", STANDARD.encode(KEY)).unwrap();
        let books = Books {
            arrivals: Vec::new(),
            wrong: Vec::new(),
            next: VecDeque::new(),
            then: Reply::Status(200),
            refused: Vec::new(),
        };
        let mut receiver = Receiver {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls,
            ca_file: authority.map(Authority::file),
            folder,
            books: Arc::new(Mutex::new(books)),
            server: Mutex::new(None),
        };
        receiver.address = receiver.open();
        receiver
    }

    /// The section `[notify]` that leads here.
    pub fn section(&self) -> String {
        let secret = self.folder.path().join("secret");
        let (scheme, ca) = match &self.ca_file {
            Some(file) => ("https", format!("ca_file = \"{}\"\n", file.display())),
            None => ("http", String::new()),
        };
        format!(
            "[notify]\nurl = \"{scheme}://{}/hook?key=canary\"\nsecret_file = \"{}\"\n{ca}",
            self.address,
            secret.display()
        )
    }

    /// The status of every answer from now on.
    pub fn answers(&self, status: u16) {
        self.books.lock().unwrap().then = Reply::Status(status);
    }

    /// What it does with the next messages, one after the other.
    pub fn next(&self, replies: impl IntoIterator<Item = Reply>) {
        self.books.lock().unwrap().next.extend(replies);
    }

    /// Refuses every message about these refunds from now on.
    pub fn refuses(&self, refunds: &[i64]) {
        self.books.lock().unwrap().refused = refunds.to_vec();
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        let books = self.books.lock().unwrap();
        assert!(books.wrong.is_empty(), "{:#?}", books.wrong);
        books.arrivals.clone()
    }

    /// The state in each message that was taken, by cursor; a message that came twice stands once.
    pub fn taken(&self) -> BTreeMap<i64, String> {
        let arrivals = self.arrivals().into_iter().filter(|arrival| arrival.taken);
        arrivals.map(|arrival| (arrival.cursor, arrival.state)).collect()
    }

    /// Ends the server at once: its connections break, and its port is closed.
    pub fn kill(&self) {
        if let Some(server) = self.server.lock().unwrap().take() {
            server.shutdown_background();
        }
    }

    /// Comes back at its address.
    pub fn revive(&self) {
        self.open();
    }

    fn open(&self) -> SocketAddr {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (books, tls) = (Arc::clone(&self.books), self.tls.clone());
        let socket = socket(self.address);
        let address = socket.local_addr().unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(socket).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (books, tls) = (Arc::clone(&books), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, books).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, books).await;
                            }
                        }
                    }
                });
            }
        });
        *self.server.lock().unwrap() = Some(runtime);
        address
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that may still have connections of the server before.
fn socket(address: SocketAddr) -> std::net::TcpListener {
    loop {
        match std::net::TcpListener::bind(address) {
            Ok(listener) => {
                listener.set_nonblocking(true).unwrap();
                return listener;
            }
            // The server before is ending.
            Err(_) => std::thread::park_timeout(Duration::from_millis(10)),
        }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, books: Arc<Mutex<Books>>) {
    let service = service_fn(|request| take(request, Arc::clone(&books)));
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

type Page = Either<Full<Bytes>, StreamBody<Pending<Result<Frame<Bytes>, Infallible>>>>;

async fn take(request: Request<Incoming>, books: Arc<Mutex<Books>>) -> Result<Response<Page>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return std::future::pending().await };
    let body = body.to_bytes();
    let reply = {
        let mut books = books.lock().unwrap();
        match read(&head, &body) {
            Err(wrong) => {
                books.wrong.push(wrong);
                Reply::Status(400)
            }
            Ok(arrival) if books.refused.contains(&arrival.refund_id) => {
                books.arrivals.push(arrival);
                Reply::Status(422)
            }
            Ok(arrival) => {
                let reply = books.next.pop_front().unwrap_or(books.then);
                let taken = !matches!(reply, Reply::Silence | Reply::Status(..200 | 300..));
                books.arrivals.push(Arrival { taken, ..arrival });
                reply
            }
        }
    };
    let (status, page) = match reply {
        Reply::Silence => std::future::pending().await,
        Reply::Status(status) => (status, Either::Left(Full::default())),
        Reply::LongPage => (200, Either::Left(vec![b'x'; 70 * 1024].into())),
        Reply::EndlessPage => (200, Either::Right(StreamBody::new(pending()))),
    };
    // A client that follows redirects would come back with a GET.
    let answer = Response::builder().status(status).header("location", "/elsewhere");
    Ok(answer.body(page).unwrap())
}

/// Checks a message as the standard says.
fn read(head: &hyper::http::request::Parts, body: &[u8]) -> Result<Arrival, String> {
    let header = |name: &str| {
        let value = head.headers.get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned).ok_or(format!("no header {name}"))
    };
    let (id, sent_at, signatures) =
        (header("webhook-id")?, header("webhook-timestamp")?, header("webhook-signature")?);
    if (head.method.as_str(), head.uri.path(), head.uri.query()) != ("POST", "/hook", Some("key=canary")) {
        return Err(format!("{} {}", head.method, head.uri));
    }
    if header("content-type")? != "application/json" || id.contains('.') {
        return Err(format!("{head:?}"));
    }
    #[expect(clippy::disallowed_methods, reason = "a receiver compares the time with its own clock")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seconds: u64 = sent_at.parse().map_err(|_| format!("the time {sent_at}"))?;
    if now.abs_diff(seconds) > 300 {
        return Err(format!("the time {seconds}, at {now}"));
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(&KEY).unwrap();
    for part in [id.as_bytes(), b".", sent_at.as_bytes(), b".", body] {
        mac.update(part);
    }
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    if !signatures.split(' ').any(|signature| signature == expected) {
        return Err(format!("the signature {signatures} of {id}"));
    }
    let message: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let data = &message["data"];
    let text = |name: &str| data[name].as_str().map(str::to_owned).ok_or(format!("{name} of {message}"));
    let state = text("state")?;
    if message["type"] != format!("refund.{state}") || message["timestamp"] != data["at"] {
        return Err(message.to_string());
    }
    let cursor = text("cursor")?.parse().map_err(|_| format!("the cursor of {message}"))?;
    let refund_id = data["refund_id"].as_i64().ok_or(format!("the refund of {message}"))?;
    Ok(Arrival { id, cursor, refund_id, state, taken: false })
}
