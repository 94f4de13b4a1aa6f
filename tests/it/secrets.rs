//! Secrets come out of no door: not of logs, pages, commands, errors, `Debug` texts, the journal or `/proc`.

mod doors;
mod every_door;
#[cfg(target_os = "linux")]
mod process;

use std::fs;
use std::process::Command;
use std::time::Duration;

use playground::bank::Step;
use refundd::bank::Bank;
use refundd::config::Config;
use refundd::daemon::{Daemon, open_store};
use refundd::refund::State;
use rustix::process::Signal;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cli::{file, text};
use crate::harness::{NodeProcess, Scratch, http, node::refund, until};

/// Every secret of these tests has this word.
const CANARY: &str = "canary-4f1d";
/// A bank writes this number into its answers.
const CARD: &str = "4111111111111111";

/// A folder of credentials with the addresses of this scratch's servers, each with a password, and the bank's header.
async fn credentials(scratch: &Scratch) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, secret: &str| fs::write(folder.path().join(name), secret).unwrap();
    write("postgres-url", &scratch.database_url.replacen('@', &format!(":{CANARY}@"), 1));
    // A user of Redis may have several passwords.
    let mut redis = scratch.redis().await;
    let mut add = redis::cmd("ACL");
    add.arg(&["SETUSER", "refundd", &format!(">{CANARY}")]).query_async::<()>(&mut redis).await.unwrap();
    write("redis-url", &scratch.redis_url.replace("CHANGE-ME", CANARY));
    write("acme", &format!("Bearer {CANARY}"));
    folder
}

fn channels() -> String {
    format!(
        "[limit.acme]\npermits = 100\nper = \"1s\"\n[channel.acme]\nlimits = [\"acme\"]\ncool_down = \"100ms\"\n\
         endpoint = \"http://{{bank}}/acme/refunds?key={CANARY}\"\nbank_ref = \"/id\"\non_unknown = \"inquire\"\n\
         inquiry = {{ url = \"http://{{bank}}/acme/refunds/{{request_id}}?key={CANARY}\" }}\n\
         authorization_credential = \"acme\"\n"
    )
}

/// The tables that a node writes.
const TABLES: [&str; 11] = [
    "refunds",
    "attempts",
    "permits",
    "channels",
    "nodes",
    "limit_rules",
    "addresses",
    "events",
    "proposals",
    "suspensions",
    "seals",
];

/// What the node and every command may show, and where it was found.
struct Shown(Vec<(String, String)>);

