//! SIGHUP: rates and channels change without a restart, without a fresh budget, and all or nothing.

mod cut_off;
mod old_workers;
mod open_answers;
mod other_limits;

use std::time::Duration;

use playground::bank::{Arrival, Ledger};
use refundd::refund::State;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, Systemd, TestNode, until, window_lasts};

fn limited(permits: u32) -> String {
    format!(
        "[limit.acme]\npermits = {permits}\nper = \"1s\"\nlateness = \"100ms\"\n{}max_in_flight = 200\n",
        UNLIMITED.replace("[]", "[\"acme\"]")
    )
}

#[tokio::test]
async fn a_lower_limit_holds_from_the_second_after_the_reload() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", &limited(100));
    scratch.insert("acme", "R-", 1500).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 250).await);
    node.rewrite(&scratch.file("a", &limited(10)));
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again and in force");
    let now = scratch.now_us().await;
    // A permit that opens within the 50 ms of `ahead` may have been granted under the old limit.
    let next_second = now + 50_000 - (now + 50_000).rem_euclid(1_000_000) + 1_000_000;
    let later = |arrival: &&Arrival| arrival.at_us >= next_second;
    let enough = |l: &Ledger| l.all().iter().filter(later).count() >= 25;
    assert!(scratch.bank.until(Duration::from_secs(20), enough).await);
    let mut seconds = std::collections::BTreeMap::<i64, usize>::new();
    for arrival in scratch.bank.ledger().all().iter().filter(later) {
        *seconds.entry(arrival.at_us / 1_000_000).or_default() += 1;
    }
    assert!(seconds.len() >= 3 && seconds.values().all(|n| *n <= 10), "{seconds:?}");
}

#[tokio::test]
async fn reloading_gives_no_fresh_budget() {
    window_lasts(3_600, 60).await;
    let scratch = Scratch::new().await;
    let hourly = |permits: u32| limited(permits).replace("per = \"1s\"", "per = \"1h\"");
    let node = TestNode::start(&scratch, "a", &hourly(20)).await;
    scratch.insert("acme", "R-", 100).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() == 20).await);
    for permits in [21, 22, 23, 20, 25] {
        node.daemon.reload(scratch.config("a", &hourly(permits))).await.unwrap();
    }
    // A permit that a changed dispatcher handed back unused stays spent, so fewer than 25 may be sent.
    until("the hour's 25 permits are spent", async || {
        scratch.number("select count(*) from refundd.permits").await >= 25
    })
    .await;
    // Another window length starts with what the old one spent.
    node.daemon.reload(scratch.config("a", &hourly(25).replace("1h", "2h"))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    let sent = scratch.bank.look(|l| l.all().len());
    assert!(sent <= 25, "{sent} sent");
    node.stop().await;
}

#[tokio::test]
async fn a_channel_is_added_and_another_removed_without_a_restart() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let other = UNLIMITED.replace("acme", "other");
    let done = node.daemon.reload(scratch.config("a", &other)).await.unwrap();
    assert_eq!((done.started.len(), done.changed.len(), done.stopped.len()), (1, 0, 1));
    scratch.insert("other", "O-", 3).await;
    until("the new channel pays", async || scratch.bank.look(|l| l.arrivals("other").count()) == 3).await;
    scratch.insert("acme", "R-", 1).await;
    node.daemon.reload(scratch.config("a", &format!("{other}{UNLIMITED}"))).await.unwrap();
    until("the old one is back", async || scratch.bank.look(|l| l.arrivals("acme").count()) == 1).await;
    node.stop().await;
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_says_why() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    node.rewrite(
        &scratch.file("a", &UNLIMITED.replace("timeout = \"10s\"\nconnect", "tiemout = \"10s\"\nconnect")),
    );
    node.signal(Signal::HUP);
    node.wait_for_line("the old one stays in force");
    let log = node.log().join("\n");
    assert!(log.contains("tiemout") && log.contains("did you mean"), "{log}");
    scratch.insert("acme", "R-", 3).await;
    until("it still pays", async || scratch.count(State::Succeeded).await == 3).await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

#[tokio::test]
async fn what_needs_a_restart_is_named_by_each_reload_while_it_differs_from_the_start() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for (name, expected) in [("b", vec!["node.name"]), ("b", vec!["node.name"]), ("a", vec![])] {
        let done = node.daemon.reload(scratch.config(name, UNLIMITED)).await.unwrap();
        assert_eq!(done.needs_restart, expected, "{name}");
    }
    node.stop().await;
}

