//! The TCP stream of a caller, with a deadline for taking an answer.
//!
//! The deadline starts when the kernel takes no more bytes, because the caller does not read. It ends when all bytes of
//! the answer are with the kernel. A caller that reads a few bytes now and then does not move it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

#[derive(Debug)]
pub(super) struct AnswerDeadline {
    stream: TcpStream,
    limit: Duration,
    /// Runs while bytes wait for the caller.
    running: Option<Pin<Box<Sleep>>>,
}

impl AnswerDeadline {
    pub(super) fn new(stream: TcpStream, limit: Duration) -> Self {
        AnswerDeadline { stream, limit, running: None }
    }

    /// Passes the result of a write on. A write that must wait starts the deadline, or fails after it.
    fn checked<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        let running = self.running.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        if running.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        // A reset: otherwise the kernel would go on keeping the bytes for this caller.
        let _ = self.stream.set_zero_linger();
        let problem = format!("the caller did not take the answer within {:?}", self.limit);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)))
    }
}

impl AsyncRead for AnswerDeadline {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for AnswerDeadline {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.checked(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.checked(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Both hyper and rustls flush only after the last byte of the answer was written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.running = None;
        }
        self.checked(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.checked(shut, cx)
    }
}
