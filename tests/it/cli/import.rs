//! `refundd import`: files with refunds.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use refundd::refund::State;

use super::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, within};

#[tokio::test]
async fn a_file_is_imported_whole_but_for_the_lines_that_are_wrong_and_again_without_harm() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let mut csv = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    writeln!(csv, "refund_ref,channel,payment_ref,amount_minor,currency,payload").unwrap();
    for n in 2..=11_000 {
        let (channel, amount, currency) = match n {
            // The ref of the line before, for another amount.
            70 => ("acme", "999", "EUR"),
            7_000 => ("nobody", "5", "EUR"),
            8_000 => ("acme", "12.50", "EURO"),
            _ => ("acme", "5", "EUR"),
        };
        let name = if n == 70 { 69 } else { n };
        writeln!(csv, "R-{name},{channel},P-{n},{amount},{currency},").unwrap();
    }
    csv.flush().unwrap();
    let path = csv.path().to_str().unwrap();
    let first = refundd(config.path(), &["import", path]);
    assert_eq!(first.status.code(), Some(1));
    let output = String::from_utf8(first.stderr).unwrap();
    let lines: BTreeSet<&str> =
        output.lines().filter_map(|line| line.split_once(':')).map(|(line, _)| line).collect();
    assert_eq!(lines, BTreeSet::from(["line 70", "line 7000", "line 8000"]), "{output}");
    assert!(
        output.contains("line 8000: amount_minor \"12.50\"") && output.contains("line 8000: currency"),
        "{output}"
    );
    assert_eq!(String::from_utf8_lossy(&first.stdout), "10996 saved, 0 were saved before, 3 refused\n");
    within(Duration::from_secs(30), "all are paid", async || scratch.count(State::Succeeded).await == 10_996)
        .await;

    let again = refundd(config.path(), &["import", path]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "0 saved, 10996 were saved before, 3 refused\n");
    assert_eq!(scratch.bank.ledger().repeated().len(), 0);
    node.stop().await;
}

#[tokio::test]
async fn what_is_imported_is_what_stands_in_the_file_whatever_its_characters_mean_elsewhere() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}max_backlog = 100\n")).await;
    node.stop().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let lines: Vec<serde_json::Value> = [r"\N", "\\.", r"a\tb", "ö\u{2028}"]
        .iter()
        .enumerate()
        .map(|(n, name)| {
            serde_json::json!({
                "refund_ref": format!("{name}{n}"), "channel": "acme", "payment_ref": format!("{n}{name}"), "amount_minor": i64::MAX,
                "currency": "JPY", "payload": (n > 0).then(|| serde_json::json!({ (*name): [format!("{name}\n\r\t\\"), null] })),
                "due_at": "2031-02-03T04:05:06.000007Z", "deadline_at": "2032-02-03T06:05:06.5+02:00",
            })
        })
        .collect();
    let mut ndjson = tempfile::Builder::new().suffix(".ndjson").tempfile().unwrap();
    for line in &lines {
        writeln!(ndjson, "{line}").unwrap();
    }
    let imported = refundd(config.path(), &["import", ndjson.path().to_str().unwrap()]);
    assert_eq!(
        String::from_utf8_lossy(&imported.stdout),
        "4 saved, 0 were saved before, 0 refused\n",
        "{}",
        text(&imported)
    );
    let rows = scratch.text("select json_agg(to_jsonb(r) order by id)::text from refundd.refunds r").await;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&rows).unwrap();
    for (line, row) in lines.iter().zip(&rows) {
        for field in ["refund_ref", "channel", "payment_ref", "amount_minor", "currency", "payload"] {
            assert_eq!(row[field], line[field], "{row}");
        }
        assert_eq!(row["due_at"], "2031-02-03T04:05:06.000007+00:00");
        assert_eq!(row["deadline_at"], "2032-02-03T04:05:06.5+00:00");
    }
    // A try that failed would have used up numbers.
    assert_eq!(scratch.number("select max(id) from refundd.refunds").await, 4);
}

#[tokio::test]
async fn a_file_for_a_channel_that_takes_no_more_is_refused_line_by_line() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    node.stop().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let csv =
        "refund_ref,channel,payment_ref,amount_minor,currency\nR-1,acme,P-1,5,EUR\nR-2,acme,P-2,5,EUR\n";
    let mut lines = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    lines.write_all(csv.as_bytes()).unwrap();
    let path = lines.path().to_str().unwrap();
    for closed in ["max_backlog = 1, full_since = now()", "full_since = null, retired_at = now()"] {
        scratch.sql(&format!("update refundd.channels set {closed}")).await;
        let refused = refundd(config.path(), &["import", path]);
        assert_eq!(String::from_utf8_lossy(&refused.stdout), "0 saved, 0 were saved before, 2 refused\n");
    }
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 0);
}
