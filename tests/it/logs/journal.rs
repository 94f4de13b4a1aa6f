//! Where standard output is the journal, journald can read the level of each line.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use playground::place::write_private;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, until};

/// The lines of a node that waits for Postgres and is then stopped. Its standard output is a file, and the variable names the
/// file, or another inode.
async fn lines(scratch: &Scratch, is_named: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("refundd.toml"), folder.path().join("log"));
    let nowhere = "postgres://refundd@127.0.0.1:1/nothing";
    write_private(&file, &scratch.file("a", UNLIMITED).replace(&scratch.database_url, nowhere)).unwrap();
    let output = std::fs::File::create(&log).unwrap();
    let seen = output.metadata().unwrap();
    let inode = if is_named { seen.ino() } else { seen.ino() + 1 };
    let mut node = Command::new(env!("CARGO_BIN_EXE_refundd"))
        .args(["run", "--config"])
        .arg(&file)
        .env("JOURNAL_STREAM", format!("{}:{inode}", seen.dev()))
        .stdout(output)
        .spawn()
        .unwrap();
    let text = |log: &Path| std::fs::read_to_string(log).unwrap();
    until("it waits for Postgres", async || text(&log).contains("Postgres cannot be used yet; trying again"))
        .await;
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    assert!(node.wait().unwrap().success());
    text(&log).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn each_line_in_the_journal_begins_with_the_priority_of_its_level_and_elsewhere_none_does() {
    let scratch = Scratch::new().await;
    let in_journal = lines(&scratch, true).await;
    assert!(in_journal.iter().any(|line| line.starts_with("<4>")), "{in_journal:#?}");
    for line in &in_journal {
        let (prefix, json) = line.split_at(3);
        let json: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {line}"));
        let wanted = match json["level"].as_str().unwrap() {
            "ERROR" => "<3>",
            "WARN" => "<4>",
            "INFO" => "<6>",
            _ => "<7>",
        };
        assert_eq!(prefix, wanted, "{line}");
    }
    for line in lines(&scratch, false).await {
        assert!(line.starts_with('{'), "{line}");
    }
}
