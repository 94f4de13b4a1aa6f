//! What becomes of output that nobody reads or keeps, and commands that are told something in vain.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use refundd::store::{MigrationProgress, Store};

use super::{arguments, file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::servers::SERVERS;
use crate::harness::terminal::on_a_terminal;
use crate::harness::{Scratch, TestNode};

fn command(config: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refundd"));
    command.args(args).env("REFUNDD_CONFIG", config).stdin(Stdio::null());
    command
}

/// As if every refund had been sent, and nobody knew what became of it.
async fn move_all_to_review(scratch: &Scratch) {
    scratch.lease("true", "attempts = 1, first_sent_at = now()").await;
    scratch.release("true", "state = 'review'").await;
}

#[tokio::test]
async fn a_reader_that_leaves_early_is_no_failure_and_no_panic() {
    let scratch = Scratch::with_refunds(3).await;
    move_all_to_review(&scratch).await;
    let config = file(&scratch.file("a", UNLIMITED));
    for args in [
        &["review"][..],
        &["review", "--json"],
        &["status"],
        &["check"],
        &["check", "--reference"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(config.path(), args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{args:?}: {:?}: {said}", output.status);
    }
}

#[tokio::test]
async fn a_full_disk_is_named_and_exits_with_1() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    for args in [&["status"][..], &["status", "--json"], &["review"], &["check"], &["--help"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(config.path(), args).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("failed to write to standard output: No space left"), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn a_change_is_made_whole_although_nobody_reads_what_was_done() {
    let scratch = Scratch::with_refunds(3).await;
    move_all_to_review(&scratch).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let args = [
        "review",
        "settle",
        "R-1@3",
        "R-2@3",
        "R-3@3",
        "--as",
        "succeeded",
        "--reason",
        "on the statement",
        "--by",
        "ann",
    ];
    let output = command(config.path(), &args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    assert!(output.wait_with_output().unwrap().status.success());
    assert_eq!(scratch.number("select count(*) from refundd.refunds where state = 'succeeded'").await, 3);
}

#[tokio::test]
async fn a_misspelt_channel_is_no_all_clear() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let output = refundd(config.path(), &["review", "--channel", "amce"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("--channel amce") && text(&output).contains("there are: acme"),
        "{}",
        text(&output)
    );
    let output = refundd(config.path(), &["review", "--channel", "acme"]);
    assert!(output.status.success() && text(&output).contains("Nothing waits"), "{}", text(&output));
}

#[tokio::test]
async fn every_command_says_that_the_schema_is_missing_and_how_to_make_it() {
    let scratch = Scratch::new().await;
    let bare = format!("{}_bare", scratch.name);
    SERVERS.postgres.create_database(&bare, None).await.unwrap();
    let url = SERVERS.postgres.url(&bare);
    let config = file(&scratch.file("a", UNLIMITED).replace(&scratch.database_url, &url));
    let mut csv = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    std::io::Write::write_all(&mut csv, b"refund_ref\nR-1\n").unwrap();
    let path = csv.path().to_str().unwrap();
    for args in [
        &["status"][..],
        &["import", path],
        &["review"],
        &["pause", "acme", "--reason", "x"],
        &["prove", "--channel", "acme"],
        &["cancel", "R-1", "--reason", "x"],
        &["export", "--channel", "acme", "--from", "1h"],
    ] {
        let output = refundd(config.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output));
        assert!(
            text(&output).contains("no schema `refundd` yet: run `refundd migrate`"),
            "{args:?}: {}",
            text(&output)
        );
    }
    let output = refundd(config.path(), &["migrate"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(refundd(config.path(), &["status"]).status.success());
}

#[tokio::test]
async fn each_migration_is_named_before_it_runs() {
    let scratch = Scratch::new().await;
    let bare = format!("{}_steps", scratch.name);
    SERVERS.postgres.create_database(&bare, None).await.unwrap();
    let store = Store::open(&SERVERS.postgres.url(&bare), None, 1).unwrap();
    let step = |progress| match progress {
        MigrationProgress::Runs(step) => step,
        waits @ MigrationProgress::WaitsFor(_) => panic!("{waits}"),
    };
    let patience = Store::MIGRATION_PATIENCE;
    let mut steps = Vec::new();
    let schema = store.migrate_telling(patience, |progress| steps.push(step(progress))).await.unwrap();
    assert_eq!((steps[0].version, steps[0].nth, steps[0].count), (1, 1, steps.len()));
    assert_eq!(steps.last().map(|step| step.version), Some(schema.known));
    assert_eq!(schema.applied, schema.known);
    assert!(steps.windows(2).all(|pair| pair[0].version < pair[1].version), "{steps:?}");
    let mut again = Vec::new();
    store.migrate_telling(patience, |progress| again.push(step(progress))).await.unwrap();
    assert_eq!(again, []);
}

#[tokio::test]
async fn logs_on_a_terminal_have_colours_unless_the_environment_refuses_them() {
    let scratch = Scratch::new().await;
    let human = scratch.file("a", UNLIMITED).replace("format = \"json\"", "format = \"human\"");
    let away = file(&human.replace(&scratch.database_url, "postgres://refundd@127.0.0.1:1/payments"));
    let mut plain = command(away.path(), &["run"]);
    plain.env("NO_COLOR", "1");
    let (_, plain) = on_a_terminal(plain, Some("Postgres"));
    assert!(plain.contains("WARN") && !plain.contains('\u{1b}'), "{plain:?}");
    let mut coloured = command(away.path(), &["run"]);
    coloured.env_remove("NO_COLOR");
    let (_, coloured) = on_a_terminal(coloured, Some("Postgres"));
    assert!(coloured.contains('\u{1b}'), "{coloured:?}");
}

#[test]
fn the_help_of_resume_says_what_stays_suspended_and_what_its_exit_code_means() {
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args(["resume", "--help"]).output().unwrap();
    let help = text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "End the pause of everything; a channel that is paused or suspended on its own stays so",
        "--credentials, --breaker or --cooling ends that suspension instead",
        "Exit code 3: nothing was suspended",
    ] {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[tokio::test]
async fn status_on_a_terminal_has_no_line_of_more_than_80_columns_and_elsewhere_a_sentence_is_one_line() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", &"the bank asked us to wait ".repeat(6), "ann").await;
    let config = file(&scratch.file("b", UNLIMITED));
    let (status, page) = on_a_terminal(command(config.path(), &["status"]), None);
    assert!(status.success(), "{page}");
    let plain = strip_ansi(&page);
    assert!(plain.lines().all(|line| line.trim_end().chars().count() <= 80), "{plain}");
    let said = text(&refundd(config.path(), &["status"]));
    assert!(said.lines().any(|line| line.matches("asked us to wait").count() == 6), "{said}");
    assert!(plain.matches("asked us").count() + plain.matches("asked\r\nus").count() >= 5, "{plain}");
    node.stop().await;
}

/// The text without the colours of a terminal.
fn strip_ansi(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn a_configuration_that_a_command_would_not_read_is_refused() {
    for args in [
        &["dev", "--config", "/nonexistent"][..],
        &["--config", "/nonexistent", "demo"],
        &["token", "--config", "/nonexistent"],
        &["check", "--reference", "--config", "/nonexistent"],
        &["completions", "bash", "--config", "/nonexistent"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        assert!(text(&output).contains("--config has no use here"), "{args:?}: {}", text(&output));
    }
    for command in ["dev", "demo", "pretend-bank", "token", "completions", "man"] {
        let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args([command, "--help"]).output().unwrap();
        let help = text(&output);
        assert!(output.status.success() && !help.contains("--config"), "{command} offers it: {help}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args(["status", "--help"]).output().unwrap();
    assert!(text(&output).contains("--config"), "{}", text(&output));
    // From the environment it may be meant for other commands.
    let mut token = Command::new(env!("CARGO_BIN_EXE_refundd"));
    let output = token.arg("token").env("REFUNDD_CONFIG", "/nonexistent").output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[tokio::test]
async fn check_warns_of_a_limit_that_slows_nothing() {
    let scratch = Scratch::new().await;
    let unused = format!("{UNLIMITED}[limit.daily]\npermits = 5\nper = \"1s\"\n");
    let output = refundd(file(&scratch.file("a", &unused)).path(), &["check"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("Warning: no channel names limit `daily`"), "{}", text(&output));
    let used = unused.replace("limits = []", "limits = [\"daily\"]");
    let output = refundd(file(&scratch.file("a", &used)).path(), &["check"]);
    assert!(output.status.success() && !text(&output).contains("Warning"), "{}", text(&output));
}

#[tokio::test]
async fn an_amount_with_a_fraction_is_said_to_have_one() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    node.stop().await;
    let config = file(&scratch.file("a", UNLIMITED));
    for (amount, words) in [("12.50", "12.50 EUR is 1250"), ("twelve", "is no number")] {
        let enqueue = format!(
            "enqueue --refund-ref R-1 --channel acme --payment-ref P-1 --amount-minor {amount} --currency EUR"
        );
        let output = refundd(config.path(), &arguments(&enqueue));
        let said = text(&output);
        assert!(
            said.contains("--amount-minor") && said.contains(words) && !said.contains("a string"),
            "{said}"
        );
    }
}
