//! The bytes of one connection to the pretend bank: dates the first byte of each request, and cuts or resets answers.
//!
//! The date of a request is the time at which the kernel received its first byte. The bank's thread may read and
//! parse that byte later.

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

/// State that the layers of one connection share with the handler of its requests.
#[derive(Debug)]
pub(super) struct Wire {
    /// When the first byte of the request came, or [`WAITING`]; [`TAKEN`] when the handler has read the time.
    arrived_us: AtomicI64,
    /// When the first bytes came since the last answer or the end of the TLS handshake, encrypted or plain.
    began_us: AtomicI64,
    /// When the last bytes came.
    came_us: AtomicI64,
    /// How many more bytes the bank may write.
    allowed: AtomicUsize,
    /// Bytes to write instead of the answer, before the connection is closed.
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

    /// When the request that is now handled arrived, in microseconds since 1970.
    pub(super) fn take_arrival(&self) -> i64 {
        match self.arrived_us.swap(TAKEN, Relaxed) {
            WAITING | TAKEN => now_us(), // its bytes came together with the request before
            arrived => arrived,
        }
    }

    /// Says that the next byte belongs to the next request. Called when an answer is ready or a TLS handshake is
    /// over.
    pub(super) fn expect_next(&self) {
        self.began_us.store(WAITING, Relaxed);
        self.arrived_us.store(WAITING, Relaxed);
    }

    /// When bytes arrived that never became a request.
    pub(super) fn unfinished_arrival(&self) -> Option<i64> {
        Some(self.arrived_us.load(Relaxed)).filter(|arrived| *arrived > WAITING)
    }

    pub(super) fn cut_after(&self, bytes: usize) {
        self.allowed.store(bytes, Relaxed);
    }

    /// Writes these bytes instead of the answer, and then closes the connection.
    pub(super) fn write_instead(&self, bytes: &'static [u8]) {
        *locked(&self.instead) = Some(bytes);
    }

    /// Closes the connection with a reset.
    pub(super) fn reset(&self) {
        self.reset.store(true, Relaxed);
    }

    /// The kernel received bytes at this moment, encrypted or plain.
    fn bytes_came(&self, at_us: i64) {
        self.came_us.store(at_us, Relaxed);
        if self.began_us.load(Relaxed) == WAITING {
            self.began_us.store(at_us, Relaxed);
        }
    }

    /// Plain bytes of a request were read.
    fn request_came(&self) {
        if self.arrived_us.load(Relaxed) == WAITING {
            // Bytes that came together with the end of the handshake were read before the handshake was over.
            let began = Some(self.began_us.load(Relaxed)).filter(|began| *began > WAITING);
            self.arrived_us.store(began.unwrap_or_else(|| self.came_us.load(Relaxed)), Relaxed);
        }
    }
}

/// A socket whose bytes the kernel dates.
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

/// The stream that carries HTTP: the socket, or TLS over it.
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
            // The socket has room for a few bytes, so one write takes them all.
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
            return Poll::Ready(Ok(())); // after an orderly end there would be no reset
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Lets the kernel date the bytes of all connections that this socket will accept.
pub(super) fn date_arrivals(listener: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(listener, sockopt::ReceiveTimestampns, &true)?)
}

/// Reads available bytes. Returns their number and when the last of them came, in microseconds since 1970.
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

/// The time in microseconds since 1970, by the clock that dates the arrivals.
#[expect(
    clippy::disallowed_methods,
    reason = "the bank is another company with its own clock; here it has this machine's, which is Redis's too"
)]
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