/// Postgres and the other nodes know the new configuration when the breakers are switched off.
#[tokio::test]
async fn a_reload_that_all_nodes_know_is_in_force_also_if_a_breaker_cannot_be_switched_off() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch
        .sql("create function refundd.full_disk() returns trigger language plpgsql as $$ begin raise disk_full; end $$")
        .await;
    scratch
        .sql("create trigger full_disk before update on refundd.suspensions for each statement execute function refundd.full_disk()")
        .await;
    let moved = UNLIMITED.replace("/acme/refunds", "/other/refunds");
    let done = node.daemon.reload(scratch.config("a", &moved)).await.unwrap();
    assert_eq!(done.changed.len(), 1);
    scratch.insert("acme", "R-", 1).await;
    until("it is sent to the new address", async || scratch.bank.look(|l| l.arrivals("other").count()) == 1)
        .await;
    scratch.sql("drop trigger full_disk on refundd.suspensions").await;
    node.stop().await;
}

/// Starts a node under systemd's watchdog, slows the reloads down, and waits until one is under way.
async fn slowly_reloading(scratch: &Scratch, systemd: &Systemd) -> NodeProcess {
    let node = NodeProcess::spawn_where(scratch, "a", UNLIMITED, systemd.environment());
    node.wait_for_line("HTTP on");
    scratch
        .sql("create function refundd.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(8); return null; end $$")
        .await;
    scratch
        .sql("create trigger slow before insert on refundd.channels for each statement execute function refundd.slow()")
        .await;
    node.signal(Signal::HUP);
    until("the reload is under way", async || {
        let asleep = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
        scratch.number(asleep).await == 1
    })
    .await;
    node
}

/// How many reloads the node has finished.
fn reloads(node: &NodeProcess) -> usize {
    node.log().iter().filter(|line| line.contains("Configuration read again and in force")).count()
}

#[tokio::test]
async fn a_slow_reload_keeps_the_watchdog_fed_and_a_second_signal_waits_for_its_end() {
    let (scratch, systemd) = (Scratch::new().await, Systemd::new());
    let mut node = slowly_reloading(&scratch, &systemd).await;
    node.signal(Signal::HUP);
    let fed = systemd.heard("WATCHDOG=1");
    until("the watchdog is fed", async || systemd.heard("WATCHDOG=1") >= fed + 3).await;
    assert_eq!(reloads(&node), 0, "the reload is still under way");
    until("both reloads are done", async || reloads(&node) == 2).await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_slow_reload() {
    let (scratch, systemd) = (Scratch::new().await, Systemd::new());
    let mut node = slowly_reloading(&scratch, &systemd).await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    assert_eq!(reloads(&node), 0, "{:#?}", node.log());
}

#[tokio::test]
async fn a_reload_that_cannot_read_its_file_holds_up_neither_the_watchdog_nor_a_stop() {
    let (scratch, systemd) = (Scratch::new().await, Systemd::new());
    let mut node = NodeProcess::spawn_where(&scratch, "a", UNLIMITED, systemd.environment());
    node.wait_for_line("HTTP on");
    let pipe = node.put_pipe_for_file().to_owned();
    node.signal(Signal::HUP);
    // It opens once the node reads. While this end is open and writes nothing, the node's read does not end.
    let mut writer = None;
    until("the node reads the pipe", async || {
        writer = rustix::fs::open(&pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok();
        writer.is_some()
    })
    .await;
    let fed = systemd.heard("WATCHDOG=1");
    until("the watchdog is fed", async || systemd.heard("WATCHDOG=1") >= fed + 3).await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    assert_eq!(reloads(&node), 0, "{:#?}", node.log());
}

#[tokio::test]
async fn a_configuration_that_comes_through_a_pipe_is_reloaded_and_a_secret_in_a_pipe_is_refused() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("tokens");
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&secret).status().unwrap();
    assert!(made.success());
    let caller = format!(
        "{UNLIMITED}[caller.shop]\nmay = [\"look\"]\nchannels = [\"acme\"]\ntokens_file = \"{}\"\n",
        secret.display()
    );
    let pipe = node.put_pipe_for_file().to_owned();
    for (text, line) in
        [(caller.as_str(), "it is not a regular file"), (UNLIMITED, "Configuration read again and in force")]
    {
        let (pipe, text) = (pipe.clone(), scratch.file("a", text));
        let writer = std::thread::spawn(move || std::fs::write(pipe, text).unwrap());
        node.signal(Signal::HUP);
        node.wait_for_line(line);
        writer.join().unwrap();
    }
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

#[tokio::test]
async fn a_reload_that_counts_a_limit_elsewhere_warns_that_nodes_may_exceed_it_meanwhile() {
    let scratch = Scratch::new().await;
    let mut node = NodeProcess::start(&scratch, "a", &limited(100));
    let is_warned =
        |node: &NodeProcess| node.log().iter().any(|line| line.contains("has another `placement`"));
    node.rewrite(&scratch.file("a", &limited(50)));
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again and in force");
    assert!(!is_warned(&node), "{:#?}", node.log());
    let shares = limited(50).replacen("per =", "placement = \"local_share\"\nnodes = 2\nper =", 1);
    node.rewrite(&scratch.file("a", &shares));
    node.signal(Signal::HUP);
    node.wait_for_line("Limit `acme` has another `placement`");
}
