//! Bounds the memory that one line, or one row of a CSV file, takes while it is read.
//!
//! A file without line feeds, or with a quote that is never closed, would otherwise be held in memory as a whole. The module does
//! not say why a line is refused.

use std::cell::Cell;
use std::io::{BufRead, Read};

/// The longest line. It is twice the body of one refund over HTTP, and more than twice a payload of 16 KiB in which each
/// character is written as an escape of six.
pub(super) const MOST_BYTES: usize = 256 * 1024;

/// Reads the next line into `line`, without its line feed, and answers whether it fits. What is beyond the bound is read, and not
/// kept. `None` at the end of the file.
pub(super) fn next_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<Option<bool>> {
    line.clear();
    let most = MOST_BYTES as u64 + 1;
    if file.by_ref().take(most).read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > MOST_BYTES {
        file.skip_until(b'\n')?;
        return Ok(Some(false));
    }
    Ok(Some(true))
}

/// The row that is being read.
#[derive(Debug, Default)]
pub(super) struct CurrentRow {
    /// The byte of the file at which it begins.
    pub begins: Cell<u64>,
    /// It is longer than the bound. The file seems to end there.
    pub is_too_long: Cell<bool>,
}

/// A CSV file that seems to end in a row that is longer than the bound, by up to one buffer of its reader.
pub(super) struct BoundedRows<'r, R> {
    inner: R,
    row: &'r CurrentRow,
    given: u64,
    /// How many line feeds stand at the end of what was given.
    line_feeds: u64,
}

impl<'r, R> BoundedRows<'r, R> {
    pub(super) fn new(inner: R, row: &'r CurrentRow) -> Self {
        BoundedRows { inner, row, given: 0, line_feeds: 0 }
    }
}

impl<R: Read> Read for BoundedRows<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // The reader asks for more when it has used all that was given.
        let of_row = self.given - self.row.begins.get();
        if self.line_feeds >= of_row {
            // Empty lines stand before the row, and no reader keeps them.
            self.row.begins.set(self.given);
        } else if of_row > MOST_BYTES as u64 {
            self.row.is_too_long.set(true);
            return Ok(0);
        }
        let came = self.inner.read(buffer)?;
        let at_end = buffer[..came].iter().rev().take_while(|byte| **byte == b'\n').count();
        self.line_feeds = at_end as u64 + if at_end == came { self.line_feeds } else { 0 };
        self.given += came as u64;
        Ok(came)
    }
}
