//! Reads refunds from a file. Each row has its line number, and a refund or the problems of the line.
//!
//! The module saves nothing.

mod bounds;
mod header;

use std::cell::Cell;
use std::io::{BufRead, Read};
use std::path::Path;

use anyhow::bail;
use csv::{ByteRecord, ReaderBuilder, StringRecord, Terminator};
use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;

use self::bounds::{BoundedRows, CurrentRow, MOST_BYTES, next_line};
use crate::config::Config;
use crate::refund::NewRefund;
use crate::refund::draft::{Draft, FieldError, RefusedDraft};
use crate::unambiguous::{Unambiguous, why_unread};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FileFormat {
    Csv,
    Ndjson,
}

impl FileFormat {
    pub fn of(file: &Path) -> anyhow::Result<Self> {
        let ending = file.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        match ending.as_deref() {
            _ if file == Path::new("-") => Ok(FileFormat::Csv),
            Some("csv") => Ok(FileFormat::Csv),
            Some("ndjson" | "jsonl") => Ok(FileFormat::Ndjson),
            _ => bail!(
                "{} ends neither in .csv nor in .ndjson: say --format csv or --format ndjson",
                file.display()
            ),
        }
    }
}

/// One refund of the file.
#[derive(Debug)]
pub(super) struct Row {
    /// The line's number, counted from 1, as editors do.
    pub line: u64,
    /// How many lines it has: more than one where a quoted cell has line breaks.
    pub lines: u64,
    /// The refund, or why the line is refused.
    pub refund: Result<NewRefund, RefusedLine>,
}

/// Why a line is refused.
#[derive(Debug)]
pub(super) struct RefusedLine {
    /// All problems of the line.
    pub wrong: Vec<String>,
    /// The refund, if only rules refuse it. It may be saved already: see [`RefusedDraft`].
    pub readable: Option<Box<NewRefund>>,
}

impl RefusedLine {
    fn unreadable(problem: impl Into<String>) -> Self {
        RefusedLine { wrong: vec![problem.into()], readable: None }
    }
}

/// Reads to the end of the file, or until the receiver is gone.
pub(super) fn read(
    file: impl BufRead,
    format: FileFormat,
    at_once: usize,
    config: &Config,
    outbox: &Sender<Vec<Row>>,
) -> anyhow::Result<()> {
    let mut chunk = Vec::with_capacity(at_once);
    let mut push = |row: Row| {
        chunk.push(row);
        if chunk.len() < at_once {
            return true;
        }
        outbox.blocking_send(std::mem::replace(&mut chunk, Vec::with_capacity(at_once))).is_ok()
    };
    match format {
        FileFormat::Csv => read_csv(file, config, &mut push)?,
        FileFormat::Ndjson => read_ndjson(file, config, &mut push)?,
    }
    // The receiver is gone when saving failed. The caller reports that failure.
    let _ = outbox.blocking_send(chunk);
    Ok(())
}

fn read_ndjson(
    mut file: impl BufRead,
    config: &Config,
    push: &mut impl FnMut(Row) -> bool,
) -> anyhow::Result<()> {
    let (mut text, mut line) = (Vec::new(), 0);
    while let Some(fits) = next_line(&mut file, &mut text)? {
        line += 1;
        let mark: &[u8] = if line == 1 { "\u{feff}".as_bytes() } else { b"" };
        let refund = if !fits {
            Err(RefusedLine::unreadable(too_long("write one refund on each line")))
        } else if text.trim_ascii().is_empty() {
            continue;
        } else {
            serde_json::from_slice(text.strip_prefix(mark).unwrap_or(&text))
                .map_err(|error| RefusedLine::unreadable(why_unread(&error)))
                .and_then(|Unambiguous(json)| check(&json, config))
        };
        if !push(Row { line, lines: 1, refund }) {
            break;
        }
    }
    Ok(())
}

