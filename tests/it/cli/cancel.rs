//! `refundd cancel`: many refunds at once, of which no byte ever left.

use std::io::Write;
use std::process::{Command, Stdio};

use refundd::bucket::{End, Purpose};
use refundd::caller::Names;
use refundd::refund::{ChannelName, RefundId, State};
use refundd::store::{Canceller, Move};

use super::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, depth, until};

/// Refunds `R-1` to `R-6` of channel `acme`. `R-5` was sent before and not executed, and `R-6` is being sent.
async fn scratch() -> Scratch {
    let scratch = Scratch::with_refunds(6).await;
    scratch.sql("update refundd.refunds set first_sent_at = now(), attempts = 1 where id = 5").await;
    scratch.lease("id = 6", "attempts = 1").await;
    scratch
}

async fn cancelled(scratch: &Scratch) -> String {
    let ids = "select coalesce(string_agg(id::text, ' ' order by id), '') from refundd.refunds where state = 'cancelled'";
    scratch.text(ids).await
}

#[tokio::test]
async fn named_refunds_are_cancelled_with_the_author_and_the_reason_in_the_journal() {
    let scratch = scratch().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let dry = refundd(config.path(), &["cancel", "R-1", "R-2", "--dry-run"]);
    assert!(dry.status.success() && text(&dry).contains("2 would be cancelled"), "{}", text(&dry));
    assert_eq!(cancelled(&scratch).await, "");

    let args = ["cancel", "R-1", "R-2", "R-5", "R-6", "R-9", "--reason", "paid in cash"];
    let output = refundd(config.path(), &args);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in [
        "2 cancelled, 2 stay, 1 not found",
        "EUR: 2 refunds, 203 in minor units",
        "R-5: it was sent before",
        "POST /v1/refunds/5/cancel: its page, /refunds/5, shows the command",
        "R-6: it is sending, so it may have been sent",
        "R-9: there is no such refund",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(cancelled(&scratch).await, "1 2");
    let lines = "select string_agg(concat_ws('|', refund_id, kind, node, outcome, moved_to, code, message), ' ' order by id) from refundd.attempts";
    assert_eq!(
        scratch.text(lines).await,
        "1|manual|ann|decided|cancelled|cancelled|paid in cash 2|manual|ann|decided|cancelled|cancelled|paid in cash"
    );
    assert_eq!(
        scratch.text("select reason from refundd.refunds where id = 1").await,
        "cancelled by ann: paid in cash"
    );
    // Repeating is safe, and writes no second line.
    let again = refundd(config.path(), &["cancel", "R-1", "R-2", "--reason", "again"]);
    assert!(again.status.success(), "{}", text(&again));
    for words in [
        "0 cancelled, 2 were cancelled before\n",
        "R-1: it was cancelled before",
        "R-2: it was cancelled before",
    ] {
        assert!(text(&again).contains(words), "{words}: {}", text(&again));
    }
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 2);
}

