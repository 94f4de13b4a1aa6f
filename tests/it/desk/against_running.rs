//! `refundd check --against-running`: what changes, and what becomes of the backlog, beside what `status` says.

use std::path::Path;

use serde_json::{Value, json};

use super::json_of;
use crate::callers::CallerTables;
use crate::cli::{file, refundd, text};
use crate::harness::{Scratch, TestNode, until};

fn paced(permits: u32) -> String {
    format!(
        "[limit.acme]\nalgorithm = \"paced\"\npermits = {permits}\nper = \"1m\"\n[channel.acme]\n\
         endpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\n"
    )
}

/// What the command says of a file, and its exit code.
fn compare(config: &Path) -> (Value, i32) {
    let output = refundd(config, &["check", "--against-running", "--json"]);
    let report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    (report, output.status.code().unwrap())
}

/// The page for people, on one line.
fn page(config: &Path) -> String {
    let page = text(&refundd(config, &["check", "--against-running"]));
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The row of a channel in a list of the report.
fn of_channel<'r>(list: &'r Value, name: &str) -> &'r Value {
    let rows = list.as_array().unwrap();
    let named = |row: &&Value| row["channel"] == name || row["name"] == name;
    rows.iter().find(named).unwrap_or_else(|| panic!("nothing about {name}: {list:#}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Two numbers of which the second was read some seconds later.
fn are_close(what: &str, one: f64, other: f64) {
    assert!((one - other).abs() <= (one * 0.05).max(12.0), "{what}: {one} and {other}");
}

/// The drain time and the late refunds of `acme`, as `status` has them.
fn status(config: &Path) -> (Value, Value) {
    let status = &json_of(config, &["status", "--json"])["channels"][0];
    (status["expected_seconds_to_drain"].clone(), status["late"]["refunds"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_forecast_of_a_changed_file_is_what_status_says_after_the_reload() {
    let scratch = Scratch::new().await;
    let (old, new) = (scratch.file("a", &paced(60)), scratch.file("a", &paced(30)));
    let (old, new) = (file(&old), file(&new));
    let node = TestNode::start(&scratch, "a", &paced(60)).await;
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, deadline_at)
             select 'R-' || n, 'acme', 'P-' || n, n, 'EUR', now() + interval '200 seconds' from generate_series(1, 400) n",
        )
        .await;
    let mut seen = (Value::Null, Value::Null);
    until("status has a forecast", async || {
        seen = status(old.path());
        seen.0.is_number() && seen.1.is_number()
    })
    .await;
    let (report, code) = compare(new.path());
    assert_eq!((code, &report["is_worse"]), (4, &json!(true)), "{report:#}");
    assert_eq!(
        report["limits"],
        json!([{ "name": "acme", "change": "differs", "keys": [{ "key": "permits", "old": 60, "new": 30 }] }])
    );
    let backlog = of_channel(&report["backlogs"], "acme");
    are_close("drain before", number(&backlog["before"]["expected_seconds_to_drain"]), number(&seen.0));
    are_close("late before", number(&backlog["before"]["late"]), number(&seen.1));
    // Half the rate: twice the time, and a hundred more are late.
    let (before, after) = (&backlog["before"], &backlog["after"]);
    assert!(number(&after["expected_seconds_to_drain"]) > 1.9 * number(&before["expected_seconds_to_drain"]));
    assert!(number(&after["late"]) > number(&before["late"]) + 80.0, "{backlog:#}");
    let page = page(new.path());
    for words in ["The nodes run another file: a.", "limit acme", "60 -> 30", "TOO LATE"] {
        assert!(page.contains(words), "`{words}` is missing: {page}");
    }
    // The old file changes nothing and delays nobody.
    let (same, code) = compare(old.path());
    assert_eq!((code, &same["is_worse"], &same["limits"]), (0, &json!(false), &json!([])), "{same:#}");

    node.daemon.reload(scratch.config("a", &paced(30))).await.unwrap();
    let after = after.clone();
    until("status has the forecast of the new rule", async || {
        let (drained, late) = status(new.path());
        let is_new =
            |value: &Value, before: &Value| value.as_f64().is_some_and(|value| value > number(before) + 40.0);
        seen = (drained, late);
        is_new(&seen.0, &before["expected_seconds_to_drain"]) && is_new(&seen.1, &before["late"])
    })
    .await;
    are_close("drain after", number(&after["expected_seconds_to_drain"]), number(&seen.0));
    are_close("late after", number(&after["late"]), number(&seen.1));
    until("the node has said which file it runs", async || {
        let (report, code) = compare(new.path());
        report["nodes"][0]["runs_this_file"] == true && code == 0
    })
    .await;
    node.stop().await;
}

const TWO: &str = "[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = []\ntimeout = \"10s\"\n\
                   [channel.other]\nendpoint = \"http://{bank}/other/refunds\"\nlimits = []\n";
const CHANGED: &str = "[limit.fresh]\npermits = 5\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\n\
                       limits = [\"fresh\"]\ntimeout = \"5s\"\n[channel.fresh]\nendpoint = \"http://{bank}/fresh/refunds\"\nlimits = []\n";

#[tokio::test(flavor = "multi_thread")]
async fn channels_that_come_or_go_are_named_with_their_open_refunds() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", TWO).await;
    scratch.pause("other", "maintenance", "ann").await;
    scratch.insert("other", "O-", 5).await;
    scratch.sql("update refundd.refunds set deadline_at = now() + interval '1 hour'").await;
    let changed = file(&scratch.file("a", CHANGED));
    let (report, code) = compare(changed.path());
    assert_eq!(code, 4, "{report:#}");
    let channels = &report["channels"];
    assert_eq!(of_channel(channels, "fresh")["change"], "comes");
    let goes = of_channel(channels, "other");
    assert_eq!((&goes["change"], &goes["open"]), (&json!("goes"), &json!({ "ready": 5 })));
    let differs = of_channel(channels, "acme");
    let keys: Vec<&str> =
        differs["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"limits") && keys.contains(&"timeout"), "{differs:#}");
    assert_eq!(of_channel(&report["limits"], "fresh")["change"], "comes");
    // Nobody knows when a person resumes the channel, and in the file nobody runs it.
    let backlog = of_channel(&report["backlogs"], "other");
    for when in ["before", "after"] {
        assert_eq!(backlog[when]["expected_seconds_to_drain"], Value::Null, "{backlog:#}");
        assert_eq!(backlog[when]["late"], 5, "{backlog:#}");
    }
    let page = page(changed.path());
    for words in ["channel fresh comes", "channel other goes", "5 ready", "never -> never", "10s -> 5s"] {
        assert!(page.contains(words), "`{words}` is missing: {page}");
    }
    node.stop().await;
    let faulty = file(&scratch.file("a", &CHANGED.replace("timeout", "time_limit")));
    assert_eq!(refundd(faulty.path(), &["check", "--against-running"]).status.code(), Some(1));
    assert_eq!(refundd(changed.path(), &["check", "--json"]).status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_and_other_sections_that_change_are_named() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    callers.caller("shop", "may = [\"look\", \"metrics\"]\nchannels = [\"acme\"]");
    let node = TestNode::start(&scratch, "a", &callers.with_channels(TWO)).await;
    let published = "select count(*) from refundd.nodes where settings ? 'caller.shop'";
    until("the node has published its callers", async || scratch.number(published).await == 1).await;
    let same = file(&scratch.file("a", &callers.with_channels(TWO)));
    let (report, code) = compare(same.path());
    assert_eq!((code, &report["sections"]), (0, &json!([])), "{report:#}");
    // The warning about the token has more than 80 columns.
    let said = text(&refundd(same.path(), &["check", "--against-running"]));
    assert!(said.contains("No caller and no other section changes that a reload takes over."), "{said}");
    let changed = callers.with_channels(TWO).replace("\"look\", ", "");
    let changed = format!("{changed}[review]\nsecond_person_above = {{ EUR = 100000 }}\n");
    let changed = file(&scratch.file("a", &changed));
    let (report, code) = compare(changed.path());
    let sections = &report["sections"];
    assert_eq!((code, of_channel(sections, "review")["change"].as_str()), (0, Some("comes")), "{report:#}");
    assert_eq!(of_channel(sections, "caller.shop")["keys"][0]["key"], "may", "{report:#}");
    let said = text(&refundd(changed.path(), &["check", "--against-running"]));
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in
        ["section caller.shop", "may [\"look\",\"metrics\"] -> [\"metrics\"]", "section review comes"]
    {
        assert!(said.contains(words), "`{words}` is missing: {said}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_files_differ_are_named_and_a_file_that_runs_already_changes_nothing() {
    let scratch = Scratch::new().await;
    let config = file(&scratch.file("a", &paced(60)));
    let (report, code) = compare(config.path());
    assert_eq!((code, &report["nodes"]), (0, &json!([])), "{report:#}");
    assert!(page(config.path()).contains("No node lives"));
    let first = TestNode::start(&scratch, "a", &paced(60)).await;
    let mut said = String::new();
    until("the node has said which file it runs", async || {
        said = page(config.path());
        said.contains("run the channels and limits of this file already: a.")
    })
    .await;
    assert!(said.contains("No limit and no channel changes.") && said.contains("No refund waits."), "{said}");
    let second = TestNode::start(&scratch, "b", &paced(50)).await;
    until("the nodes are said to differ", async || {
        said = page(config.path());
        said.contains("The nodes run different files: a (") && said.contains("), b (")
    })
    .await;
    assert!(said.contains("run already on a."), "{said}");
    let (report, _) = compare(config.path());
    assert_eq!(report["nodes_differ"], true, "{report:#}");
    second.stop().await;
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_loosens_a_rule_is_marked_and_the_exit_code_stays() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &paced(60)).await;
    let looser = paced(600) + "on_unknown = \"resend\"\nkey_retention = \"1d\"\ntimeout = \"9s\"\n";
    let looser = file(&scratch.file("a", &looser));
    let (report, code) = compare(looser.path());
    assert_eq!(
        (code, &report["limits"][0]["keys"]),
        (0, &json!([{ "key": "permits", "old": 60, "new": 600, "looser": true }]))
    );
    let keys = of_channel(&report["channels"], "acme")["keys"].as_array().unwrap();
    let marked = keys.iter().filter(|key| key["looser"] == true).map(|key| key["key"].as_str().unwrap());
    assert_eq!(marked.collect::<Vec<_>>(), ["key_retention", "on_unknown"], "{keys:#?}");
    assert!(page(looser.path()).contains("60 -> 600 (looser)"));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_under_another_name_is_to_be_exchanged_in_a_pause() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &paced(60)).await;
    let renamed = paced(60).replace("limit.acme", "limit.bank").replace("[\"acme\"]", "[\"bank\"]");
    let renamed = file(&scratch.file("a", &renamed));
    let page = page(renamed.path());
    for words in
        ["Sends of channel `acme` change from `acme` to `bank`.", "Pause the channel, reload all nodes"]
    {
        assert!(page.contains(words), "`{words}` is missing: {page}");
    }
    let unlimited = file(&scratch.file("a", &paced(60).replace("permits = 60", "permits = -1")));
    assert!(self::page(unlimited.path()).contains("change from `acme` to no limit."));
    let (report, _) = compare(renamed.path());
    assert_eq!(of_channel(&report["channels"], "acme")["advice"].as_array().unwrap().len(), 1, "{report:#}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_where_a_limit_is_counted_is_to_be_made_in_a_pause() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &paced(60)).await;
    let shares = paced(60).replacen("per =", "placement = \"local_share\"\nnodes = 2\nper =", 1);
    let changed = file(&scratch.file("a", &shares));
    let page = page(changed.path());
    for words in
        ["limit acme", "not set -> local_share", "Pause the channels of this limit, reload all nodes"]
    {
        assert!(page.contains(words), "`{words}` is missing: {page}");
    }
    node.stop().await;
}
