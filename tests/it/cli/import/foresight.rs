//! `refundd import` tells before it saves what it will do, and does just that.

use std::io::Write;

use crate::cli::{csv_file, file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

/// The numbers of the lines that were refused, in the order of the output.
fn refused(output: &std::process::Output) -> Vec<u64> {
    let said = String::from_utf8_lossy(&output.stderr);
    let numbers = said.lines().filter_map(|line| line.strip_prefix("line ")?.split(':').next()?.parse().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.dedup();
    numbers
}

#[tokio::test]
async fn lines_that_a_quote_joins_are_all_counted_as_refused() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let csv = csv_file(&[
        "N-1,acme,P-1,1,EUR",
        "N-2,acme,P-2,2,\"EUR",
        "N-3,acme,P-3,3,EUR",
        "N-4,acme,P-4,4,\"EUR\"",
        "N-5,acme,P-5,5,EUR",
        "\"N-6,acme,P-6,6,EUR",
        "N-7,acme,P-7,7,EUR",
        "",
    ]);
    let path = csv.path().to_str().unwrap();
    let dry = refundd(config.path(), &["import", "--dry-run", path]);
    let done = refundd(config.path(), &["import", path]);
    for (output, tally) in [
        (&dry, "2 would be saved, 0 were saved before, 5 would be refused; nothing was changed\n"),
        (&done, "2 saved, 0 were saved before, 5 refused\n"),
    ] {
        let said = text(output);
        assert!(said.starts_with(tally), "{said}");
        assert!(said.contains("line 3: lines 3 to 5 were read as one because of a quote"), "{said}");
        assert!(said.contains("line 7: a quote in it is never closed"), "{said}");
    }
    assert!(text(&dry).contains("5 lines without a readable amount"), "{}", text(&dry));
    assert_eq!(scratch.refs().await, ["N-1", "N-5"]);
}

#[tokio::test]
async fn a_dry_run_compares_lines_with_the_first_that_is_saved_as_an_import_does() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let csv = csv_file(&[
        "N-1,nobody,P-1,70,EUR",
        "N-1,nobody,P-1,70,EUR", // the same as a line that is refused
        "N-2,acme,P-2,5,EUR",
        "N-2,acme,P-2,6,EUR",
        "N-2,acme,P-2,5,EUR", // the same as line 4
    ]);
    let path = csv.path().to_str().unwrap();
    let dry = refundd(config.path(), &["import", "--dry-run", path]);
    assert_eq!(
        String::from_utf8_lossy(&dry.stdout),
        "1 would be saved, 1 were saved before, 3 would be refused; nothing was changed\n\
         EUR: 2 refunds, 10 in minor units = 0.10 EUR\n\
         Refused, and not in the totals: EUR: 3 refunds, 146 in minor units = 1.46 EUR\n",
        "{}",
        text(&dry)
    );
    let done = refundd(config.path(), &["import", path]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "1 saved, 1 were saved before, 3 refused\n");
    assert_eq!((refused(&dry), refused(&done)), (vec![2, 3, 5], vec![2, 3, 5]));
}

