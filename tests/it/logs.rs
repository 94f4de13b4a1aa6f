//! Log lines and metrics say what became of refunds, in the same form everywhere.

mod journal;
mod unread;

use std::time::Duration;

use futures_util::future::join_all;
use jiff::SignedDuration;
use playground::bank::Step;
use playground::forward::Forward;
use playground::{PrivateRedis, RedisOptions, Weather};
use refundd::refund::State;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dispatch::UNLIMITED;
use crate::harness::node::refund;
use crate::harness::servers::SERVERS;
use crate::harness::{NodeProcess, Scratch, TestNode, http, until};

#[tokio::test]
async fn an_outcome_that_goes_to_a_person_is_counted_and_logged_as_that_alone() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::answers(200, r#"{"status":"succeeded","id":"B-1"}"#).and_pays());
    let mut node = NodeProcess::start(&scratch, "a", &format!("{UNLIMITED}bank_ref = \"/id\"\n"));
    scratch.insert("acme", "R-", 3).await;
    until("one is paid and two wait for a person", async || {
        scratch.count(State::Succeeded).await == 1 && scratch.count(State::Review).await == 2
    })
    .await;
    let address = node.address().unwrap().parse().unwrap();
    for (outcome, count) in [("succeeded", 1), ("review", 2)] {
        let sample = format!("refundd_attempts_total{{channel=\"acme\",outcome=\"{outcome}\"}} {count}\n");
        // A node counts an outcome after its commit.
        until(&sample, async || http::get(address, "/metrics").await.unwrap().1.contains(&sample)).await;
    }
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let log: Vec<Value> = node.log().iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let outcomes = |outcome: &str| log.iter().filter(|line| line["outcome"] == outcome).count();
    assert_eq!((outcomes("succeeded"), outcomes("review")), (1, 2), "{log:#?}");
}

#[tokio::test]
async fn a_key_that_the_bank_repeats_is_in_no_line_of_the_log_in_no_event_and_not_in_the_journal() {
    let scratch = Scratch::new().await;
    let node = NodeProcess::start(&scratch, "a", UNLIMITED);
    scratch.pause("acme", "until the bank knows the key", "test").await;
    scratch.insert("acme", "R-", 1).await;
    let key = scratch.text("select request_id::text from refundd.refunds").await;
    scratch.bank.next("acme", [Step::refuses_entry(&format!("{key} is the key of nobody"))]);
    scratch.resume("acme").await;
    let attempts = "select count(*) from refundd.attempts where message like '%the key of nobody%'";
    until("the attempt is in the journal", async || scratch.number(attempts).await == 1).await;
    node.wait_for_line("**** is the key of nobody");
    let mut shown = node.log();
    for (text, table) in [("message", "attempts"), ("reason", "events")] {
        let all = format!("select coalesce(string_agg({text}, ' '), '') from refundd.{table}");
        shown.push(scratch.text(&all).await);
    }
    for line in &shown {
        assert!(!line.contains(&key), "{line}");
    }
    let told = shown.iter().filter(|line| line.contains("**** is the key of nobody")).count();
    assert!(told >= 3, "a line of the log, the attempt and the event: {shown:#?}");
}