#[tokio::test]
async fn a_file_names_refunds_one_on_each_line() {
    let scratch = scratch().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let mut refs = tempfile::NamedTempFile::new().unwrap();
    write!(refs, "R-3\r\n\n  R-4 \nR-3\n").unwrap();
    let path = refs.path().to_str().unwrap();
    let output = refundd(config.path(), &["cancel", "--file", path, "--reason", "x", "--by", "bob"]);
    assert!(output.status.success() && text(&output).contains("2 cancelled\n"), "{}", text(&output));
    assert_eq!(cancelled(&scratch).await, "3 4");
    let empty = refundd(config.path(), &["cancel", "--file", "/dev/null", "--reason", "x"]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(text(&empty).contains("names no refund"), "{}", text(&empty));
}

#[tokio::test]
async fn a_refund_that_changed_after_the_version_that_was_named_is_not_cancelled() {
    let scratch = Scratch::with_refunds(6).await;
    scratch.publish("globex").await;
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             values ('R-1@1', 'acme', 'P', 5, 'EUR')",
        )
        .await;
    // The list is older than a colleague's move to a healthy channel.
    let order = Move {
        from: "acme".to_owned(),
        to: "globex".to_owned(),
        who: "bob".to_owned(),
        why: "acme is down".to_owned(),
    };
    assert_eq!(scratch.store.move_never_sent(&[(RefundId(2), None)], &order).await.unwrap().len(), 1);
    let config = file(&scratch.file("a", UNLIMITED));
    let run = |args: &[&str]| {
        let output = refundd(config.path(), &[&["cancel", "--reason", "paid in cash"], args].concat());
        (output.status.code(), text(&output))
    };
    let (code, said) = run(&["R-2@1", "R-3@1", "--dry-run"]);
    assert!(code == Some(1) && said.contains("1 would be cancelled, 1 stays\n"), "{said}");
    let (code, said) = run(&["R-2@1", "R-3@1", "R-4"]);
    let why = "R-2: it has changed since that version: it is in channel `globex` at version 2 now";
    assert!(code == Some(1) && said.contains("2 cancelled, 1 stays\n") && said.contains(why), "{said}");
    assert_eq!(cancelled(&scratch).await, "3 4");
    let (code, said) = run(&["R-3@1"]);
    assert!(code == Some(0) && said.contains("0 cancelled, 1 was cancelled before\n"), "{said}");

    // On the command line nobody can say which one is meant. A file names no versions, so an old list means no other refund.
    let (code, said) = run(&["R-1@1"]);
    assert!(code == Some(1) && said.contains("and also names version 1 of the refund `R-1`"), "{said}");
    let list = file("R-1@1\nR-5@1\n");
    let (code, said) = run(&["--file", list.path().to_str().unwrap()]);
    assert!(code == Some(1) && said.contains("1 cancelled, 1 not found\n"), "{said}");
    assert_eq!(cancelled(&scratch).await, "3 4 7");
    let (code, said) = run(&["R-5@01", "R-5@+1"]);
    assert!(code == Some(1) && said.contains("0 cancelled, 2 not found\n"), "{said}");
    // The journal keeps the versions that were named.
    let lines = "select string_agg(refund_id || ' ' || number, ', ' order by refund_id) from refundd.attempts where code = 'cancelled'";
    assert_eq!(scratch.text(lines).await, "3 1, 4 0, 7 0");

    // Postgres compares the versions itself, in one statement for all.
    let canceller = Canceller { never_sent: true, ..Canceller::producer(Names::All) };
    let named = [(RefundId(1), Some(1)), (RefundId(2), Some(1)), (RefundId(6), None)];
    let gone = scratch.store.cancel_never_sent(&named, &canceller).await.unwrap();
    let mut gone: Vec<RefundId> = gone.iter().map(|refund| refund.id).collect();
    gone.sort_unstable();
    assert_eq!(gone, [RefundId(1), RefundId(6)]);
}

#[tokio::test]
async fn a_ref_that_a_long_file_repeats_counts_once() {
    let scratch = Scratch::with_refunds(1_000).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let refs: Vec<String> = (1..=1_000).chain([1]).map(|n| format!("R-{n}")).collect();
    // With the mark that some editors write first.
    let refs = file(&format!("\u{feff}{}", refs.join("\n")));
    for (manner, done) in [("--dry-run", "1000 would be cancelled\n"), ("--reason=x", "1000 cancelled\n")] {
        let output = refundd(config.path(), &["cancel", "--file", refs.path().to_str().unwrap(), manner]);
        let said = text(&output);
        assert!(output.status.success() && said.contains(done), "{said}");
        assert!(said.contains("1 repeated ref, which counts once") && !said.contains("before"), "{said}");
    }
}

