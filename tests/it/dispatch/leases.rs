//! Leases that no request may use: those of claims that took too long, and those of a claim whose answer was lost.

use playground::Weather;
use playground::bank::Step;
use playground::forward::Forward;
use refundd::bucket::Purpose;
use refundd::config::Config;
use refundd::refund::State;

use crate::harness::anywhere::acme;
use crate::harness::failing::{a_commit_dawdles, dawdle_at_commits, dawdle_no_more, slow_at, slow_no_more};
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, depth, is, until};

/// The lease is as short as it may be: one second after the begin of a claim no request may begin.
const SHORT: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "3s"
connect_timeout = "1s"
lease = "9s"
on_unknown = "inquire"
inquiry = { url = "http://{bank}/acme/refunds/{request_id}", not_found_is_final = true, grace = "30s" }
"#;

/// Waits until a request of this kind ended before its first byte, or the bank has more than `arrived` requests.
async fn one_lapses(scratch: &Scratch, kind: &str, arrived: usize) {
    let lapses = format!(
        "select count(*) from refundd.attempts where kind = '{kind}' and code = 'permit_lapsed' and started_at is null"
    );
    until("a claim took too long", async || {
        scratch.bank.look(|ledger| ledger.all().len()) > arrived || scratch.number(&lapses).await > 0
    })
    .await;
    assert_eq!(scratch.bank.look(|ledger| ledger.all().len()), arrived, "its lease ends before its time-out");
    let begun =
        format!("select count(*) from refundd.attempts where kind = '{kind}' and started_at is not null");
    assert_eq!(scratch.number(&begun).await, 0);
}

#[tokio::test]
async fn a_claim_that_took_too_long_sends_nothing_because_its_lease_would_not_outlive_the_time_out() {
    let scratch = Scratch::new().await;
    slow_at(&scratch, "old.state = 'ready' and new.state = 'sending'").await;
    let node = TestNode::start(&scratch, "a", SHORT).await;
    scratch.insert("acme", "R-", 1).await;
    one_lapses(&scratch, "send", 0).await;
    slow_no_more(&scratch).await;
    is(&scratch, State::Succeeded, 1).await;
    assert_eq!(scratch.bank.look(|ledger| ledger.all().len()), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_claim_of_an_inquiry_that_took_too_long_asks_nothing() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    slow_at(&scratch, "new.inquiries > old.inquiries").await;
    let node = TestNode::start(&scratch, "a", SHORT).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    one_lapses(&scratch, "inquiry", 1).await;
    slow_no_more(&scratch).await;
    is(&scratch, State::Succeeded, 1).await;
    assert_eq!(scratch.bank.look(|ledger| ledger.all().len()), 2);
    node.stop().await;
}

/// One permit at a time, so that the permit of an id that cannot be claimed passes to one of several further ids.
const ONE_BY_ONE: &str = r#"
[limit.acme]
algorithm = "fixed_window"
permits = 1
per = "2s"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = ["acme"]
timeout = "10s"
connect_timeout = "1s"
"#;

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_taken_back_with_the_ids_that_it_tried_beside_its_permits() {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let text = scratch.file("a", ONE_BY_ONE).replace(&scratch.database_url, &around);
    let config = Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let node = TestNode::run(config).await;
    scratch.pause("acme", "until the line stands", "test").await;
    scratch.insert("acme", "cancelled-", 3).await;
    scratch.insert("acme", "R-", 2).await;
    let bucket = scratch.bucket();
    until("all are in the bucket", async || depth(&bucket, Purpose::Send, &acme()).await == 5).await;
    scratch
        .sql("update refundd.refunds set state = 'cancelled', settled_at = now() where refund_ref like 'cancelled-%'")
        .await;
    dawdle_at_commits(&scratch, State::Sending).await;
    scratch.resume("acme").await;
    // The first claim finds the first id cancelled. The next one has its permit beside the second id, and tries further ids.
    a_commit_dawdles(&scratch).await;
    way.set(Weather::Closed);
    is(&scratch, State::Sending, 1).await;
    dawdle_no_more(&scratch).await;
    way.set(Weather::Fair);
    is(&scratch, State::Succeeded, 2).await;
    let lines = "select string_agg(concat_ws(' ', refund_ref, a.code, a.moved_to), ', ' order by a.id)
                   from refundd.attempts a join refundd.refunds r on r.id = a.refund_id where a.code = 'taken_back' or a.outcome = 'unknown'";
    assert_eq!(scratch.text(lines).await, "R-1 taken_back ready");
    assert_eq!(scratch.bank.look(|ledger| ledger.all().len()), 2);
    node.stop().await;
}
