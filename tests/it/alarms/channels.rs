//! Nothing is sent through a channel, although its bank can be reached.

use std::time::Duration;

use playground::bank::Step;
use playground::forward::{Distance, Forward};
use refundd::config::Config;
use refundd::refund::State;
use refundd::store::SuspendedBy;

use super::refunds::AGE;
use super::watch::Watch;
use super::{LIMITED, health_says, healthy, status_says};
use crate::cli::{file, refundd, text};
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn a_channel_that_is_paused() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    // A channel that was retired while it was paused wakes nobody.
    scratch.publish("retired").await;
    scratch.pause("retired", "it is not needed any more", "ann").await;
    until("the metrics have it", async || {
        node.get("/metrics").await.text.contains("refundd_channel_paused{channel=\"retired\"} 1")
    })
    .await;
    watch.is_quiet().await;
    scratch.pause("acme", "bank closes", "ann").await;
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddChannelPaused").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, LIMITED, &["paused", "acme is paused by ann", "bank closes"]).await;
    scratch.resume("acme").await;
    watch.is_quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn a_channel_whose_breaker_tripped() {
    let scratch = Scratch::new().await;
    let channels = format!("{LIMITED}breaker = {{ rejected = 3, probe = \"1h\" }}\n");
    let (node, mut watch) = healthy(&scratch, &channels).await;
    scratch.bank.then("acme", Step::rejects());
    scratch.insert("acme", "R-", 40).await;
    watch.fires("RefunddBreakerOpen").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, &channels, &["breaker", "acme is suspended by its breaker since", "HTTP 422"])
        .await;
    node.stop().await;
}

#[tokio::test]
async fn a_channel_that_cools_again_and_again() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.bank.then("acme", Step::too_many(60));
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddChannelCooling").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, LIMITED, &["cooling", "acme cools until"]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_bank_that_asks_to_wait_for_a_moment_at_every_request() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::too_many(1));
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    let mut watch = Watch::on([&node]);
    watch.is_quiet().await;
    // As if the bank had refused for 16 minutes. The owner writes this, because no test waits for so long.
    let mut owner = scratch.connect().await;
    for statement in
        ["set session_replication_role = 'replica'", &lines("acme", "16 minutes", "2 minutes", "1 minute")]
    {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut owner).await.unwrap();
    }
    scratch.insert("acme", "R-", 20).await;
    watch.fires("RefunddBankAcceptsNothing").await;
    scratch.bank.then("acme", Step::pays());
    watch.ends("RefunddBankAcceptsNothing").await;
    node.stop().await;
}

/// Writes lines of sends to which the bank answered 429, one at each step of this time.
fn lines(channel: &str, since: &str, until: &str, step: &str) -> String {
    format!(
        "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, moved_to, status, code)
         select 1, '{channel}', 'send', 1, 1, 'a#1', moment, moment, 'not_executed', 'ready', 429, 'asked_to_wait'
           from generate_series(now() - interval '{since}', now() - interval '{until}', interval '{step}') moment"
    )
}

/// The census looks at the last 200,000 lines of all channels. Here they are those of three minutes.
#[tokio::test]
async fn a_bank_that_refuses_everything_beside_channels_that_write_a_thousand_lines_a_second() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::too_many(1));
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    let mut watch = Watch::on([&node]);
    watch.is_quiet().await;
    let mut owner = scratch.connect().await;
    for statement in [
        "set session_replication_role = 'replica'",
        &lines("acme", "16 minutes", "4 minutes", "1 minute"),
        &lines("globex", "180 seconds", "0 seconds", "0.9 milliseconds"),
        &lines("acme", "170 seconds", "10 seconds", "10 seconds"),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut owner).await.unwrap();
    }
    let refuses = async || {
        let acme = scratch.store.census().await.unwrap().into_iter().find(|one| one.channel == "acme");
        acme.and_then(|acme| acme.nothing_accepted)
            .is_some_and(|refusing| refusing.lasts < Duration::from_mins(10))
    };
    scratch.insert("acme", "R-", 20).await;
    until("what is seen is shorter than the alarm's time", refuses).await;
    // A scrape stands for 15 s.
    watch.fires("RefunddBankAcceptsNothing").await;
    node.stop().await;
}

#[tokio::test]
async fn a_bank_that_names_one_long_wait() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.bank.then("acme", Step::too_many(3600));
    scratch.insert("acme", "R-", 1).await;
    let event = "select count(*) from refundd.events where kind = 'cooled'";
    until("the wait is an event", async || scratch.number(event).await == 1).await;
    assert!(!watch.holds_at_once("RefunddBankAcceptsNothing").await, "it has only begun");
    // As if it had begun 40 minutes ago.
    let mut owner = scratch.connect().await;
    for statement in [
        "set session_replication_role = 'replica'",
        "update refundd.events set at = at - interval '40 minutes' where kind = 'cooled'",
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut owner).await.unwrap();
    }
    watch.fires("RefunddBankAcceptsNothing").await;
    status_says(
        &scratch,
        LIMITED,
        &["acme: nothing was accepted for at least 40 min: the bank asked to wait 1 time"],
    )
    .await;
    // A person ends that wait and the bank pays. A later wait does not bring this one back, although the end that this one named is
    // still to come.
    scratch.bank.then("acme", Step::pays());
    scratch.store.release("acme", SuspendedBy::Cooling, "ann", None).await.unwrap();
    scratch.insert("acme", "later-", 2).await;
    until("the bank pays", async || scratch.count(State::Succeeded).await == 4).await;
    let later = "update refundd.channels set cool_until = now() + interval '1 hour'";
    sqlx::query(sqlx::AssertSqlSafe(later)).execute(&mut owner).await.unwrap();
    let acme = scratch.store.census().await.unwrap().into_iter().find(|one| one.channel == "acme");
    assert!(acme.is_some_and(|acme| acme.nothing_accepted.is_none()), "the long wait has ended");
    node.stop().await;
}