#[tokio::test]
async fn a_channels_backlog_is_cancelled_only_by_somebody_who_says_so() {
    let scratch = scratch().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let run = |args: &[&str]| refundd(config.path(), &[&["cancel", "--channel", "acme"], args].concat());
    let dry = run(&["--dry-run"]);
    for words in [
        "EUR: 4 refunds, 410 in minor units = 4.10 EUR in all, would be cancelled",
        "EUR: 1 refund, 105 in minor units = 1.05 EUR in all, stays: sent before",
    ] {
        assert!(dry.status.success() && text(&dry).contains(words), "{words}: {}", text(&dry));
    }
    let asked = run(&["--reason", "the shop is closed"]);
    assert_eq!(asked.status.code(), Some(1), "{}", text(&asked));
    assert!(text(&asked).contains("--yes") && cancelled(&scratch).await.is_empty(), "{}", text(&asked));
    let done = run(&["--reason", "the shop is closed", "--yes"]);
    assert!(done.status.success() && text(&done).contains("4 cancelled\n"), "{}", text(&done));
    assert_eq!(cancelled(&scratch).await, "1 2 3 4");
    assert_eq!(scratch.number("select count(*) from refundd.attempts where kind = 'manual'").await, 4);
    let again = run(&["--reason", "x", "--yes"]);
    assert!(again.status.success() && text(&again).contains("Nothing was changed"), "{}", text(&again));
    let misspelt = refundd(config.path(), &["cancel", "--channel", "amce", "--reason", "x", "--yes"]);
    assert_eq!(misspelt.status.code(), Some(1), "{}", text(&misspelt));
}

#[tokio::test]
async fn what_a_command_line_lacks_is_named() {
    let scratch = scratch().await;
    let config = file(&scratch.file("a", UNLIMITED));
    for args in
        [&["cancel", "--reason", "x"][..], &["cancel", "R-1"], &["cancel", "R-1", "--channel", "acme"]]
    {
        assert_eq!(refundd(config.path(), args).status.code(), Some(2), "{args:?}");
    }
    for reason in [" ", "4111 1111 1111 1111", "a\u{202e}b"] {
        let output = refundd(config.path(), &["cancel", "R-1", "--reason", reason]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("--reason") && text(&output).contains("nothing was changed"));
    }
    assert_eq!(cancelled(&scratch).await, "");
}

#[tokio::test]
async fn cancelled_refunds_leave_their_bucket_and_never_reach_the_bank() {
    let scratch = Scratch::new().await;
    // A permit in an hour: the others wait in the bucket.
    let slow =
        UNLIMITED.replace("limits = []", "limits = [\"slow\"]") + "[limit.slow]\npermits = 1\nper = \"1h\"\n";
    let node = TestNode::start(&scratch, "a", &slow).await;
    scratch.insert("acme", "R-", 50).await;
    let (bucket, acme) = (scratch.bucket(), ChannelName::new("acme").unwrap());
    until("they wait in the bucket", async || {
        scratch.count(State::Succeeded).await == 1 && depth(&bucket, Purpose::Send, &acme).await == 49
    })
    .await;
    let config = file(&scratch.file("a", &slow));
    let output = refundd(config.path(), &["cancel", "--channel", "acme", "--reason", "x", "--yes"]);
    assert!(output.status.success() && text(&output).contains("49 cancelled"), "{}", text(&output));
    until("the bucket is empty", async || depth(&bucket, Purpose::Send, &acme).await == 0).await;
    assert_eq!(scratch.bank.ledger().all().len(), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_configuration_that_comes_through_a_pipe_is_used_whole() {
    let scratch = Scratch::with_refunds(2).await;
    let (bucket, acme) = (scratch.bucket(), ChannelName::new("acme").unwrap());
    bucket.fill(&acme, &[RefundId(1), RefundId(2)], End::Front, 1_000).await.unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_refundd"))
        .args(["--config", "/dev/stdin", "cancel", "R-1", "--reason", "paid in cash", "--by", "ann"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A second look at the pipe would find it empty, and no address of Redis.
    command.stdin.take().unwrap().write_all(scratch.file("a", UNLIMITED).as_bytes()).unwrap();
    let output = command.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(cancelled(&scratch).await, "1");
    assert_eq!(depth(&bucket, Purpose::Send, &acme).await, 1, "it left the bucket, too");
}

#[tokio::test]
async fn a_ref_that_names_no_refund_is_not_found_and_does_not_stay() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    scratch.publish("globex").await;
    for command in [&["cancel"][..], &["move", "--from", "acme", "--to", "globex"]] {
        for dry in [&["--reason", "x"][..], &["--dry-run"]] {
            let args = [command, &["nosuch", "R-9"], dry].concat();
            let output = refundd(config.path(), &args);
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output));
            assert!(said.contains(", 2 not found\n") && !said.contains("stay"), "{args:?}: {said}");
        }
    }
}
