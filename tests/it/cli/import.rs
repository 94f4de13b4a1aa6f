//! `refundd import`: files with refunds.

mod again;
mod foresight;

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use refundd::refund::State;

use super::{csv_file, file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::terminal::on_a_terminal;
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
    within(Duration::from_mins(4), "all are paid", async || scratch.count(State::Succeeded).await == 10_996)
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
    let lines: Vec<serde_json::Value> = [r"\N", "\\.", r"a\tb", "ö😀"]
        .iter()
        .enumerate()
        .map(|(n, name)| {
            serde_json::json!({
                "refund_ref": format!("{name}{n}"), "channel": "acme", "payment_ref": format!("{n}{name}"), "amount_minor": i64::MAX,
                "currency": "JPY", "payload": (n > 0).then(|| serde_json::json!({ (*name): [format!("{name}\n\r\t\\\u{2028}"), null] })),
                "due_at": "2031-02-03T04:05:06.000007Z", "deadline_at": "2032-02-03T06:05:06.5+02:00",
            })
        })
        .collect();
    let mut ndjson = tempfile::Builder::new().suffix(".ndjson").tempfile().unwrap();
    // With the mark that some editors write first.
    write!(ndjson, "\u{feff}").unwrap();
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
    let csv = csv_file(&["R-1,acme,P-1,5,EUR", "R-2,acme,P-2,5,EUR"]);
    let path = csv.path().to_str().unwrap();
    for closed in ["max_backlog = 1, full_since = now()", "full_since = null, retired_at = now()"] {
        scratch.sql(&format!("update refundd.channels set {closed}")).await;
        let refused = refundd(config.path(), &["import", path]);
        assert_eq!(String::from_utf8_lossy(&refused.stdout), "0 saved, 0 were saved before, 2 refused\n");
    }
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 0);
}

#[tokio::test]
async fn refused_lines_are_shown_in_the_order_of_the_file() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let lines: Vec<String> = (2..=12_000)
        .map(|n| match n {
            // The first is refused by Postgres, long after the others were read.
            3 | 6_000 => "R-1,acme,P-9,7,EUR".to_owned(),
            5 | 5_500 | 11_000 => format!("N-{n},acme,P-{n},none,EUR"),
            _ => format!("N-{n},acme,P-{n},5,EUR"),
        })
        .collect();
    let csv = csv_file(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let output = refundd(config.path(), &["import", csv.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let refused: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("line ")?.split(':').next()).collect();
    assert_eq!(refused, ["3", "5", "5500", "6000", "11000"], "{said}");
}

#[tokio::test]
async fn a_file_without_refunds_is_no_success_unless_that_is_expected() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let header = csv_file(&[]);
    let (header, ndjson) =
        (header.path().to_str().unwrap(), tempfile::Builder::new().suffix(".ndjson").tempfile().unwrap());
    for args in [
        &["import", header][..],
        &["import", ndjson.path().to_str().unwrap()],
        &["import", "--dry-run", header],
    ] {
        let output = refundd(config.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output));
        assert!(text(&output).contains("has no refunds"), "{args:?}: {}", text(&output));
    }
    let output = refundd(config.path(), &["import", header, "--expect", "count=0"]);
    assert!(output.status.success(), "{}", text(&output));
}

#[tokio::test]
async fn a_dry_run_says_what_an_import_would_do_and_changes_nothing() {
    let scratch = Scratch::with_refunds(2).await;
    scratch.sql("insert into refundd.channels (channel, endpoint, settings, published_by, max_backlog, full_since)
                 values ('full', 'http://127.0.0.1:9/', '{}', 'test', 1, now())").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let csv = csv_file(&[
        "R-1,acme,P-1,101,EUR", // saved before
        "R-2,acme,P-2,999,EUR", // saved before with another amount
        "N-1,acme,P-1,5,EUR",
        "N-2,nobody,P-1,5,EUR",
        "N-3,full,P-1,5,EUR",
        "N-4,acme,P-1,5.5,EUR",
        "N-1,acme,P-1,5,EUR", // the same as line 4
        "N-1,acme,P-1,6,EUR",
        "N-5,acme,P-1,70,JPY",
    ]);
    let path = csv.path().to_str().unwrap();
    let dry = refundd(config.path(), &["import", "--dry-run", path]);
    let (told, said) = (String::from_utf8(dry.stdout).unwrap(), String::from_utf8(dry.stderr).unwrap());
    assert_eq!(dry.status.code(), Some(1), "{told}{said}");
    assert!(
        told.starts_with("2 would be saved, 2 were saved before, 5 would be refused; nothing was changed\n"),
        "{told}"
    );
    assert!(told.contains("JPY: 1 refund, 70 in minor units"), "{told}");
    let refused: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("line ")?.split(':').next()).collect();
    assert_eq!(refused, ["3", "5", "6", "7", "9"], "{said}");
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 2);
    // The import itself does just that.
    let done = refundd(config.path(), &["import", path]);
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        "2 saved, 2 were saved before, 5 refused\n",
        "{}",
        text(&done)
    );
}