#[tokio::test]
async fn an_amount_or_a_reference_that_an_answer_repeats_wrongly_is_in_the_journal_and_not_in_the_log() {
    let scratch = Scratch::new().await;
    scratch.bank.next(
        "acme",
        [
            Step::answers(200, r#"{"amount_minor":9876543}"#),
            Step::answers(200, r#"{"refund_ref":"THEIR-REF"}"#),
            Step::pays_but_says_500(),
        ],
    );
    let asked = Step::answers(200, r#"{"status":"succeeded","amount_minor":7654321}"#);
    scratch.bank.then_inquiries("acme", Some(asked));
    let asks = "on_unknown = \"inquire\"\ninquiry = { url = \"http://{bank}/acme/refunds/{request_id}\" }\n";
    let mut node = NodeProcess::start(&scratch, "a", &format!("{UNLIMITED}{asks}"));
    let three = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency) \
                 select 'OUR-REF-' || n, 'acme', 'P-' || n, 4500173, 'EUR' from generate_series(1, 3) n";
    scratch.sql(three).await;
    until("each was sent", async || {
        let counts = scratch.counts().await;
        !counts.contains_key(&State::Ready) && !counts.contains_key(&State::Sending)
    })
    .await;
    scratch.sql("update refundd.refunds set inquire_at = now() where state = 'unknown'").await;
    until("all wait for a person", async || scratch.count(State::Review).await == 3).await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let log = node.log().join("\n");
    let journal = scratch.text("select string_agg(message, ' ') from refundd.attempts").await;
    for value in ["9876543", "THEIR-REF", "7654321", "OUR-REF-", "4500173"] {
        assert!(!log.contains(value) && journal.contains(value), "{value}: {journal}\n{log}");
    }
    for field in ["amount_minor", "refund_ref"] {
        assert!(log.contains(&format!("the answer repeats another {field}\"")), "{field}: {log}");
    }
}

#[tokio::test]
async fn every_duration_in_the_log_is_a_number() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::too_many(1)]);
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    scratch.insert("acme", "R-", 1).await;
    node.wait_for_line("cools for");
    until("it is paid", async || scratch.count(State::Succeeded).await == 1).await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let mut seen = 0;
    for line in node.log() {
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        for (field, value) in line.as_object().unwrap().iter().filter(|(field, _)| field.ends_with("_ms")) {
            seen += 1;
            let tenths = value.as_f64().unwrap_or_else(|| panic!("{field} is no number: {line}")) * 10.0;
            assert!((tenths - tenths.round()).abs() < 1e-6, "{field} has one digit behind the point: {line}");
        }
    }
    assert!(seen >= 4, "cooling, two attempts and the stop: {:#?}", node.log());
}

#[tokio::test]
async fn while_clocks_are_apart_the_log_says_it_once_and_nothing_for_each_try() {
    let redis =
        PrivateRedis::start_with(&RedisOptions { clock: true, ..RedisOptions::default() }).await.unwrap();
    redis.step_clock(SignedDuration::from_secs(60)).await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    // Redis forgets the permits of such a long window after each claim that was refused.
    let long = "[limit.acme]\npermits = 50\nper = \"10s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = NodeProcess::start(&scratch, "a", long);
    scratch.insert("acme", "R-", 1).await;
    let address = node.address().unwrap().parse().unwrap();
    until("several claims were refused", async || {
        let page = http::get(address, "/metrics").await.unwrap().1;
        let refused = "refundd_permits_unused_total{channel=\"acme\",reason=\"clocks_apart\"} ";
        page.lines()
            .find_map(|line| line.strip_prefix(refused)?.parse::<u32>().ok())
            .is_some_and(|times| times >= 5)
    })
    .await;
    let log = node.log();
    let count = |words: &str| log.iter().filter(|line| line.contains(words)).count();
    assert_eq!(count("nothing is sent until they agree"), 1, "{log:#?}");
    // The one at the start: this Redis had no count yet.
    assert!(count("Restored Redis from the ledger") <= 1, "{log:#?}");
    drop(node);
    redis.stop().await.unwrap();
}

#[tokio::test]
async fn while_clocks_are_apart_calls_of_other_services_do_not_fill_the_log() {
    let redis =
        PrivateRedis::start_with(&RedisOptions { clock: true, ..RedisOptions::default() }).await.unwrap();
    redis.step_clock(SignedDuration::from_secs(60)).await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let long = "[limit.acme]\npermits = 50\nper = \"10s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = NodeProcess::start(&scratch, "a", long);
    let address = node.address().unwrap();
    let mut refused = 0;
    // At the end of a window a call is answered 429.
    until("five calls were refused", async || {
        let answer = http::ask(&address, "POST /v1/limits/acme/acquire", &[http::JSON], "{}").await.unwrap();
        refused += usize::from(answer.contains("too far from Postgres's"));
        refused >= 5
    })
    .await;
    let log = node.log();
    // The one at the start: this Redis had no count yet.
    let restored = log.iter().filter(|line| line.contains("Restored Redis from the ledger")).count();
    assert!(restored <= 1, "{log:#?}");
    drop(node);
    redis.stop().await.unwrap();
}

