//! The command line: what it prints and how it exits is interface.

mod backlog;
mod cancel;
mod dev;
mod export;
mod guesses;
mod import;
mod moving;
mod namesakes;
mod output;
mod said;
mod shell;

use std::io::Write;
use std::process::{Command, Output};

use playground::bank::Step;
use refundd::refund::State;

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

pub fn refundd(file: &std::path::Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_refundd"))
        .arg("--config")
        .arg(file)
        .args(args)
        .env("USER", "ann")
        .env_remove("SUDO_USER")
        .output()
        .unwrap()
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    Write::write_all(&mut file, text.as_bytes()).unwrap();
    file
}

/// The arguments of a command line; none of them has a space.
pub fn arguments(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// A CSV file with these lines under the usual columns.
pub fn csv_file(lines: &[&str]) -> tempfile::NamedTempFile {
    let mut csv = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    writeln!(csv, "refund_ref,channel,payment_ref,amount_minor,currency").unwrap();
    for line in lines {
        writeln!(csv, "{line}").unwrap();
    }
    csv.flush().unwrap();
    csv
}

#[test]
fn help_names_every_command() {
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).arg("--help").output().unwrap();
    assert!(output.status.success());
    insta::assert_snapshot!(text(&output));
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).arg("rnu").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("unrecognized subcommand"), "{}", text(&output));
}

#[test]
fn the_reference_configuration_can_be_printed() {
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args(["check", "--reference"]).output().unwrap();
    assert!(output.status.success());
    assert!(text(&output).contains("[channel."), "{}", text(&output));
}

