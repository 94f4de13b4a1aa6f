//! The door: every byte to a bank passes through it, and the door records whether a byte has passed.
//!
//! The door lets the first byte of a request pass only before the send deadline, and only if the machine has not slept since the
//! claim. It checks both right before the write. Once the door is shut, this process passes no more bytes of that request to the kernel. So the result
//! "nothing was written" stays true after it was reported.
//!
//! The kernel still has bytes of a request that was given up, and would repeat them for up to minutes. So a given-up request ends the stream's use:
//! the stream is dropped, and its socket has no linger time ([`super::connect`]), so that the kernel drops the bytes and sends a reset.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use super::slept::Slept;
use crate::crash;
use crate::lock::Lock;

#[derive(Debug)]
enum State {
    /// No request is under way.
    Shut,
    /// A request may start before the deadline.
    Open(SendDeadline),
    /// Bytes of the request may have left.
    Passed { first_byte: Instant },
    /// The first byte came after the deadline and was not written.
    TooLate,
    /// A request was given up. TLS may have kept bytes of it, so the stream neither writes nor flushes any more.
    GivenUp,
}

/// The latest moment for the first byte of a request, and perhaps a channel that reports a first byte that left later.
#[derive(Debug, Clone)]
pub struct SendDeadline {
    pub closes: Instant,
    /// This machine's sleep when the deadline began to count.
    slept: Slept,
    late: Option<mpsc::Sender<Instant>>,
}

impl SendDeadline {
    /// A deadline at `closes`, measured since the machine had `slept`, without a report of a late first byte.
    pub fn at(closes: Instant, slept: Slept) -> SendDeadline {
        SendDeadline { closes, slept, late: None }
    }

    /// A deadline at `closes`, measured since the machine had `slept`. The receiver gets the moment of a late first byte right
    /// after the write, long before the bank answers.
    pub fn reporting(closes: Instant, slept: Slept) -> (SendDeadline, mpsc::Receiver<Instant>) {
        let (late, was_late) = mpsc::channel(1);
        (SendDeadline { closes, slept, late: Some(late) }, was_late)
    }

    /// Whether no first byte may leave any more at this moment.
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.closes || self.slept.has_slept_since()
    }
}

/// What passed the door of one request.
#[derive(Debug, Clone, Copy)]
pub enum Passed {
    Nothing,
    TooLate,
    Yes { first_byte: Instant },
}

/// The client opens and shuts the door; the connection's stream writes through it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Door(Arc<Mutex<State>>);