#[tokio::test]
async fn an_attempt_never_starts_after_it_finished() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 200).await;
    until("they are paid", async || scratch.count(State::Succeeded).await == 200).await;
    let late = "select count(*) from refundd.attempts where started_at > finished_at";
    assert_eq!(scratch.number(late).await, 0);
    // An outcome whose row is locked for a while.
    scratch.bank.next("acme", [Step::pays().after(Duration::from_secs(3))]);
    scratch.insert("acme", "S-", 1).await;
    until("it is being sent", async || scratch.count(State::Sending).await == 1).await;
    let mut other = scratch.connect().await;
    sqlx::raw_sql("begin; select from refundd.refunds where state = 'sending' for update")
        .execute(&mut other)
        .await
        .unwrap();
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    until("the settler waits for the row", async || scratch.number(waits).await > 0).await;
    sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
    until("it is paid", async || scratch.count(State::Succeeded).await == 201).await;
    assert_eq!(scratch.number(late).await, 0);
    node.stop().await;
}

#[tokio::test]
async fn a_scraper_gets_the_format_that_it_accepts() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let get = async |accept: &str| {
        let answer = node.request_with(hyper::Method::GET, "/metrics", &[("accept", accept)], "").await;
        (answer.headers["content-type"].to_str().unwrap().to_owned(), answer.text)
    };
    let (kind, page) = get("application/openmetrics-text;version=1.0.0,text/plain;q=0.5").await;
    assert!(kind.starts_with("application/openmetrics-text") && page.ends_with("# EOF\n"), "{kind}");
    let (kind, page) = get("*/*").await;
    assert!(kind.starts_with("text/plain; version=0.0.4") && !page.contains("# EOF"), "{kind}");
    assert!(page.contains("# TYPE refundd_settled_late_total counter\n"), "{page}");
    node.stop().await;
}

/// Sends this body 200 times at once. Each answer is a 503.
async fn is_answered_503(node: &NodeProcess, path: &str, body: &Value) {
    let (address, body) = (node.address().unwrap(), body.to_string());
    let (request, headers) = (format!("POST {path}"), [http::JSON]);
    let answers = (0..200).map(|_| http::ask(&address, &request, &headers, &body));
    for answer in join_all(answers).await {
        let answer = answer.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    node.wait_for_line(" 503");
}

/// Ends the node. Its log has a line or two about the 503s, and they say how many there were and why.
fn has_told_once(mut node: NodeProcess, server: &str) {
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let log = node.log();
    let told: Vec<&String> =
        log.iter().filter(|line| line.contains(server) && line.contains(" 503")).collect();
    assert!((1..=2).contains(&told.len()), "{} lines: {told:#?}", told.len());
    for line in told {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["requests"].as_u64() >= Some(1) && line["error"].is_string(), "{line}");
    }
}

#[tokio::test]
async fn an_outage_of_postgres_is_logged_once_a_minute_and_not_with_every_request() {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let text = scratch.file("a", UNLIMITED).replace(&scratch.database_url, &around);
    let node = NodeProcess::spawn_file(&text, []);
    node.wait_for_line("HTTP on");
    way.set(Weather::Closed);
    is_answered_503(&node, "/v1/refunds", &refund("R-1", "acme")).await;
    way.set(Weather::Fair);
    has_told_once(node, "Postgres is away");
}

#[tokio::test]
async fn an_outage_of_redis_is_logged_once_a_minute_and_not_with_every_acquire() {
    let scratch = Scratch::new().await;
    let limited = format!("[limit.acme]\npermits = 100\nper = \"1s\"\n{UNLIMITED}");
    let text = scratch.file("a", &limited).replace(&scratch.redis_url, "redis://127.0.0.1:1");
    let node = NodeProcess::spawn_file(&text, []);
    node.wait_for_line("HTTP on");
    is_answered_503(&node, "/v1/limits/acme/acquire", &json!({})).await;
    has_told_once(node, "Redis is away");
}

#[tokio::test]
async fn while_redis_is_away_and_nothing_is_due_no_line_says_that_looking_works_again() {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let mut node = NodeProcess::start(&scratch, "a", UNLIMITED);
    redis.kill_hard().await.unwrap();
    let (fails, works) = ("Failed to look for due refunds", "Looking for due refunds works again");
    node.wait_for_line(fails);
    // Most rounds of these seconds ask Redis nothing.
    tokio::time::sleep(Duration::from_secs(4)).await;
    redis.restart(None).await.unwrap();
    node.wait_for_line(works);
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let log = node.log();
    for words in [fails, works] {
        assert_eq!(log.iter().filter(|line| line.contains(words)).count(), 1, "{words}: {log:#?}");
    }
}