#[tokio::test]
async fn check_names_what_is_wrong_and_exits_with_1() {
    let scratch = Scratch::new().await;
    let good = file(&scratch.file("a", UNLIMITED));
    let output = refundd(good.path(), &["check"]);
    assert!(output.status.success(), "{}", text(&output));
    let bad = file(&scratch.file("a", &UNLIMITED.replace("limits = []", "")));
    let output = refundd(bad.path(), &["check"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("channel.acme") && text(&output).contains("limits"), "{}", text(&output));
}

#[tokio::test]
async fn check_warns_of_an_inquiry_that_believes_any_404_with_json() {
    let scratch = Scratch::new().await;
    let inquiry = |not_found: &str| {
        let line = format!(
            "inquiry = {{ url = \"http://127.0.0.1:9/refunds/{{request_id}}\", not_found_is_final = true{not_found} }}\n"
        );
        file(&scratch.file("a", &format!("{UNLIMITED}{line}")))
    };
    let loose = refundd(inquiry("").path(), &["check"]);
    assert!(loose.status.success(), "{}", text(&loose));
    assert!(text(&loose).contains("Warning: channel `acme`"), "{}", text(&loose));
    assert!(text(&loose).contains("inquiry.not_found"), "{}", text(&loose));
    let strict = ", not_found = { pointer = \"/error/code\", equals = \"refund_not_found\" }";
    let output = refundd(inquiry(strict).path(), &["check"]);
    assert!(output.status.success() && !text(&output).contains("Warning"), "{}", text(&output));
}

#[tokio::test]
async fn check_warns_of_rules_about_the_body_that_leave_answers_over() {
    let scratch = Scratch::new().await;
    let rule = "[[channel.acme.verdict]]\nstatus = 200\noutcome = \"rejected\"\n";
    let listed = rule.replace("outcome", "pointer = \"/code\"\nequals = \"51\"\noutcome");
    let check = |rules: &str| {
        let config = file(&scratch.file("a", &format!("{UNLIMITED}{rules}")));
        refundd(config.path(), &["check"])
    };
    let open = check(&listed);
    assert!(open.status.success(), "{}", text(&open));
    assert!(text(&open).contains("Warning: channel `acme`"), "{}", text(&open));
    assert!(text(&open).contains("`status = 200` and no `pointer`"), "{}", text(&open));
    let closed = check(&format!("{listed}{rule}"));
    assert!(closed.status.success() && !text(&closed).contains("Warning"), "{}", text(&closed));
}

#[tokio::test]
async fn a_node_on_an_old_schema_says_what_to_run() {
    let scratch = Scratch::new().await;
    scratch
        .sql("delete from refundd.migrations where version = (select max(version) from refundd.migrations)")
        .await;
    let good = file(&scratch.file("a", UNLIMITED));
    let output = refundd(good.path(), &["run"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("run `refundd migrate`"), "{}", text(&output));
}

#[tokio::test]
async fn enqueue_status_pause_review_and_resume_do_what_they_say() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let run = |args: &[&str]| refundd(config.path(), args);
    let enqueue = arguments(
        "enqueue --refund-ref R-1 --channel acme --payment-ref P-1 --amount-minor 1250 --currency EUR",
    );
    let saved = run(&enqueue);
    assert!(saved.status.success() && text(&saved).contains("Saved as refund 1"), "{}", text(&saved));
    let again = run(&enqueue);
    assert!(again.status.success() && text(&again).contains("Already saved as refund 1"), "{}", text(&again));
    let bad = run(&arguments(
        "enqueue --refund-ref R-2 --channel acme --payment-ref P --amount-minor 12.50 --currency EU",
    ));
    assert_eq!(bad.status.code(), Some(2));
    assert_eq!(run(&[&enqueue[..], &["--payload", "{"]].concat()).status.code(), Some(2));
    let unknown = arguments(
        "enqueue --refund-ref R-2 --channel nobody --payment-ref P --amount-minor 5 --currency EUR",
    );
    assert_eq!(run(&unknown).status.code(), Some(1), "refused, though the command line is right");
    assert!(text(&bad).contains("--amount-minor") && text(&bad).contains("--currency"), "{}", text(&bad));

    until("it waits for a person", async || scratch.count(State::Review).await == 1).await;
    let status = run(&["status", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(json["channels"][0]["counts"]["review"], 1, "{json}");
    let listed = run(&["review"]);
    assert!(text(&listed).contains("R-1") && text(&listed).contains("500"), "{}", text(&listed));
    let no_reason = run(&["review", "settle", "1", "--as", "succeeded"]);
    assert_eq!(no_reason.status.code(), Some(2));
    let version = scratch.number("select version::bigint from refundd.refunds where id = 1").await;
    let named = format!("R-1@{version}");
    let settled =
        run(&["review", "settle", &named, "--as", "succeeded", "--reason", "on the bank's statement"]);
    assert!(settled.status.success(), "{}", text(&settled));
    let shown = run(&["review", "show", "1"]);
    assert!(
        text(&shown).contains("on the bank's statement") && text(&shown).contains("ann"),
        "{}",
        text(&shown)
    );

    assert!(run(&["pause", "acme", "--reason", "maintenance"]).status.success());
    assert!(text(&run(&["status"])).contains("paused by ann"));
    assert!(run(&["resume", "acme"]).status.success());
    assert_eq!(run(&["pause", "nobody", "--reason", "x"]).status.code(), Some(1));
    node.stop().await;
}

#[tokio::test]
async fn a_wrong_address_is_named_with_what_stood_in_the_way() {
    let scratch = Scratch::new().await;
    let wrong = scratch
        .file("a", UNLIMITED)
        .replace(&scratch.database_url, "postgres://refundd@127.0.0.1:1/payments");
    let output = refundd(file(&wrong).path(), &["status"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("failed to reach Postgres at 127.0.0.1:1") && said.contains("refused"), "{said}");
    let missing = format!("{}_missing", scratch.name);
    let url = scratch.database_url.replace(&scratch.name, &missing);
    let wrong = scratch.file("a", UNLIMITED).replace(&scratch.database_url, &url);
    for command in ["status", "run", "migrate"] {
        let said = text(&refundd(file(&wrong).path(), &[command]));
        for words in [
            &format!("database \"{missing}\" does not exist"),
            "create it with `createdb`",
            "refundd migrate",
        ] {
            assert!(said.contains(words), "{command}: {said}");
        }
        assert!(!said.contains("at line"), "{command}: {said}");
    }
    let output = refundd(std::path::Path::new("/nowhere.toml"), &["check"]);
    assert!(
        text(&output).contains("failed to read the configuration file `/nowhere.toml`"),
        "{}",
        text(&output)
    );
}

#[tokio::test]
async fn an_error_says_once_that_something_failed() {
    let scratch = Scratch::new().await;
    scratch.sql("alter table refundd.migrations rename column version to lost").await;
    let file = file(&scratch.file("a", UNLIMITED));
    let output = refundd(file.path(), &["run"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.starts_with("refundd: failed to ") && !said.contains("failed to failed"), "{said}");
    assert_eq!(said.matches("does not exist").count(), 1, "the cause stands once: {said}");
    assert!(!said.contains("at line"), "a line of Postgres's own source helps nobody: {said}");
}

#[tokio::test]
async fn check_refuses_an_address_of_postgres_that_its_client_would_misread() {
    let scratch = Scratch::new().await;
    for (address, wrong) in [
        ("postgres://db/refunds?sslmode=verify_full", "sslmode=verify_full"),
        ("postgres://a,b/refunds", "several hosts"),
        ("postgres://db/refunds?target_session_attrs=read-write", "target_session_attrs"),
    ] {
        let file = file(&scratch.file("a", UNLIMITED).replace(&scratch.database_url, address));
        let output = refundd(file.path(), &["check"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let said = text(&output);
        assert!(said.contains("postgres.url") && said.contains(wrong), "{said}");
    }
}