impl Door {
    pub fn new() -> Self {
        Door(Arc::new(Mutex::new(State::Shut)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }

    /// Lets one request pass if its first byte comes before the deadline.
    pub fn open(&self, deadline: SendDeadline) {
        *self.state() = State::Open(deadline);
    }

    /// Gives the request up and returns what passed of it. Nothing passes the door afterwards.
    pub fn shut(&self) -> Passed {
        self.end(State::GivenUp)
    }

    /// Ends a request whose whole answer was read, and returns what passed of it. The next request may follow.
    pub fn answered(&self) -> Passed {
        self.end(State::Shut)
    }

    fn end(&self, next: State) -> Passed {
        match std::mem::replace(&mut *self.state(), next) {
            State::Shut | State::Open(_) | State::GivenUp => Passed::Nothing,
            State::TooLate => Passed::TooLate,
            State::Passed { first_byte } => Passed::Yes { first_byte },
        }
    }

    /// Flushes or ends the stream, unless a request was given up. The lock is kept meanwhile, because TLS may write then.
    fn finish(&self, finish: impl FnOnce() -> Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        let state = self.state();
        match &*state {
            State::GivenUp => Poll::Ready(Err(io::Error::other("the request was given up"))),
            State::Shut | State::Open(_) | State::Passed { .. } | State::TooLate => finish(),
        }
    }

    /// Writes through the door. The lock is kept during the write, so that no byte leaves after `shut`.
    ///
    /// `exact` is true for a bare socket: a write that the socket refused has taken no byte. TLS may have passed
    /// bytes on although its write failed, so there the call alone counts as a first byte.
    fn pass(&self, exact: bool, write: impl FnOnce() -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        match &*state {
            State::Passed { .. } => write(),
            State::Open(deadline) => {
                let now = Instant::now();
                if deadline.is_over(now) {
                    *state = State::TooLate;
                    return Poll::Ready(Err(io::Error::other("the permit's span is over")));
                }
                let written = write();
                if !exact || matches!(written, Poll::Ready(Ok(count)) if count > 0) {
                    // The process may have stalled between the check and the write, so that the byte left late. The
                    // later moment is recorded then: it shows that the byte left after the span.
                    let after = Instant::now();
                    let first_byte = if after >= deadline.closes { after } else { now };
                    if let Some(late) = deadline.late.as_ref().filter(|_| after >= deadline.closes) {
                        late.try_send(after).ok();
                    }
                    *state = State::Passed { first_byte };
                    crash::point("sent");
                }
                written
            }
            State::Shut | State::TooLate | State::GivenUp => {
                Poll::Ready(Err(io::Error::other("no request is under way")))
            }
        }
    }
}

/// A stream that writes through a door.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    door: Door,
    exact: bool,
}

impl<S> Guarded<S> {
    /// `exact` says that a write that fails or would block has taken no byte. It is true for a bare socket.
    pub fn new(stream: S, door: Door, exact: bool) -> Self {
        Guarded { stream, door, exact }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Guarded { stream, door, exact } = self.get_mut();
        door.pass(*exact, || Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Guarded { stream, door, exact } = self.get_mut();
        door.pass(*exact, || Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Guarded { stream, door, .. } = self.get_mut();
        door.finish(|| Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Guarded { stream, door, .. } = self.get_mut();
        door.finish(|| Pin::new(stream).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_byte_before_the_span_closes_passes_and_is_counted() {
        let door = Door::new();
        let mut stream = Guarded::new(Vec::new(), door.clone(), true);
        door.open(SendDeadline::at(Instant::now() + Duration::from_secs(10), Slept::now()));
        stream.write_all(b"POST").await.unwrap();
        assert!(matches!(door.shut(), Passed::Yes { .. }));
        assert_eq!(stream.stream, b"POST");
    }

    #[tokio::test]
    async fn a_byte_that_left_late_because_the_process_stalled_is_dated_after_the_span() {
        let door = Door::new();
        let closes = Instant::now() + Duration::from_millis(30);
        let (deadline, mut was_late) = SendDeadline::reporting(closes, Slept::now());
        door.open(deadline);
        let stalled = || {
            while Instant::now() < closes {
                std::hint::spin_loop();
            }
            Poll::Ready(Ok(4))
        };
        assert!(matches!(door.pass(true, stalled), Poll::Ready(Ok(4))));
        assert!(was_late.try_recv().unwrap() >= closes, "reported before the bank answers");
        assert!(matches!(door.shut(), Passed::Yes { first_byte } if first_byte >= closes));
    }

    #[tokio::test]
    async fn a_byte_after_the_span_closed_is_not_written() {
        let door = Door::new();
        let mut stream = Guarded::new(Vec::new(), door.clone(), true);
        door.open(SendDeadline::at(Instant::now(), Slept::now()));
        stream.write_all(b"POST").await.unwrap_err();
        assert!(matches!(door.shut(), Passed::TooLate));
        assert!(stream.stream.is_empty());
    }

    #[tokio::test]
    async fn no_byte_is_written_once_the_machine_has_slept() {
        let door = Door::new();
        let mut stream = Guarded::new(Vec::new(), door.clone(), true);
        door.open(SendDeadline::at(Instant::now() + Duration::from_secs(10), Slept::a_second_ago()));
        stream.write_all(b"POST").await.unwrap_err();
        assert!(matches!(door.shut(), Passed::TooLate));
        assert!(stream.stream.is_empty());
    }

    #[tokio::test]
    async fn a_shut_door_lets_nothing_through() {
        let door = Door::new();
        let mut stream = Guarded::new(Vec::new(), door.clone(), true);
        door.open(SendDeadline::at(Instant::now() + Duration::from_secs(10), Slept::now()));
        assert!(matches!(door.shut(), Passed::Nothing));
        stream.write_all(b"POST").await.unwrap_err();
        assert!(stream.stream.is_empty());
    }

    #[tokio::test]
    async fn bytes_that_a_layer_below_the_door_kept_do_not_leave_once_the_request_was_given_up() {
        let door = Door::new();
        let mut stream = Guarded::new(tokio::io::BufWriter::new(Vec::new()), door.clone(), false);
        door.open(SendDeadline::at(Instant::now() + Duration::from_secs(10), Slept::now()));
        stream.write_all(b"POST").await.unwrap();
        assert!(matches!(door.shut(), Passed::Yes { .. }));
        stream.flush().await.unwrap_err();
        stream.shutdown().await.unwrap_err();
        assert!(stream.stream.get_ref().is_empty());
    }
}
