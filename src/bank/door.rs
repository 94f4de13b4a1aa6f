//! The door: every byte to a bank passes it, and it knows whether any did.
//!
//! It lets the first byte of a request through only while the permit's span lasts, checked right
//! before the write; and once it is shut, nothing more of that request can leave, so that "nothing
//! was written" stays true after we said so.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use crate::crash;
use crate::lock::Lock;

#[derive(Debug)]
enum State {
    /// No request is under way.
    Shut,
    /// A request may start until then.
    Open(Leave),
    /// Bytes of it may have left.
    Passed { first_byte: Instant },
    /// Its first byte came too late and was held back.
    TooLate,
}

/// Until when the first byte of a request may leave, and who hears at once that it left later all the same.
#[derive(Debug, Clone)]
pub struct Leave {
    pub closes: Instant,
    late: mpsc::Sender<Instant>,
}

impl Leave {
    /// The receiver hears the moment of a late first byte right after the write, long before the bank answers.
    pub fn until(closes: Instant) -> (Leave, mpsc::Receiver<Instant>) {
        let (late, was_late) = mpsc::channel(1);
        (Leave { closes, late }, was_late)
    }
}

/// What passed of one request.
#[derive(Debug, Clone, Copy)]
pub enum Passed {
    Nothing,
    TooLate,
    Yes { first_byte: Instant },
}

/// Shared between the client, which opens and shuts it, and the connection's stream.
#[derive(Debug, Clone)]
pub struct Door(Arc<Mutex<State>>);

impl Door {
    pub fn new() -> Self {
        Door(Arc::new(Mutex::new(State::Shut)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }

    /// Lets one request out whose first byte comes before its leave is over.
    pub fn open(&self, leave: Leave) {
        *self.state() = State::Open(leave);
    }

    /// Ends the request and tells what passed of it.
    pub fn shut(&self) -> Passed {
        match std::mem::replace(&mut *self.state(), State::Shut) {
            State::Shut | State::Open(_) => Passed::Nothing,
            State::TooLate => Passed::TooLate,
            State::Passed { first_byte } => Passed::Yes { first_byte },
        }
    }

    /// Writes through the door. The lock is held across the write, so that shutting it is final.
    /// A socket that refused a write took nothing of it (`exact`); TLS may have handed bytes on all
    /// the same, so there the call alone counts.
    fn pass(&self, exact: bool, write: impl FnOnce() -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        match &*state {
            State::Passed { .. } => write(),
            State::Open(leave) => {
                let now = Instant::now();
                if now >= leave.closes {
                    *state = State::TooLate;
                    return Poll::Ready(Err(io::Error::other("the permit's span is over")));
                }
                let written = write();
                if !exact || matches!(written, Poll::Ready(Ok(count)) if count > 0) {
                    // A process that was stalled between the look and the write let it out late: then the moment after counts,
                    // so that whoever compares it with the span's end sees that.
                    let after = Instant::now();
                    let first_byte = if after >= leave.closes { after } else { now };
                    if after >= leave.closes {
                        leave.late.try_send(after).ok();
                    }
                    *state = State::Passed { first_byte };
                    crash::point("sent");
                }
                written
            }
            State::Shut | State::TooLate => Poll::Ready(Err(io::Error::other("no request is under way"))),
        }
    }
}

/// A stream whose writes pass a door.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    door: Door,
    exact: bool,
}

impl<S> Guarded<S> {
    /// `exact` says that a write which fails or would block has taken nothing: true of a bare socket.
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

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
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
        door.open(Leave::until(Instant::now() + Duration::from_secs(10)).0);
        stream.write_all(b"POST").await.unwrap();
        assert!(matches!(door.shut(), Passed::Yes { .. }));
        assert_eq!(stream.stream, b"POST");
    }

    #[tokio::test]
    async fn a_byte_that_left_late_because_the_process_stalled_is_dated_after_the_span() {
        let door = Door::new();
        let closes = Instant::now() + Duration::from_millis(30);
        let (leave, mut was_late) = Leave::until(closes);
        door.open(leave);
        let stalled = || {
            while Instant::now() < closes {
                std::hint::spin_loop();
            }
            Poll::Ready(Ok(4))
        };
        assert!(matches!(door.pass(true, stalled), Poll::Ready(Ok(4))));
        assert!(was_late.try_recv().unwrap() >= closes, "heard before anybody answers");
        assert!(matches!(door.shut(), Passed::Yes { first_byte } if first_byte >= closes));
    }

    #[tokio::test]
    async fn a_byte_after_the_span_closed_is_held_back() {
        let door = Door::new();
        let mut stream = Guarded::new(Vec::new(), door.clone(), true);
        door.open(Leave::until(Instant::now()).0);
        stream.write_all(b"POST").await.unwrap_err();
        assert!(matches!(door.shut(), Passed::TooLate));
        assert!(stream.stream.is_empty());
    }

    #[tokio::test]
    async fn a_shut_door_lets_nothing_through() {
        let door = Door::new();
        let mut stream = Guarded::new(Vec::new(), door.clone(), true);
        door.open(Leave::until(Instant::now() + Duration::from_secs(10)).0);
        assert!(matches!(door.shut(), Passed::Nothing));
        stream.write_all(b"POST").await.unwrap_err();
        assert!(stream.stream.is_empty());
    }
}
