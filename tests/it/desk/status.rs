//! `refundd status`: all channels in 80 columns, one in detail, and the same names as the HTTP interface.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use refundd::refund::State;
use serde_json::Value;

use super::json_of;
use crate::cli::{file, refundd, text};
use crate::harness::{Scratch, TestNode, until};

const PACED: &str = "[limit.acme]\nalgorithm = \"paced\"\npermits = 5\nper = \"1s\"\n[channel.acme]\n\
                     endpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";

fn names(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap_or_else(|| panic!("{object}")).keys().cloned().collect()
}

#[tokio::test]
async fn the_table_fits_into_80_columns_and_a_name_shows_one_channel_in_detail() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", PACED).await;
    scratch.insert("acme", "R-", 300).await;
    until("some are paid", async || scratch.count(State::Succeeded).await > 10).await;
    let config = file(&scratch.file("a", PACED));
    let mut table = String::new();
    until("the node has reported what binds", async || {
        table = text(&refundd(config.path(), &["status"]));
        table.contains("acme: bound by limit `acme`")
    })
    .await;
    // The sentences below the table may be longer.
    assert!(table.lines().take(2).all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("CANC"), "{table}");
    let one = text(&refundd(config.path(), &["status", "acme"]));
    for words in [
        "limit `acme`",
        "5 in any 1s, evenly spaced",
        "p50",
        "p95",
        "connection set-up",
        "in about",
        "cancelled 0",
    ] {
        assert!(one.contains(words), "`{words}` is missing: {one}");
    }
    let none = refundd(config.path(), &["status", "acne"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none).contains("no channel `acne` was ever run"), "{}", text(&none));
    node.stop().await;
}

#[tokio::test]
async fn status_and_the_http_interface_use_the_same_names() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", PACED).await;
    scratch.insert("acme", "R-", 100).await;
    scratch.pause("acme", "maintenance", "ann").await;
    let config = file(&scratch.file("a", PACED));
    let (mut by_http, mut by_status) = (Value::Null, Value::Null);
    until("both have seen the bank", async || {
        by_http = node.get("/v1/channels").await.json()["channels"][0].clone();
        by_status = json_of(config.path(), &["status", "--json"])["channels"][0].clone();
        by_status["paused"].is_object() && by_http["paused"].is_object()
    })
    .await;
    assert_eq!(names(&by_http), names(&by_status));
    assert_eq!(names(&by_http["paused"]), names(&by_status["paused"]));
    assert_eq!(by_http["limits"], by_status["limits"]);
    assert_eq!(node.get("/v1/channels/acme").await.json()["channel"], "acme");
    assert_eq!(node.get("/v1/channels/acne").await.status, 404);
    // Names of the version before.
    for (older, name) in [
        ("in_line", "ids_in_bucket"),
        ("oldest_ready_seconds", "oldest_ready_age_seconds"),
        ("backlog_full", "full"),
    ] {
        assert_eq!(by_status[older], by_status[name], "{older}");
    }
    node.stop().await;
}

#[tokio::test]
async fn status_shows_the_limit_in_force_and_not_the_one_of_the_callers_file() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", PACED).await;
    let other = file(&scratch.file("a", &PACED.replace("permits = 5", "permits = 77")));
    until("the node has published its channel", async || {
        text(&refundd(other.path(), &["status", "acme"])).contains("5 in any 1s")
    })
    .await;
    let shown = text(&refundd(other.path(), &["status", "acme"]));
    assert!(!shown.contains("77"), "{shown}");
    node.stop().await;
}

#[tokio::test]
async fn a_missing_schema_is_said_to_be_missing_with_the_way_out() {
    let scratch = Scratch::new().await;
    scratch.sql("drop schema refundd cascade").await;
    let config = file(&scratch.file("a", PACED));
    for command in [&["status"][..], &["status", "--json"], &["show", "R-1"]] {
        let output = refundd(config.path(), command);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let said = text(&output);
        assert!(said.contains("no schema `refundd`") && said.contains("refundd migrate"), "{said}");
    }
}

#[tokio::test]
async fn watch_draws_again_and_again_and_commands_no_terminal_that_is_none() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let config = file(&scratch.file("a", PACED));
    let mut watch = Command::new(env!("CARGO_BIN_EXE_refundd"))
        .args(["status", "--watch", "--config"])
        .arg(config.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut headers = 0;
    let is_before_the_third = |line: &String| {
        headers += i32::from(line.starts_with("CHANNEL"));
        headers < 3
    };
    let drawn: Vec<String> = lines.take_while(is_before_the_third).collect();
    assert_eq!(drawn.iter().filter(|line| line.starts_with("acme ")).count(), 2, "{drawn:?}");
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(!drawn.concat().contains('\u{1b}'), "{drawn:?}");
    let refused = refundd(config.path(), &["status", "--watch", "--json"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
}

#[tokio::test]
async fn watching_a_channel_that_was_never_run_ends_with_the_reason() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let config = file(&scratch.file("a", PACED));
    let mut watch = Command::new(env!("CARGO_BIN_EXE_refundd"))
        .args(["status", "amce", "--watch", "--config"])
        .arg(config.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ended = None;
    until("it ends", async || {
        ended = watch.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    assert_eq!(ended.unwrap().code(), Some(1));
    let said = std::io::read_to_string(watch.stderr.take().unwrap()).unwrap();
    assert!(said.contains("no channel `amce` was ever run on this database"), "{said}");
}

#[tokio::test]
async fn what_binds_a_channel_is_reported_as_soon_as_it_changes() {
    let scratch = Scratch::new().await;
    let slow = PACED.replace("permits = 5\nper = \"1s\"", "permits = 1\nper = \"1h\"");
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 20).await;
    let node = TestNode::start(&scratch, "a", &slow).await;
    until("the node itself knows what binds", async || {
        node.get("/v1/channels/acme").await.json()["binds"] != "nothing"
    })
    .await;
    let config = file(&scratch.file("a", &slow));
    // A heartbeat comes every second or so; the regular report only every fifth one.
    crate::harness::within(std::time::Duration::from_secs(4), "the command knows it, too", async || {
        json_of(config.path(), &["status", "--json"])["channels"][0]["binds"] != "nothing"
    })
    .await;
    node.stop().await;
}

/// The host of an operator may have no way to Redis.
#[tokio::test]
async fn redis_answers_the_nodes_and_not_the_host_of_an_operator() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", PACED).await;
    let nowhere = scratch.file("s", PACED).replace(&scratch.redis_url, "redis://127.0.0.1:1");
    let config = file(&nowhere);
    until("the node has reported what it runs", async || {
        text(&refundd(config.path(), &["status"])).contains("Redis does not answer this host (")
    })
    .await;
    let said = text(&refundd(config.path(), &["status"]));
    assert!(!said.contains("Redis is away"), "{said}");
    node.stop().await;
    // A node that stopped vouches for nothing.
    let said = text(&refundd(config.path(), &["status"]));
    assert!(said.contains("Redis is away ("), "{said}");
}
