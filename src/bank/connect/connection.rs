//! One open connection to a bank, and what was measured while it was opened.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use jiff::Timestamp;

use crate::bank::door::Door;
use crate::bank::kernel::Ends;

/// An HTTP/1.1 connection to a bank, and the door that its bytes pass through.
#[derive(Debug)]
pub struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    pub door: Door,
    /// The connection's two addresses; `None` if the socket cannot name them.
    pub ends: Option<Ends>,
    /// When the connection was seen to be closed; empty while it is open.
    pub ended: Arc<OnceLock<Instant>>,
    /// How long DNS, TCP and TLS took together.
    pub set_up: Duration,
    /// How long TCP's connect took: about one round trip.
    pub tcp_connect: Duration,
    /// How long the TLS handshake took; `None` in clear text.
    pub handshake: Option<Duration>,
    /// When the first certificate that the bank showed ends; `None` in clear text.
    pub certificates_end: Option<Timestamp>,
    /// How many requests were answered on the connection.
    pub answered: u32,
    /// From this moment on the connection is reserved for no further request.
    pub renew_at: Instant,
}

impl Connection {
    /// The least age at which another connection takes its place, also if it is busy. Otherwise a busy node would notice for
    /// days neither a changed answer of DNS nor a certificate that ended.
    pub const LEAST_LIFE: Duration = Duration::from_mins(4);

    /// The end of the life of a connection that is opened now. Lives differ by up to half, so that not all end together.
    pub(super) fn end_of_life() -> Instant {
        Instant::now() + Self::LEAST_LIFE.mul_f64(1.0 + fastrand::f64() / 2.0)
    }
}
