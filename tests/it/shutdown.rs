//! Stopping: takes no more, lets calls in flight finish, settles them, names what is left, exits 0.

use std::time::{Duration, Instant};

use playground::Weather;
use playground::bank::Step;
use playground::forward::Forward;
use refundd::refund::State;
use rustix::process::Signal;

use crate::dispatch::UNLIMITED;
use crate::harness::http::get;
use crate::harness::servers::SERVERS;
use crate::harness::{NodeProcess, Scratch, Systemd, until};

#[tokio::test]
async fn stopping_waits_for_the_calls_in_flight_and_settles_them() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays().after(Duration::from_millis(700)));
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    scratch.insert("acme", "R-", 100).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= 16).await);
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let sent = i64::try_from(scratch.bank.look(|l| l.all().len())).unwrap();
    let counts = scratch.counts().await;
    assert_eq!(counts.get(&State::Succeeded).copied(), Some(sent), "{counts:?}");
    assert_eq!(counts.get(&State::Ready).copied(), Some(100 - sent), "{counts:?}");
    assert_eq!(scratch.number("select count(*) from refundd.nodes").await, 0, "it is off the list");
}

#[tokio::test]
async fn a_call_that_began_before_a_reload_lowered_its_time_out_is_waited_for_as_well() {
    let scratch = Scratch::new().await;
    // Longer than a stop waits under the new time-outs, and much shorter than under the old ones.
    scratch.bank.then("acme", Step::pays().after(Duration::from_secs(15)));
    let patient = UNLIMITED.replace("timeout = \"10s\"\nconnect", "timeout = \"30s\"\nconnect");
    let mut node = NodeProcess::start(&scratch, "a", &patient);
    scratch.insert("acme", "R-", 1).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() == 1).await);
    let arrived = Instant::now();
    let impatient = UNLIMITED.replace("timeout = \"10s\"\nconnect", "timeout = \"1s\"\nconnect");
    node.rewrite(&scratch.file("a", &impatient));
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again and in force: channel.acme changed");
    node.signal(Signal::TERM);
    // Later, the answer would come before a stop under the new time-outs gives the call up.
    assert!(arrived.elapsed() < Duration::from_secs(8), "the reload took {:?}", arrived.elapsed());
    assert!(node.wait().success());
    let counts = scratch.counts().await;
    assert_eq!(counts.get(&State::Succeeded), Some(&1), "{counts:?}");
    // A stop that gives a call up still waits for the settler, for 20 s. An answer in this time is written as well.
    let log = node.log();
    assert!(!log.iter().any(|line| line.contains("Stopped waiting for calls")), "{log:#?}");
}

#[tokio::test]
async fn refunds_that_wait_for_their_permit_are_handed_back_unsent() {
    let scratch = Scratch::new().await;
    let channels = format!(
        "[limit.acme]\npermits = 50\nper = \"4s\"\nahead = \"2s\"\n{}max_in_flight = 200\n",
        UNLIMITED
            .replace("[]", "[\"acme\"]")
            .replace("timeout = \"10s\"\nconnect", "timeout = \"2s\"\nlease = \"12s\"\nconnect")
    );
    let mut node = NodeProcess::start(&scratch, "a", &channels);
    scratch.insert("acme", "R-", 200).await;
    until("some are leased ahead of their window", async || {
        scratch.bank.look(|l| l.all().len()) >= 50 && scratch.count(State::Sending).await >= 50
    })
    .await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let window = Duration::from_secs(4);
    let worst = scratch.bank.look(|l| l.worst_aligned_window("acme", window).map_or(0, |w| w.count));
    assert!(worst <= 50, "none was sent before its window: {worst}");
    let counts = scratch.counts().await;
    assert_eq!(counts.get(&State::Sending), None, "{counts:?}");
    let sent = i64::try_from(scratch.bank.look(|l| l.all().len())).unwrap();
    assert_eq!(counts.get(&State::Ready).copied(), Some(200 - sent), "{counts:?}");
    assert_eq!(
        scratch.number("select max(attempts)::bigint from refundd.refunds where state = 'ready'").await,
        0,
        "none counts as an attempt"
    );
}

#[tokio::test]
async fn a_second_signal_shortens_the_wait_and_what_is_left_is_named() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::silence());
    let mut node = NodeProcess::start(
        &scratch,
        "a",
        &UNLIMITED.replace("timeout = \"10s\"\nconnect", "timeout = \"60s\"\nconnect"),
    );
    scratch.insert("acme", "R-", 2).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= 2).await);
    let began = Instant::now();
    node.signal(Signal::TERM);
    node.wait_for_line("2 calls to banks are under way");
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let left: Vec<String> =
        node.log().into_iter().filter(|l| l.contains("left under this node's lease")).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(scratch.count(State::Sending).await, 2);
}

#[tokio::test]
async fn a_start_that_postgres_refuses_names_no_loop_as_ended() {
    let scratch = Scratch::new().await;
    scratch
        .sql("create function public.refuses() returns trigger language plpgsql as $$ begin raise exception 'somebody has a rule'; end $$")
        .await;
    scratch
        .sql("create trigger refuses before insert on refundd.channels for each statement execute function public.refuses()")
        .await;
    let mut node = NodeProcess::spawn(&scratch, "a", UNLIMITED, None);
    assert!(!node.wait().success());
    let log = node.log();
    assert!(!log.iter().any(|line| line.contains("ended before its stop signal")), "{log:#?}");
}