fn read_csv(file: impl BufRead, config: &Config, push: &mut impl FnMut(Row) -> bool) -> anyhow::Result<()> {
    // Now every record ends in one line feed. So the start of the next record gives the line of this record.
    let is_over = Cell::new(false);
    let file = LineFeeds { inner: file.chain(&b"\n"[..]), is_over: &is_over, holds_return: false };
    let row = CurrentRow::default();
    let file = BoundedRows::new(file, &row);
    let mut reader = ReaderBuilder::new().flexible(true).terminator(Terminator::Any(b'\n')).from_reader(file);
    let columns = reader.headers().cloned();
    if row.is_too_long.get() {
        bail!("line 1: {}", too_long("the first line names the columns, and ends with a line feed"));
    }
    let columns = header::columns(columns)?;
    let mut bytes = ByteRecord::new();
    loop {
        row.begins.set(reader.position().byte());
        if !reader.read_byte_record(&mut bytes)? {
            break;
        }
        let within = bytes.iter().flatten().filter(|byte| **byte == b'\n').count() as u64;
        if row.is_too_long.get() {
            // Nobody knows where the row ends, so the rest of the file has no rows.
            let way_out = "no line after it was read; close each quote, and end each line with a line feed";
            let refund = Err(RefusedLine::unreadable(too_long(way_out)));
            push(Row { line: reader.position().line() - within, lines: 1 + within, refund });
            break;
        }
        // After a quote that is never closed, the cell ends with line feeds that begin no line.
        let last = bytes.iter().next_back().filter(|_| is_over.get()).unwrap_or_default();
        let no_lines = last.iter().rev().take_while(|byte| **byte == b'\n').count() as u64;
        // A payload may have several lines. Any other cell with a line feed comes from a quote that is not closed.
        let mut is_joined = true;
        let refund = match StringRecord::from_byte_record(std::mem::take(&mut bytes)) {
            Ok(record) => {
                let refund = if is_over.get() {
                    Err(RefusedLine::unreadable(
                        "a quote in it is never closed, so no line after it was read",
                    ))
                } else if record.len() == columns.len() {
                    let json = object(&columns, &record);
                    let mut cells = columns.iter().zip(&record);
                    is_joined = json.is_err()
                        || cells.any(|(column, cell)| column != "payload" && cell.contains('\n'));
                    json.and_then(|json| check(&json, config))
                } else {
                    let (cells, columns) = (record.len(), columns.len());
                    let problem = format!("has {cells} cells; the first line names {columns} columns");
                    Err(RefusedLine::unreadable(problem))
                };
                bytes = record.into_byte_record();
                refund
            }
            Err(error) => {
                bytes = error.into_byte_record();
                Err(RefusedLine::unreadable("is not UTF-8"))
            }
        };
        // A quote that is never closed takes the last line feed into its cell. Only such a record ends with the file.
        let ends = u64::from(!is_over.get());
        let line = reader.position().line() - ends - within;
        let lines = if is_joined { 1 + within - no_lines } else { 1 };
        let refund = refund.map_err(|mut refused| {
            if lines > 1 && !is_over.get() {
                let last = line + lines - 1;
                refused.wrong.push(format!(
                    "lines {line} to {last} were read as one because of a quote, and none of them was saved"
                ));
            }
            refused
        });
        if !push(Row { line, lines, refund }) {
            break;
        }
    }
    Ok(())
}

/// Each refund of a CSV file with its line's number, or the problems of the line. For [`crate::fuzzing`].
///
/// # Errors
/// When the file cannot be read as CSV at all.
#[cfg(any(test, feature = "fuzzing"))]
pub fn rows_of_csv(bytes: &[u8], config: &Config) -> anyhow::Result<Vec<CsvRow>> {
    let mut rows = Vec::new();
    let mut push = |row: Row| {
        rows.push((row.line, row.refund.map_err(|refused| refused.wrong)));
        true
    };
    read_csv(bytes, config, &mut push)?;
    Ok(rows)
}

/// The number of a line, and its refund or its problems.
#[cfg(any(test, feature = "fuzzing"))]
pub type CsvRow = (u64, Result<NewRefund, Vec<String>>);

/// Reads a file whose lines may end in a carriage return and a line feed, as if they ended in the line feed alone. Every other
/// carriage return stays, and its line is refused.
struct LineFeeds<'c, R> {
    inner: R,
    /// The end of the file was seen.
    is_over: &'c Cell<bool>,
    /// The last read ended in a carriage return, and the next byte decides about it.
    holds_return: bool,
}

impl<R: Read> Read for LineFeeds<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            // The carriage return of the last read comes first.
            let held = usize::from(self.holds_return);
            let came = self.inner.read(&mut buffer[held..])?;
            self.is_over.set(came == 0);
            if held == 1 {
                buffer[0] = b'\r';
            }
            let given = held + came;
            self.holds_return = came > 0 && buffer[given - 1] == b'\r';
            let end = given - usize::from(self.holds_return);
            let mut kept = 0;
            for nth in 0..end {
                if buffer[nth] != b'\r' || buffer.get(nth + 1).filter(|_| nth + 1 < given) != Some(&b'\n') {
                    buffer[kept] = buffer[nth];
                    kept += 1;
                }
            }
            if kept > 0 || came == 0 {
                return Ok(kept);
            }
        }
    }
}

fn too_long(way_out: &str) -> String {
    format!("has more than {MOST_BYTES} bytes, and no refund needs as many: {way_out}")
}

fn object(columns: &StringRecord, cells: &StringRecord) -> Result<Value, RefusedLine> {
    let mut fields = Map::new();
    for (column, cell) in columns.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
        let value = match column {
            "amount_minor" => cell.parse::<i64>().map_or_else(|_| Value::from(cell), Value::from),
            "payload" => {
                let read: Unambiguous = serde_json::from_str(cell)
                    .map_err(|error| RefusedLine::unreadable(format!("payload: {}", why_unread(&error))))?;
                read.0
            }
            _ => Value::from(cell),
        };
        fields.insert(column.to_owned(), value);
    }
    Ok(Value::Object(fields))
}

fn check(json: &Value, config: &Config) -> Result<NewRefund, RefusedLine> {
    Draft::read(json, &|channel| config.draft_rules(channel))
        .map_err(|RefusedDraft { errors, readable }| RefusedLine { wrong: texts(errors), readable })
}

/// The problems of a line, each as a text.
pub(super) fn texts(wrong: Vec<FieldError>) -> Vec<String> {
    let given = |value: Option<String>| value.map(|value| format!(" {value}")).unwrap_or_default();
    let text = |wrong: FieldError| format!("{}{}: {}", wrong.field, given(wrong.value), wrong.message);
    wrong.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests;
