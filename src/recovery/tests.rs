use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use super::*;

/// What one thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that this work logs.
fn logged_by(work: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(lines, work);
    let written = log.0.lock().unwrap();
    String::from_utf8_lossy(&written).lines().map(str::to_owned).collect()
}

fn shown(ids: RangeInclusive<i64>, channel: &str) -> Vec<Recovered> {
    ids.map(|id| Recovered { id: RefundId(id), channel: channel.to_owned(), node: None }).collect()
}

#[test]
fn a_round_logs_the_first_twenty_refunds_by_id_and_then_a_count_for_each_channel() {
    let mut report = Report::default();
    let lines = logged_by(|| {
        report.note_shown(&shown(1..=15, "acme"));
        let mut more = shown(16..=30, "acme");
        more.extend(shown(31..=33, "globex"));
        report.note_shown(&more);
        report.note_shown(&[]);
        report.note_shown(&shown(34..=37, "acme"));
    });
    assert_eq!(report.shown, 37);
    let mut wanted: Vec<String> = (1..=20).map(|id| format!("Refund {id} waits for a person")).collect();
    for (count, channel) in [(10, "acme"), (3, "globex"), (4, "acme")] {
        wanted.push(format!("{count} more refunds of channel `{channel}` wait for a person"));
    }
    assert_eq!(lines.len(), wanted.len(), "{lines:#?}");
    for (line, wanted) in lines.iter().zip(wanted) {
        assert!(line.contains(&wanted), "`{line}` does not say `{wanted}`");
    }
}