#[tokio::test]
async fn a_dry_run_compares_payloads_as_postgres_does() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let pairs = [
        ("1", "1.0", true),
        ("-0.0", "0", true),
        ("1e2", "100", true),
        ("2.5e-7", "0.00000025", true),
        ("1e25", "10000000000000000000000000", true),
        (r#"{"b": [1.50], "c": 2}"#, r#"{"c": 2.0, "b": [1.5]}"#, true),
        ("1", r#""1""#, false),
        ("1", "[1]", false),
        ("1", "-1", false),
        ("0.1", "0.10000001", false),
        ("[]", "{}", false),
        ("null", "[null]", false),
        ("[1, [2]]", "[[1], 2]", false),
    ];
    let mut ndjson = tempfile::Builder::new().suffix(".ndjson").tempfile().unwrap();
    let mut differ: Vec<u64> = Vec::new();
    for (n, (one, other, is_same)) in (1..).zip(pairs) {
        for payload in [one, other] {
            writeln!(
                ndjson,
                r#"{{"refund_ref":"N-{n}","channel":"acme","payment_ref":"P","amount_minor":5,"currency":"EUR","payload":{{"a":{payload}}}}}"#
            )
            .unwrap();
        }
        if !is_same {
            differ.push(2 * n);
        }
    }
    let path = ndjson.path().to_str().unwrap();
    let dry = refundd(config.path(), &["import", "--dry-run", path]);
    assert_eq!(refused(&dry), differ, "{}", text(&dry));
    let done = refundd(config.path(), &["import", path]);
    assert_eq!(refused(&done), differ, "{}", text(&done));
}

#[tokio::test]
async fn with_control_totals_a_file_with_a_line_that_postgres_would_refuse_saves_nothing() {
    let scratch = Scratch::with_refunds(1).await;
    scratch.sql(r#"insert into refundd.channels (channel, endpoint, settings, published_by, max_backlog, full_since)
                   values ('full', 'http://127.0.0.1:9/', '{}', 'test', 1, now()),
                          ('small', 'http://127.0.0.1:9/', '{"max_amount_minor": {"EUR": 4}}', 'test', null, null)"#).await;
    let config = file(&scratch.file("a", UNLIMITED));
    for (line, why) in [
        ("R-1,acme,P-1,999,EUR", "is already refund 1, with other content"),
        ("N-1,acme,P-1,6,EUR", "stands in an earlier line, with other content"),
        ("N-2,nobody,P-2,5,EUR", "no node runs this channel"),
        ("N-2,full,P-2,5,EUR", "max_backlog of 1 refund"),
        ("N-2,small,P-2,5,EUR", "which is 4 for EUR"),
    ] {
        let csv = csv_file(&["N-1,acme,P-1,5,EUR", line, "N-3,acme,P-3,5,EUR"]);
        let path = csv.path().to_str().unwrap();
        let output = refundd(config.path(), &["import", path, "--expect", "count=3"]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("line 3: ") && said.contains(why), "{line}: {said}");
        assert!(said.contains(&format!("nothing of {path} was saved")), "{line}: {said}");
        assert_eq!(scratch.refs().await, ["R-1"], "{line}: {said}");
    }
}

#[tokio::test]
async fn a_ref_that_somebody_else_saves_after_the_check_is_refused_and_the_message_counts_what_is_saved() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let csv = csv_file(&["N-1,acme,P-1,5,EUR", "N-2,acme,P-2,5,EUR", "N-3,acme,P-3,5,EUR"]);
    let (config, path) = (config.path().to_owned(), csv.path().to_str().unwrap().to_owned());
    // The check does not see a row that is not committed. The save waits for it.
    let other = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
                 values ('N-2', 'acme', 'P-2', 7, 'EUR')";
    let import = async {
        let import = move || refundd(&config, &["import", &path, "--expect", "count=3"]);
        tokio::task::spawn_blocking(import).await.unwrap()
    };
    let output = scratch.while_a_commit_hangs(&[other], import).await;
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("2 saved, 0 were saved before, 1 refused\n"), "{said}");
    assert_eq!(refused(&output), [3], "{said}");
    for words in ["2 refunds are saved, and 1 line refused", "Keep the refs", "import the whole file again"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[tokio::test]
async fn a_file_that_fills_a_channel_is_foreseen_up_to_its_max_backlog() {
    let scratch = Scratch::with_refunds(1).await;
    scratch.publish("globex").await;
    scratch.sql("update refundd.channels set max_backlog = 3 where channel = 'acme'").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let csv = csv_file(&[
        "R-1,acme,P-1,101,EUR", // saved before, and takes no place
        "N-1,acme,P-1,5,EUR",
        "N-1,acme,P-1,5,EUR", // the same as line 3
        "N-2,acme,P-2,5,EUR",
        "N-3,acme,P-3,5,EUR", // beyond the room
        "N-3,acme,P-3,5,EUR",
        "N-2,acme,P-2,5,EUR", // the same as line 5
        "N-4,globex,P-4,5,EUR",
    ]);
    let path = csv.path().to_str().unwrap();
    let dry = refundd(config.path(), &["import", "--dry-run", path]);
    let said = text(&dry);
    assert_eq!(dry.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("3 would be saved, 3 were saved before, 2 would be refused; nothing was changed\n"),
        "{said}"
    );
    assert_eq!(refused(&dry), [6, 7], "{said}");
    assert!(said.contains("it has, with the lines before this one, its max_backlog of 3 refunds"), "{said}");
    // A place more is enough.
    scratch.sql("update refundd.channels set max_backlog = 4 where channel = 'acme'").await;
    let dry = refundd(config.path(), &["import", "--dry-run", path]);
    assert!(dry.status.success(), "{}", text(&dry));
    let done = refundd(config.path(), &["import", path, "--expect", "count=8"]);
    assert!(text(&done).starts_with("4 saved, 4 were saved before, 0 refused\n"), "{}", text(&done));
}

#[tokio::test]
async fn the_room_of_a_channel_is_counted_over_all_commits_of_a_file() {
    let scratch = Scratch::with_refunds(100).await;
    scratch.sql("update refundd.channels set max_backlog = 6000").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let lines: Vec<String> = (1..=11_000).map(|n| format!("N-{n},acme,P-{n},5,EUR")).collect();
    let csv = csv_file(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let path = csv.path().to_str().unwrap();
    let dry = refundd(config.path(), &["import", "--dry-run", path]);
    assert!(
        text(&dry).starts_with("5900 would be saved, 0 were saved before, 5100 would be refused;"),
        "{}",
        String::from_utf8_lossy(&dry.stdout)
    );
    assert_eq!(refused(&dry).first(), Some(&5_902));
    let expecting = refundd(config.path(), &["import", path, "--expect", "count=11000"]);
    assert_eq!(expecting.status.code(), Some(1));
    assert!(text(&expecting).contains(&format!("nothing of {path} was saved")));
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 100);
}
