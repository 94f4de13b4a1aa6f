//! One connection to the pretend bank, watched at its bytes.
//!
//! When a request arrived is when the kernel had its first byte, not when the bank's thread came to read it,
//! and not when it had been understood. And what a bank does at its worst happens to bytes: an answer is cut, a
//! connection is reset.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::{TimeSpec, TimeValLike};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::lock::locked;

const WAITING: i64 = 0;
const TAKEN: i64 = -1;

/// What the layers of one connection and the handler of its requests tell each other.
#[derive(Debug)]
pub(super) struct Wire {
    /// When the first byte of the request came, or [`WAITING`], or [`TAKEN`] by the handler.
    arrived_us: AtomicI64,
    /// When the first bytes came since the last answer or the end of the TLS handshake, sealed or plain.
    began_us: AtomicI64,
    /// When the last bytes came.
    came_us: AtomicI64,
    /// How many more bytes may leave.
    allowed: AtomicUsize,
    /// What is written instead of the answer, before the connection is closed.
    instead: Mutex<Option<&'static [u8]>>,
    reset: AtomicBool,
}

impl Wire {
    pub(super) fn new() -> Arc<Wire> {
        Arc::new(Wire {
            arrived_us: AtomicI64::new(WAITING),
            began_us: AtomicI64::new(WAITING),
            came_us: AtomicI64::new(WAITING),
            allowed: AtomicUsize::new(usize::MAX),
            instead: Mutex::new(None),
            reset: AtomicBool::new(false),
        })
    }

    /// When the request that is being handled arrived.
    pub(super) fn take_arrival(&self) -> i64 {
        match self.arrived_us.swap(TAKEN, Relaxed) {
            WAITING | TAKEN => now_us(), // it came together with the one before
            arrived => arrived,
        }
    }

    /// The answer is ready, or the TLS handshake is over: the next byte belongs to the next request.
    pub(super) fn expect_next(&self) {
        self.began_us.store(WAITING, Relaxed);
        self.arrived_us.store(WAITING, Relaxed);
    }

    /// When bytes came of which no request was ever made.
    pub(super) fn unfinished_arrival(&self) -> Option<i64> {
        Some(self.arrived_us.load(Relaxed)).filter(|arrived| *arrived > WAITING)
    }

    pub(super) fn cut_after(&self, bytes: usize) {
        self.allowed.store(bytes, Relaxed);
    }

    /// Writes these bytes instead of the answer, and then closes.
    pub(super) fn write_instead(&self, bytes: &'static [u8]) {
        *locked(&self.instead) = Some(bytes);
    }

    /// Closes with a reset instead of an end.
    pub(super) fn reset(&self) {
        self.reset.store(true, Relaxed);
    }

    /// The kernel had bytes at this moment, sealed or plain.
    fn bytes_came(&self, at_us: i64) {
        self.came_us.store(at_us, Relaxed);
        if self.began_us.load(Relaxed) == WAITING {
            self.began_us.store(at_us, Relaxed);
        }
    }

    /// Plain bytes of a request are there.
    fn request_came(&self) {
        if self.arrived_us.load(Relaxed) == WAITING {
            // The bytes of a request that came together with the end of the handshake came before it was over.
            let began = Some(self.began_us.load(Relaxed)).filter(|began| *began > WAITING);
            self.arrived_us.store(began.unwrap_or_else(|| self.came_us.load(Relaxed)), Relaxed);
        }
    }
}

/// A socket whose bytes are dated by the kernel.
#[derive(Debug)]
pub(super) struct Dated {
    stream: TcpStream,
    wire: Arc<Wire>,
}

impl Dated {
    pub(super) fn new(stream: TcpStream, wire: Arc<Wire>) -> Dated {
        Dated { stream, wire }
    }
}

impl AsyncRead for Dated {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let read = || receive(&self.stream, buf.initialize_unfilled());
            match self.stream.try_io(Interest::READABLE, read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok((length, came_us)) => {
                    buf.advance(length);
                    if length > 0 {
                        self.wire.bytes_came(came_us.unwrap_or_else(now_us));
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Dated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Dated {
    fn drop(&mut self) {
        if self.wire.reset.load(Relaxed) {
            self.stream.set_zero_linger().ok();
        }
    }
}

/// What HTTP is spoken over: the socket itself, or TLS on it.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    wire: Arc<Wire>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, wire: Arc<Wire>) -> Watched<S> {
        Watched { stream, wire }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.wire.request_came();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wire = Arc::clone(&self.wire);
        let mut instead = locked(&wire.instead);
        if let Some(bytes) = *instead {
            // A few bytes on a socket that has room: they go whole.
            ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
            *instead = None;
            wire.cut_after(0);
        }
        drop(instead);
        let allowed = self.wire.allowed.load(Relaxed);
        if allowed == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &bytes[..bytes.len().min(allowed)]))?;
        if allowed != usize::MAX {
            self.wire.cut_after(allowed - written);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.wire.allowed.load(Relaxed) == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.wire.reset.load(Relaxed) {
            return Poll::Ready(Ok(())); // an orderly end first would make the reset needless
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Has the kernel date what comes, on connections that this socket will accept.
pub(super) fn date_arrivals(listener: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(listener, sockopt::ReceiveTimestampns, &true)?)
}

/// Reads what is there, and when the last of it came.
fn receive(stream: &TcpStream, into: &mut [u8]) -> io::Result<(usize, Option<i64>)> {
    let mut dates = nix::cmsg_space!(TimeSpec);
    let mut pieces = [IoSliceMut::new(into)];
    let read = recvmsg::<()>(stream.as_raw_fd(), &mut pieces, Some(&mut dates), MsgFlags::empty())?;
    let came_us = read.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(at) => Some(at.num_microseconds()),
        _ => None,
    });
    Ok((read.bytes, came_us))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the bank is another company with its own clock; here it has this machine's, which is Redis's too"
)]
pub(super) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
