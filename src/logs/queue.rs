//! Lines on their way to an output that may take none: nobody reads a pipe, a disk hangs or is full.
//!
//! One thread writes them, all others only put them here and never wait for the output. Lines that it does not take wait in
//! memory. When they fill the queue, further lines are lost and counted until the output takes some again.

use std::io::{ErrorKind, Write};
use std::mem;
use std::sync::{Condvar, Mutex};
use std::thread::sleep;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use crate::lock::Lock;

/// The queue of one output.
#[derive(Debug, Default)]
pub(super) struct LineQueue {
    waiting: Mutex<WaitingLines>,
    changed: Condvar,
    lost: Counter,
}

#[derive(Debug, Default)]
struct WaitingLines {
    text: Vec<u8>,
    /// The lines that found no room since the writing thread last took the others.
    lost: u64,
    /// Whether the writing thread has lines that the output did not take yet.
    is_writing: bool,
}

impl WaitingLines {
    /// Whether the writing thread has nothing to take.
    fn is_idle(&self) -> bool {
        self.text.is_empty() && self.lost == 0
    }

    fn is_busy(&self) -> bool {
        self.is_writing || !self.is_idle()
    }
}

impl LineQueue {
    /// The most bytes that wait, beside those that the writing thread took: about 60,000 outcomes.
    const MOST: usize = 16 * 1024 * 1024;
    /// The memory in bytes that stays when the lines are written.
    const KEPT: usize = 64 * 1024;
    /// How long lines wait for others. A wake-up of the thread and a call of the system cost more than a line.
    const GATHERS: Duration = Duration::from_millis(2);
    /// The pause before a failed write is tried again.
    const PAUSE: Duration = Duration::from_millis(10);

    /// Puts a line behind all others. After a line that found no room, the next ones are lost as well, so that a log has one gap
    /// and not many.
    pub(super) fn put(&self, line: &[u8]) {
        let mut waiting = self.waiting.locked();
        let was_idle = waiting.is_idle();
        if waiting.lost > 0 || waiting.text.len() + line.len() > Self::MOST {
            waiting.lost += 1;
            self.lost.inc();
        } else {
            waiting.text.extend_from_slice(line);
        }
        drop(waiting);
        if was_idle {
            self.changed.notify_all();
        }
    }

    /// The number of lines that were lost since the process began.
    pub(super) fn lost(&self) -> Counter {
        self.lost.clone()
    }

    /// Writes the lines in their order, for as long as the process lives. Logs how many were lost.
    #[expect(clippy::disallowed_methods, reason = "the thread does nothing else")]
    pub(super) fn write_to(&self, mut output: impl Write) {
        let mut text = Vec::new();
        loop {
            self.wait();
            sleep(Self::GATHERS);
            let lost = self.take(&mut text);
            if lost > 0 {
                // This line goes through the queue, which has room now.
                tracing::error!(lost, "{lost} lines of the log were lost here: standard output took no more");
            }
            write_all(&mut output, &text);
            text.clear();
            text.shrink_to(Self::KEPT);
        }
    }

    /// Waits for lines. Those that were taken are written.
    fn wait(&self) {
        let mut waiting = self.waiting.locked();
        waiting.is_writing = false;
        self.changed.notify_all();
        drop(self.changed.wait_while(waiting, |waiting| waiting.is_idle()));
    }

    /// Moves all lines into `text`. Returns how many were lost behind them.
    fn take(&self, text: &mut Vec<u8>) -> u64 {
        let mut waiting = self.waiting.locked();
        mem::swap(&mut waiting.text, text);
        waiting.is_writing = true;
        mem::take(&mut waiting.lost)
    }

    /// Waits until all lines are written, for at most `patience`.
    pub(super) fn drain(&self, patience: Duration) {
        let waiting = self.waiting.locked();
        drop(self.changed.wait_timeout_while(waiting, patience, |waiting| waiting.is_busy()));
    }
}

/// Writes the whole text. What fails is tried until it works: a disk gets room again, and half a line would spoil the next one.
#[expect(clippy::disallowed_methods, reason = "the thread does nothing else")]
fn write_all(output: &mut impl Write, mut text: &[u8]) {
    while !text.is_empty() {
        match output.write(text) {
            Ok(written) if written > 0 => text = text.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => sleep(LineQueue::PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufRead, BufReader, PipeReader, Read};

    use super::*;

    /// What a pipe does not hold.
    const LONG: usize = 1024 * 1024;

    /// The writer of the log's own lines.
    struct Puts(&'static LineQueue);

    impl Write for Puts {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.put(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A queue whose thread writes to a pipe, and is stuck there with a first line: `LONG` bytes without an end.
    fn stuck() -> (&'static LineQueue, PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        let queue: &'static LineQueue = Box::leak(Box::<LineQueue>::default());
        std::thread::spawn(move || {
            let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || Puts(queue)).finish();
            tracing::subscriber::with_default(log, || queue.write_to(writer));
        });
        queue.put(&vec![b'x'; LONG]);
        while !queue.waiting.locked().is_writing {
            std::thread::yield_now();
        }
        (queue, reader)
    }

    #[test]
    fn lines_that_find_no_room_are_counted_and_a_line_in_their_place_says_how_many_they_are() {
        let (queue, reader) = stuck();
        queue.put(b"\n");
        let line = |number: u64| format!("{number:01023}");
        let mut put = 0;
        while queue.lost().get() < 3 {
            queue.put(format!("{}\n", line(put)).as_bytes());
            put += 1;
        }
        let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap().len(), LONG);
        for number in 0..put - 3 {
            assert_eq!(lines.next().unwrap(), line(number));
        }
        let said = lines.next().unwrap();
        assert!(said.contains("ERROR ") && said.contains("3 lines of the log were lost"), "{said}");
        queue.put(b"and on\n");
        assert_eq!(lines.next().unwrap(), "and on");
        assert_eq!(queue.lost().get(), 3);
    }

    #[test]
    fn the_wait_for_the_last_lines_ends_with_their_write_or_with_its_patience() {
        let (queue, mut reader) = stuck();
        queue.drain(Duration::from_millis(20));
        assert!(queue.waiting.locked().is_busy(), "nobody read them");
        let reads = std::thread::spawn(move || {
            reader.read_exact(&mut vec![0; LONG]).unwrap();
            reader
        });
        queue.drain(Duration::from_mins(1));
        assert!(!queue.waiting.locked().is_busy(), "they were read");
        reads.join().unwrap();
    }

    /// Takes three bytes at every fourth call.
    #[derive(Default)]
    struct Moody {
        calls: usize,
        taken: Vec<u8>,
    }

    impl Write for Moody {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            match self.calls % 4 {
                1 => Err(ErrorKind::StorageFull.into()),
                2 => Err(ErrorKind::Interrupted.into()),
                3 => Ok(0),
                _ => self.taken.write(&text[..text.len().min(3)]),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_text_that_an_output_fails_to_take_is_tried_until_it_is_whole() {
        let mut output = Moody::default();
        write_all(&mut output, b"one\ntwo\n");
        assert_eq!(output.taken, b"one\ntwo\n");
    }
}