impl Shown {
    fn add(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    /// The whole content of these tables, each of which has rows.
    async fn add_tables(&mut self, scratch: &Scratch, tables: &[&str]) {
        for table in tables {
            let all = format!("select coalesce(string_agg(t::text, ' '), '') from refundd.{table} t");
            let all = scratch.text(&all).await;
            assert!(!all.is_empty(), "{table} is empty");
            self.add(*table, all);
        }
    }

    fn never(&self, secret: &str) {
        for (place, text) in &self.0 {
            let at = text.find(secret);
            let around = at.map(|at| text[..at].chars().rev().take(200).collect::<Vec<_>>());
            let around = around.map(|text| text.into_iter().rev().collect::<String>());
            assert_eq!(around, None, "{place} shows `{secret}` after this text");
        }
    }
}

#[tokio::test]
async fn no_secret_comes_out_of_a_node_or_a_command() {
    let scratch = Scratch::new().await;
    let folder = credentials(&scratch).await;
    let with_credentials = [("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap())];
    let answer = r#"{"error":"card 4111 1111 1111 1111 is closed","id":"4111111111111111","status":"4111-1111-1111-1111",
        "message":"4111.1111.1111.1111","code":4111111111111111,"detail":"to\\u001b[2J 4111/1111/1111/1111\\u202e"}"#;
    scratch
        .bank
        .next("acme", [Step::answers(422, answer), Step::answers(200, r#"{"id":"4111111111111111"}"#)]);
    let trace = |text: String| text.replace("level = \"info\"", "level = \"trace\"");
    let config = trace(scratch.file("a", &channels()));
    let mut node = NodeProcess::spawn_where(&scratch, "a", &channels(), with_credentials);
    node.wait_for_line("HTTP on");
    node.rewrite(&config);
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again");

    let address = node.address().unwrap();
    let mut shown = Shown(Vec::new());
    let saved = get(&address, "POST", "/v1/refunds", &refund("R-1", "acme").to_string()).await;
    shown.add("a saved refund", saved);
    get(&address, "POST", "/v1/refunds", &refund("R-paid", "acme").to_string()).await;
    until("both are settled", async || {
        let counts = scratch.counts().await;
        counts.get(&State::Succeeded) == Some(&1) && counts.get(&State::Failed) == Some(&1)
    })
    .await;
    let why = format!("bad key Bearer {CANARY} in ?key={CANARY}");
    scratch.bank.next("acme", [Step::refuses_entry(&why)]);
    shown.add(
        "a batch",
        get(&address, "POST", "/v1/refunds/batch", &json!([refund("R-2", "acme")]).to_string()).await,
    );
    until("the bank refuses the header", async || scratch.suspensions().await == 1).await;
    let run = |config: &str, arguments: &[&str]| {
        let config = file(config);
        let output = Command::new(env!("CARGO_BIN_EXE_refundd"))
            .arg("--config")
            .arg(config.path())
            .args(arguments)
            .envs(with_credentials)
            .output()
            .unwrap();
        text(&output)
    };
    // A decision that waits for a second person.
    scratch.sql("insert into refundd.second_person (above, node) values ('{\"EUR\": 0}', 'a')").await;
    let failed = "select id || '@' || version from refundd.refunds where state = 'failed'";
    let settle = [
        "review",
        "settle",
        &scratch.text(failed).await,
        "--as",
        "ready",
        "--confirm",
        "not-executed",
        "--reason",
        "their word",
        "--by",
        "ann",
    ];
    shown.add("a proposal", run(&config, &settle));
    shown.add("a pause of everything", get(&address, "POST", "/v1/pause", r#"{"reason":"a test"}"#).await);
    until("the journal is sealed", async || scratch.number("select count(*) from refundd.seals").await > 0)
        .await;
    for path in [
        "/v1/refunds",
        "/v1/refunds/1",
        "/v1/refunds/1/attempts",
        "/v1/channels",
        "/v1/events",
        "/v1/proposals",
        "/v1/suspensions",
        "/v1/changes",
        "/metrics",
        "/health/ready",
        "/",
        "/events",
        "/approvals",
        "/refunds?q=R-1",
        "/channels/acme",
        "/refunds/1",
        "/refunds/2",
        "/review",
        "/proof?channel=acme",
        "/nodes",
    ] {
        let answer = get(&address, "GET", path, "").await;
        assert!(!answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
        shown.add(path, answer);
    }
    let all: [&[&str]; 13] = [
        &["check"],
        &["check", "--against-database"],
        &["check", "--against-running"],
        &["check", "--against-running", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["status"],
        &["status", "--json"],
        &["review"],
        &["review", "show", "1"],
        &["show", "1"],
        &["prove"],
        &["resume", "acme"],
    ];
    for arguments in all {
        shown.add(arguments.join(" "), run(&config, arguments));
    }
    for (wrong, right) in [
        ("postgres-url", "postgres://refundd:canary-4f1d@127.0.0.1:1/payments"),
        ("redis-url", "redis://default:canary-4f1d@127.0.0.1:1"),
        ("postgres-url", "mysql://refundd:canary-4f1d@127.0.0.1/payments"),
        ("redis-url", "redis+sentinel://u:canary-4f1d@127.0.0.1:1/"),
    ] {
        let folder = credentials(&scratch).await;
        fs::write(folder.path().join(wrong), right).unwrap();
        for arguments in [["check"], ["status"], ["doctor"], ["run"]] {
            let config = file(&config);
            let output = Command::new("timeout")
                .args(["3", env!("CARGO_BIN_EXE_refundd"), "--config"])
                .arg(config.path())
                .args(arguments)
                .env("CREDENTIALS_DIRECTORY", folder.path())
                .output()
                .unwrap();
            shown.add(format!("{arguments:?} with a wrong {wrong}"), text(&output));
        }
    }
    node.rewrite(&config.replace("?key=", "?\u{1}key="));
    node.signal(Signal::HUP);
    node.wait_for_line("was not taken over");

    for name in ["cmdline", "environ"] {
        let bytes = fs::read(format!("/proc/{}/{name}", node.pid().as_raw_nonzero())).unwrap_or_default();
        shown.add(name, String::from_utf8_lossy(&bytes));
    }
    shown.add_tables(&scratch, &TABLES).await;
    shown.add("the log", node.log().join("\n"));
    shown.never(CANARY);
    for separator in ["", " ", "-", ".", "/"] {
        shown.never(
            &CARD.as_bytes().chunks(4).map(String::from_utf8_lossy).collect::<Vec<_>>().join(separator),
        );
    }
    assert!(shown.0.iter().any(|(place, text)| place == "refunds" && text.contains("411111******1111")));
    assert!(shown.0.iter().any(|(place, text)| place == "the log" && text.len() > 1000));
    let reason = "bad key **** in ?key=****";
    assert!(shown.0.iter().any(|(place, text)| place == "the log" && text.contains(reason)));
}

#[tokio::test]
async fn no_debug_text_has_a_secret() {
    let scratch = Scratch::new().await;
    let folder = credentials(&scratch).await;
    let folder = folder.path().to_str().unwrap().to_owned();
    let env = |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| folder.clone());
    let config = Config::parse(&scratch.file("a", &channels()), "test.toml", &env).unwrap();
    let mut shown = Shown(Vec::new());
    shown.add("the configuration", format!("{config:?}"));
    let channel = config.channels.values().next().unwrap();
    shown.add("a channel", format!("{channel:?} {:?}", channel.inquiry));
    shown.add("a bank", format!("{:?}", Bank::new(channel).unwrap()));
    let store = open_store(&config.postgres, 2).unwrap();
    store.reach().await.unwrap();
    shown.add("the store", format!("{store:?}"));
    let daemon = Daemon::start(config, || {}).await.unwrap();
    shown.add("a node", format!("{daemon:?}"));
    daemon.stop(CancellationToken::new()).await;
    shown.never(CANARY);
}

/// The whole text of an answer, its status line and headers included.
async fn get(address: &str, method: &str, path: &str, body: &str) -> String {
    let (request, headers) = (format!("{method} {path}"), [http::JSON]);
    let answer = http::ask(address, &request, &headers, body);
    tokio::time::timeout(Duration::from_secs(30), answer).await.unwrap().unwrap()
}