#[tokio::test]
async fn a_file_with_other_totals_than_expected_saves_nothing() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let csv = csv_file(&["A-1,acme,P-1,1250,EUR", "A-2,acme,P-2,750,EUR", "A-3,acme,P-3,90,JPY"]);
    let path = csv.path().to_str().unwrap();
    let import = |expected: &str| refundd(config.path(), &["import", path, "--expect", expected]);
    for (expected, words) in [
        ("count=4", "the file has 3 refunds, and 4 are expected"),
        ("EUR=2001,JPY=90", "the file has 2000 EUR in minor units, and 2001 are expected: -1"),
        ("EUR=2000", "no JPY is expected"),
    ] {
        let output = import(expected);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(words) && text(&output).contains("nothing of"), "{}", text(&output));
    }
    assert_eq!(import("EUR=20.00").status.code(), Some(2));
    let wrong = csv_file(&["A-1,acme,P-1,1250,EUR", "A-2,acme,P-2,none,EUR"]);
    let output = refundd(config.path(), &["import", wrong.path().to_str().unwrap(), "--expect", "count=1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("line 3: amount_minor"), "{}", text(&output));
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 0);
    let output = import("count=3,EUR=2000,JPY=90");
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        text(&output).starts_with("3 saved, 0 were saved before, 0 refused\nEUR: 2 refunds, 2000"),
        "{}",
        text(&output)
    );
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("refunds.csv");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in ["-", pipe.to_str().unwrap()] {
        let piped = refundd(config.path(), &["import", path, "--expect", "count=3"]);
        assert_eq!(piped.status.code(), Some(2), "{}", text(&piped));
        assert!(text(&piped).contains("can be read only once"), "{}", text(&piped));
    }
}

#[tokio::test]
async fn progress_is_shown_on_a_terminal_alone_and_refused_lines_stay_whole() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let lines: Vec<String> = (2..=60_000)
        .map(|n| format!("N-{n},acme,P-{n},{},EUR", if n % 20_000 == 0 { "none" } else { "5" }))
        .collect();
    let csv = csv_file(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let path = csv.path().to_str().unwrap();
    let mut import = std::process::Command::new(env!("CARGO_BIN_EXE_refundd"));
    import.arg("--config").arg(config.path()).args(["import", "--dry-run", path]);
    let (status, page) = on_a_terminal(import, None);
    assert_eq!(status.code(), Some(1), "{page}");
    // What stands on the screen at the end: whatever follows the last clearing of each line.
    let screen: Vec<&str> =
        page.lines().map(|line| line.rsplit("\r\u{1b}[K").next().unwrap().trim_end()).collect();
    assert!(page.contains(" %: "), "{page:?}");
    assert!(screen.iter().all(|line| !line.contains(" %: ")), "{screen:#?}");
    assert_eq!(screen.iter().filter(|line| line.starts_with("line ")).count(), 3, "{screen:#?}");
    let output = refundd(config.path(), &["import", "--dry-run", path]);
    assert!(!text(&output).contains(" %"), "{}", text(&output));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_at_all_has_no_tally_and_the_cause_comes_first() {
    let scratch = Scratch::new().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let mut csv = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    writeln!(csv, "refund_ref;channel").unwrap();
    let path = csv.path().to_str().unwrap();
    let separated = format!("failed to read {path}: line 1: the cells are separated by `;`");
    for (path, cause) in [("/nope.csv", "failed to open /nope.csv: No such file"), (path, separated.as_str())]
    {
        let output = refundd(config.path(), &["import", path]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{said}");
        assert!(said.contains(cause) && said.ends_with("; nothing was saved\n"), "{said}");
    }
}
