//! How long the bank keeps a connection that carries no request, and what its answers say of that.

use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use tokio::sync::watch;
use tokio::time::timeout_at;

/// How long the bank keeps idle connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeps {
    pub(super) idle: Duration,
    /// The `timeout` of the `Keep-Alive` header.
    pub(super) announced_s: u64,
}

/// When one connection is closed. A connection that has answered nothing yet is not idle.
#[derive(Debug)]
pub(super) struct Keeping(watch::Sender<Option<Instant>>);

impl Default for Keeping {
    fn default() -> Self {
        Keeping(watch::Sender::new(None))
    }
}

impl Keeping {
    /// A request was read.
    pub(super) fn begins(&self) {
        self.0.send_if_modified(|closes| closes.take().is_some());
    }

    /// The request is answered. The answer gets the header.
    pub(super) fn answers(&self, keeps: Keeps, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_str(&format!("timeout={}", keeps.announced_s)) {
            headers.insert("keep-alive", value);
        }
        self.0.send_replace(Some(Instant::now() + keeps.idle));
    }

    /// Returns when the connection has been idle for too long.
    pub(super) async fn is_over(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let closes = *changes.borrow_and_update();
            match closes {
                None => drop(changes.changed().await),
                Some(closes) => match timeout_at(closes.into(), changes.changed()).await {
                    Ok(_) => {}
                    Err(_) => return,
                },
            }
        }
    }
}