#[tokio::test]
async fn a_channel_that_no_node_runs() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let node = TestNode::start(&scratch, "a", &LIMITED.replace("acme", "globex")).await;
    let mut watch = Watch::on([&node]);
    // Nothing waits for it.
    watch.is_quiet().await;
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddChannelNotRun").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, LIMITED, &["not run", "acme: no living node runs it"]).await;
    node.stop().await;
}

/// Claims take longer than permits live.
#[tokio::test]
async fn permits_that_lapse_one_after_the_other() {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    way.set_distance(FAR);
    let channels = LIMITED
        .replace("permits = 50", "permits = 5\nalgorithm = \"sliding_log\"\nahead = \"1ms\"")
        .replace("100ms", "2ms");
    let node = node_around(&scratch, &way, &channels).await;
    let mut watch = Watch::on([&node]);
    watch.is_quiet().await;
    scratch.insert("acme", "R-", 50).await;
    watch.fires("RefunddPermitsLapse").await;
    status_says(&scratch, &channels, &["acme: permits lapse on node a", "claims take"]).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 0);
    // An attempt that was handed back is no sign that something moves.
    scratch.sql(AGE).await;
    watch.fires("RefunddNothingMoves").await;
    node.stop().await;
}

const FAR: Distance = Distance {
    set_up: Duration::ZERO,
    there: Duration::from_millis(30),
    back: Duration::from_millis(30),
    jitter: Duration::ZERO,
};

/// A node that reaches Postgres on this way.
pub async fn node_around(scratch: &Scratch, way: &Forward, channels: &str) -> TestNode {
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let text = scratch.file("a", channels).replace(&scratch.database_url, &around);
    TestNode::run(Config::parse(&text, "t.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"))).await
}

/// A few sends among many lapses do not silence the alarm.
#[tokio::test]
async fn most_permits_lapse_and_a_few_refunds_are_sent() {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let channels = LIMITED
        .replace("permits = 50", "permits = 20\nalgorithm = \"sliding_log\"\nahead = \"20ms\"")
        .replace("100ms", "20ms");
    let node = node_around(&scratch, &way, &channels).await;
    let paid =
        async |count| until("some are sent", async || scratch.count(State::Succeeded).await == count).await;
    scratch.insert("acme", "first-", 1).await;
    paid(1).await;
    let mut watch = Watch::on([&node]);
    watch.is_quiet().await;
    scratch.insert("acme", "few-", 2).await;
    paid(3).await;
    watch.is_quiet().await;
    let lapses = async || {
        let page = node.get("/metrics").await.text;
        let of_lapses = "refundd_permits_unused_total{channel=\"acme\",reason=\"permit_lapsed\"} ";
        page.lines().find_map(|line| line.strip_prefix(of_lapses)?.parse::<u32>().ok()).unwrap_or_default()
    };
    way.set_distance(FAR);
    scratch.insert("acme", "R-", 50).await;
    until("the first permits lapse", async || lapses().await > 0).await;
    // A counter that begins now has no increase yet.
    watch.holds_at_once("RefunddPermitsLapse").await;
    let seen = lapses().await;
    until("more permits lapse than were used", async || lapses().await > seen + 5).await;
    assert!(watch.holds_at_once("RefunddPermitsLapse").await, "the two sends are in the rule's ten minutes");
    node.stop().await;
}

#[tokio::test]
async fn a_bank_that_refuses_the_credentials() {
    for status in [401, 403, 407] {
        let scratch = Scratch::new().await;
        let (node, mut watch) = healthy(&scratch, LIMITED).await;
        scratch.bank.then("acme", Step::answers(status, "{}"));
        scratch.insert("acme", "R-", 5).await;
        watch.fires("RefunddChannelPaused").await;
        health_says(&node, 200, "\"ready\"").await;
        status_says(&scratch, LIMITED, &["paused", "the bank does not let us in", &status.to_string()]).await;
        let suspended = "refundd_channel_suspended{channel=\"acme\",by=\"credentials\"} 1\n";
        assert!(node.get("/metrics").await.text.contains(suspended));
        scratch.bank.then("acme", Step::pays());
        scratch.resume("acme").await;
        watch.is_quiet().await;
        node.stop().await;
    }
}

#[tokio::test]
async fn everything_is_paused() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    let file = file(&scratch.file("s", LIMITED));
    let paused = refundd(file.path(), &["pause", "--all", "--reason", "the books are wrong", "--by", "ann"]);
    assert!(paused.status.success(), "{}", text(&paused));
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddChannelPaused").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, LIMITED, &["paused", "the books are wrong"]).await;
    let suspended = "refundd_channel_suspended{channel=\"acme\",by=\"all\"} 1\n";
    assert!(node.get("/metrics").await.text.contains(suspended));
    node.stop().await;
}

#[tokio::test]
async fn a_bank_that_gives_answers_without_a_rule() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    // The first such answer counts: its counter begins at 1.
    scratch.bank.next("acme", [Step::answers(507, "{}")]);
    scratch.insert("acme", "R-", 1).await;
    watch.fires("RefunddUnmappedAnswers").await;
    node.stop().await;
}
