//! A receiver of webhooks that takes every message at once, and counts different ones. It checks no signature; the
//! tests do.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use playground::load::ANY;
use tempfile::TempDir;
use tokio::net::TcpListener;

#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    folder: TempDir,
    ids: Arc<Mutex<HashSet<Bytes>>>,
}

impl Receiver {
    pub async fn open() -> anyhow::Result<Receiver> {
        let folder = TempDir::new()?;
        // Only its owner may read the file.
        let mut secret = OpenOptions::new();
        let mut secret =
            secret.write(true).create_new(true).mode(0o600).open(folder.path().join("secret"))?;
        writeln!(secret, "whsec_{}", STANDARD.encode([7; 32]))?;
        let listener = TcpListener::bind(ANY).await?;
        let receiver = Receiver { address: listener.local_addr()?, folder, ids: Arc::default() };
        tokio::spawn(serve(listener, Arc::clone(&receiver.ids)));
        Ok(receiver)
    }

    /// The section `[notify]` that leads here.
    pub fn section(&self) -> String {
        let secret = self.folder.path().join("secret");
        format!("[notify]\nurl = \"http://{}/hook\"\nsecret_file = \"{}\"\n", self.address, secret.display())
    }

    /// How many different messages it has taken.
    pub fn taken(&self) -> u64 {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

async fn serve(listener: TcpListener, ids: Arc<Mutex<HashSet<Bytes>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let ids = Arc::clone(&ids);
        let service = service_fn(move |request| take(request, Arc::clone(&ids)));
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

async fn take(
    request: Request<Incoming>,
    ids: Arc<Mutex<HashSet<Bytes>>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut answer = Response::new(Empty::new());
    *answer.status_mut() = match (body.collect().await, head.headers.get("webhook-id")) {
        (Ok(_), Some(id)) => {
            let id = Bytes::copy_from_slice(id.as_bytes());
            ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
            StatusCode::NO_CONTENT
        }
        _ => StatusCode::BAD_REQUEST,
    };
    Ok(answer)
}