/// The first outcome is tried again and again, and the others wait behind it.
#[tokio::test]
async fn a_stop_while_postgres_is_away_leaves_each_outcome_with_the_banks_reference_in_the_log() {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let pays = |after| {
        let step = Step::answers(200, r#"{"status":"succeeded","id":"B-1"}"#).and_pays();
        step.after(Duration::from_secs(after))
    };
    scratch.bank.next("acme", [pays(6)]);
    scratch.bank.then("acme", pays(8));
    let text = scratch.file("a", &format!("{UNLIMITED}bank_ref = \"/id\"\n"));
    let mut node = NodeProcess::spawn_file(&text.replace(&scratch.database_url, &around), None);
    node.wait_for_line("HTTP on");
    scratch.insert("acme", "R-", 10).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() == 10).await);
    way.set(Weather::Closed);
    node.signal(Signal::TERM);
    let answers =
        scratch.bank.until(Duration::from_mins(1), |l| l.all().iter().all(|one| one.ended_us.is_some()));
    assert!(answers.await);
    node.signal(Signal::TERM);
    node.wait_for_line("10 outcomes of sends may be unwritten");
    node.wait();
    let log = node.log();
    let logged = log.iter().filter(|line| line.contains("came to succeeded") && line.contains("B-1"));
    assert_eq!(logged.count(), 10, "{log:#?}");
    let last = log.last().unwrap();
    assert!(last.contains("Stopped") && !last.contains("left"), "nobody knows how many are left: {last}");
}

/// A channel's time-outs may be far above the unit's `TimeoutStopSec=`.
#[tokio::test]
async fn a_stop_asks_systemd_for_the_time_that_its_requests_need() {
    let (scratch, systemd) = (Scratch::new().await, Systemd::new());
    scratch.bank.then("acme", Step::silence());
    let patient = UNLIMITED.replace("timeout = \"10s\"\nconnect", "timeout = \"60s\"\nconnect");
    let mut node = NodeProcess::spawn_where(&scratch, "a", &patient, systemd.environment());
    node.wait_for_line("HTTP on");
    scratch.insert("acme", "R-", 1).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() == 1).await);
    let asked = || systemd.heard("EXTEND_TIMEOUT_USEC=30000000");
    let before = asked();
    node.signal(Signal::TERM);
    until("it asks for more time, and again", async || asked() >= before + 2).await;
    assert_eq!(systemd.heard("STOPPING=1"), 1);
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

/// The answer comes while the node stops, so its outcome is the settler's last.
#[tokio::test]
async fn a_contradiction_that_a_stopping_node_finds_last_is_logged() {
    let scratch = Scratch::new().await;
    let pays = Step::answers(200, r#"{"status":"succeeded","id":"B-late"}"#).and_pays();
    scratch.bank.next("acme", [pays.after(Duration::from_secs(5))]);
    let mut node = NodeProcess::start(&scratch, "a", &format!("{UNLIMITED}bank_ref = \"/id\"\n"));
    // Nodes read events slowly, and nothing else.
    scratch.sql("alter table refundd.events enable row level security").await;
    scratch
        .sql("create policy slowly on refundd.events for select using ((select true from pg_sleep(1)))")
        .await;
    scratch.insert("acme", "R-", 1).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() == 1).await);
    node.signal(Signal::TERM);
    node.wait_for_line("Stopping");
    // As if a second send had succeeded meanwhile, under a reference of its own.
    let moved = scratch
        .release("state = 'sending'", "state = 'succeeded', settled_at = now(), bank_ref = 'another'")
        .await;
    assert_eq!(moved, 1, "the bank answered before the refund was changed");
    assert!(node.wait().success());
    let event = "select count(*) from refundd.events where kind = 'late_answer_differs' and before ->> 'bank_ref' = 'another'";
    assert_eq!(scratch.number(event).await, 1);
    node.wait_for_line("it may be paid twice");
}

#[tokio::test]
async fn a_node_that_waits_for_postgres_can_be_stopped() {
    let scratch = Scratch::new().await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(
        &mut file,
        scratch
            .file("a", UNLIMITED)
            .replace(&scratch.database_url, "postgres://refundd@127.0.0.1:1/nothing")
            .as_bytes(),
    )
    .unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_refundd"))
        .args(["run", "--config"])
        .arg(file.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().contains("Postgres cannot be used yet; trying again")));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn health_and_metrics_are_answered_at_their_own_address_until_the_last_outcome_is_written() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays().after(Duration::from_secs(5))]);
    let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text =
        scratch.file("a", UNLIMITED).replace("[http]\n", &format!("[http]\nadmin_listen = \"{admin}\"\n"));
    let mut node = NodeProcess::spawn_file(&text, []);
    node.wait_for_line("HTTP on");
    let callers = node.address().unwrap().parse().unwrap();
    scratch.insert("acme", "R-", 1).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() == 1).await);
    node.signal(Signal::TERM);
    node.wait_for_line("Stopping");
    let (status, body) = get(admin, "/health/ready").await.expect("health is answered");
    assert!(status == 503 && body.contains("stopping"), "{body}");
    let (status, page) = get(admin, "/metrics").await.expect("metrics are answered");
    assert!(status == 200 && page.contains("refundd_postgres_up 1\n"), "{page}");
    until("the door of callers is closed", async || get(callers, "/health/live").await.is_none()).await;
    assert!(node.wait().success());
    assert_eq!(scratch.count(State::Succeeded).await, 1);
    assert!(get(admin, "/health/live").await.is_none());
}

#[tokio::test]
async fn stopping_logs_no_error() {
    let scratch = Scratch::new().await;
    for _ in 0..5 {
        let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
        node.signal(Signal::TERM);
        assert!(node.wait().success());
        let log = node.log();
        assert!(!log.iter().any(|line| line.contains("\"ERROR\"")), "{log:#?}");
    }
}
