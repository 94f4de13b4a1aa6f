//! `refundd log --kind`: the events of one kind or of several.

use std::collections::BTreeSet;

use refundd::store::EVENT_KINDS;

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

#[tokio::test]
async fn the_log_shows_the_kinds_that_are_asked_for_and_names_all_kinds_if_one_is_wrong() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.publish("globex").await;
    scratch
        .sql("insert into refundd.events (kind, channel, who) values ('paused', 'acme', 'x'), ('resumed', 'acme', 'x'), ('paused', 'globex', 'x')")
        .await;
    let file = file(&scratch.file("cli", UNLIMITED));
    let log = |args: &[&str]| refundd(file.path(), &[&["log"], args].concat());
    for (args, kinds) in [
        (&["--kind", "paused"][..], &["paused", "paused"][..]),
        (&["acme", "--kind", "paused"], &["paused"]),
        (&["acme", "--kind", "paused", "--kind", "resumed"], &["paused", "resumed"]),
    ] {
        let output = log(args);
        let said = text(&output);
        assert!(output.status.success(), "{args:?}: {said}");
        let mut shown: Vec<&str> =
            said.lines().map(|line| line.split_whitespace().nth(1).unwrap_or_default()).collect();
        shown.sort_unstable();
        assert_eq!(shown, kinds, "{args:?}: {said}");
    }
    assert_eq!(text(&log(&["--kind", "clock_stepped"])), "No event matches.\n");
    let wrong = log(&["--kind", "late_answer"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    assert!(EVENT_KINDS.iter().all(|kind| text(&wrong).contains(kind)), "{}", text(&wrong));
}

#[test]
fn the_log_knows_exactly_the_kinds_that_the_documentation_lists() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sql.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| kind | written when |\n").unwrap();
    let cells =
        table.lines().take_while(|line| line.starts_with("| ")).filter_map(|line| line.split('|').nth(1));
    // Between two backticks stands each second part.
    let listed: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert_eq!(listed, BTreeSet::from(EVENT_KINDS));
}
