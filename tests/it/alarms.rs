//! Every alarm of config/alarms.yml fires: real nodes are brought into each state, scraped, and judged by the rule's own
//! expression. In each way of sending nothing, health and `refundd status` say so too.

mod banks;
mod channels;
mod dashboard;
mod expression;
mod histories;
mod refunds;
mod rules;
mod saves;
mod scrapes;
mod servers;
pub mod watch;

use std::collections::BTreeSet;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;

use refundd::refund::State;

use self::rules::rules;
use self::watch::Watch;
use crate::cli::{file, refundd, text};
use crate::harness::{Scratch, TestNode, until};

pub const LIMITED: &str = r#"
[limit.acme]
permits = 50
per = "1s"
lateness = "100ms"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = ["acme"]
timeout = "2s"
connect_timeout = "1s"
"#;

/// What `refundd status` prints once it holds these words.
async fn status_says(scratch: &Scratch, channels: &str, words: &[&str]) {
    let file = file(&scratch.file("s", channels));
    let mut said = String::new();
    let looks = async || {
        said = text(&refundd(file.path(), &["status"]));
        let says = words.iter().all(|word| said.contains(word));
        if !says {
            println!("{words:?} is missing: {said}");
        }
        says
    };
    until("status says it", looks).await;
}

/// Waits until `/health/ready` has this status and these words.
async fn health_says(node: &TestNode, status: u16, words: &str) {
    until("health says it", async || {
        let answer = node.get("/health/ready").await;
        let says = answer.status == status && answer.text.contains(words);
        if !says {
            println!("{status} {words} is missing: {answer:?}");
        }
        says
    })
    .await;
}

/// A node that has sent one refund, and no alarm fires.
async fn healthy(scratch: &Scratch, channels: &str) -> (TestNode, Watch) {
    let node = TestNode::start(scratch, "a", channels).await;
    scratch.insert("acme", "first-", 1).await;
    until("the first is sent", async || scratch.count(State::Succeeded).await == 1).await;
    let mut watch = Watch::on([&node]);
    watch.is_quiet().await;
    (node, watch)
}

#[tokio::test]
async fn no_alarm_fires_while_two_nodes_send() {
    let scratch = Scratch::new().await;
    let nodes =
        [TestNode::start(&scratch, "a", LIMITED).await, TestNode::start(&scratch, "b", LIMITED).await];
    scratch.insert("acme", "R-", 200).await;
    let mut watch = Watch::on(&nodes);
    while scratch.count(State::Succeeded).await < 200 {
        watch.is_quiet().await;
    }
    watch.is_quiet().await;
    health_says(&nodes[0], 200, "\"ready\"").await;
    status_says(&scratch, LIMITED, &["running"]).await;
    for node in nodes {
        node.stop().await;
    }
}

/// No test can stall a process between its last look at the clock and the write, or wait for half an hour: histories.rs makes
/// these states up.
const MADE_UP: [&str; 2] = ["RefunddFirstBytesLate", "RefunddSnapshotHeld"];

#[test]
fn every_alarm_has_an_entry_in_the_runbook_and_a_test_in_which_it_fires() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let anchors = crate::docs::anchors(&read("docs/runbook.md"));
    let tests: String = ["banks", "channels", "refunds", "saves", "scrapes", "servers"]
        .map(|name| read(&format!("tests/it/alarms/{name}.rs")))
        .concat();
    let histories = read("tests/it/alarms/histories.rs");
    let mut seen = BTreeSet::new();
    for rule in rules() {
        let name = &rule.alert;
        assert!(seen.insert(name.clone()), "{name} stands twice");
        let is_made_up = MADE_UP.contains(&name.as_str()) && histories.contains(&format!("holds(\"{name}\""));
        assert!(is_made_up || tests.contains(&format!("fires(\"{name}\")")), "no test makes {name} fire");
        let entry = rule.runbook.strip_prefix("runbook.md#").unwrap_or_else(|| panic!("{}", rule.runbook));
        assert!(anchors.contains(entry), "{name}: the runbook has no entry {entry}");
        assert!(["critical", "warning"].contains(&rule.severity.as_str()), "{name}: {}", rule.severity);
        assert!(rule.summary.ends_with('.'), "{name}: {}", rule.summary);
        let (number, unit) = rule.wait.split_at(rule.wait.len() - 1);
        assert!(number.parse::<u32>().is_ok() && ["m", "h", "d"].contains(&unit), "{name}: {}", rule.wait);
    }
    assert!(seen.len() > 15, "only {} alarms were found", seen.len());
}

/// The runbook's table has the rules of the file, in the file's order.
#[test]
fn the_runbooks_table_of_alarms_is_that_of_the_file() {
    let runbook = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbook.md");
    let runbook = std::fs::read_to_string(runbook).unwrap();
    let rows: Vec<(String, String, bool, String)> = runbook
        .lines()
        .filter(|line| line.starts_with("| `Refundd"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [alert, wait, night, _, entry] =
                cells.try_into().unwrap_or_else(|_| panic!("five cells: {line}"));
            assert!(matches!(night, "page" | "wait"), "{line}");
            let anchor = entry.rsplit_once("](#").map_or("", |(_, anchor)| anchor.trim_end_matches(')'));
            let pages = night == "page";
            (alert.trim_matches('`').to_owned(), wait.to_owned(), pages, format!("runbook.md#{anchor}"))
        })
        .collect();
    let wanted: Vec<_> = rules()
        .into_iter()
        .map(|rule| (rule.alert, rule.wait, rule.severity == "critical", rule.runbook))
        .collect();
    assert_eq!(rows, wanted);
}

/// Prometheus reads the file. Its program is too large for every run: `make alarms` gets it.
#[test]
fn prometheus_reads_the_file() {
    let Some(program) = std::env::var_os("PROMTOOL") else { return };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/alarms.yml");
    let output = Command::new(program).args(["check", "rules"]).arg(file).output().unwrap();
    let said = text(&output);
    let wanted = format!("{} rules found", rules().len());
    assert!(output.status.success() && said.contains(&wanted), "{said}");
}

/// Prometheus reads the metrics of a node, and finds none without help or with a misleading name.
#[tokio::test]
async fn prometheus_has_nothing_to_say_against_the_metrics() {
    let Some(program) = std::env::var_os("PROMTOOL") else { return };
    let scratch = Scratch::new().await;
    let (node, _) = healthy(&scratch, LIMITED).await;
    let mut page = tempfile::tempfile().unwrap();
    page.write_all(node.get("/metrics").await.text.as_bytes()).unwrap();
    page.rewind().unwrap();
    let output = Command::new(program).args(["check", "metrics", "--extended"]).stdin(page).output().unwrap();
    let said = text(&output);
    assert!(output.status.success() && said.contains("refundd_attempts_total"), "{said}");
    node.stop().await;
}
