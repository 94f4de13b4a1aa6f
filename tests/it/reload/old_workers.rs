//! What the workers of the old file still do after a reload: they let their requests in flight finish.

use std::fs;
use std::time::Duration;

use playground::bank::{Arrival, Step};
use refundd::refund::State;

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

/// The most requests that the bank had at one time.
fn at_once<'a>(arrivals: impl Iterator<Item = &'a Arrival>) -> usize {
    let arrivals: Vec<&Arrival> = arrivals.collect();
    let had = |at_us: i64| {
        let has = |one: &&&Arrival| one.at_us <= at_us && one.ended_us.is_none_or(|ended| ended > at_us);
        arrivals.iter().filter(has).count()
    };
    arrivals.iter().map(|arrival| had(arrival.at_us)).max().unwrap_or_default()
}

/// A channel of two slots for sends or inquiries, with another time-out in each version of its file.
fn version(seconds: u32, rest: &str) -> String {
    UNLIMITED.replace("timeout = \"10s\"", &format!("timeout = \"{seconds}s\"")) + rest
}

#[tokio::test]
async fn sends_of_old_workers_take_up_slots_until_they_end() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays().after(Duration::from_millis(500)));
    let file = |seconds| version(seconds, "max_in_flight = 2\n");
    let node = TestNode::start(&scratch, "a", &file(10)).await;
    scratch.insert("acme", "R-", 12).await;
    for round in 1..=4 {
        let sent = 2 * round as usize;
        until("both slots are in use", async || scratch.bank.look(|l| l.all().len()) >= sent).await;
        if round == 3 {
            let other = UNLIMITED.replace("acme", "other");
            node.daemon.reload(scratch.config("a", &other)).await.unwrap();
        }
        node.daemon.reload(scratch.config("a", &file(10 + round))).await.unwrap();
    }
    until("all are paid", async || scratch.count(State::Succeeded).await == 12).await;
    assert_eq!(at_once(scratch.bank.ledger().all().iter()), 2);
    node.stop().await;
}

#[tokio::test]
async fn inquiries_of_old_workers_take_up_slots_of_their_own_until_they_end() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let paid = Step::answers(200, r#"{"status":"succeeded"}"#).after(Duration::from_millis(500));
    scratch.bank.then_inquiries("acme", Some(paid));
    let inquiry = r#"inquiry = { url = "http://{bank}/acme/refunds/{request_id}" }"#;
    let file =
        |seconds| version(seconds, &format!("max_in_flight = 8\non_unknown = \"inquire\"\n{inquiry}\n"));
    let node = TestNode::start(&scratch, "a", &file(10)).await;
    scratch.insert("acme", "R-", 8).await;
    until("all are unknown", async || scratch.count(State::Unknown).await == 8).await;
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    for round in 1..=2 {
        let asked = 2 * round as usize;
        until("both slots are in use", async || scratch.bank.look(|l| l.inquiries("acme").count()) >= asked)
            .await;
        node.daemon.reload(scratch.config("a", &file(10 + round))).await.unwrap();
    }
    until("all are paid", async || scratch.count(State::Succeeded).await == 8).await;
    assert_eq!(at_once(scratch.bank.ledger().inquiries("acme")), 2);
    node.stop().await;
}

/// The bank takes the new credentials, and hears the old ones in a request that is still in flight.
#[tokio::test]
async fn credentials_that_a_reload_replaced_suspend_nothing_when_the_bank_refuses_them_late() {
    for asks in [false, true] {
        let scratch = Scratch::new().await;
        let header = tempfile::NamedTempFile::new().unwrap();
        let inquiry = r#"inquiry = { url = "http://{bank}/acme/refunds/{request_id}" }"#;
        let file = format!(
            "{UNLIMITED}authorization_file = \"{}\"\non_unknown = \"inquire\"\n{inquiry}\n",
            header.path().display()
        );
        fs::write(header.path(), "Bearer the-old-one").unwrap();
        let refused = Step::unauthorised().after(Duration::from_secs(4));
        if asks {
            scratch.bank.next("acme", [Step::pays_but_says_500()]);
            scratch.bank.next_inquiries("acme", [refused]);
        } else {
            scratch.bank.next("acme", [refused]);
        }
        let node = TestNode::start(&scratch, "a", &file).await;
        scratch.insert("acme", "R-", 1).await;
        if asks {
            until("it is unknown", async || scratch.count(State::Unknown).await == 1).await;
            scratch.sql("update refundd.refunds set inquire_at = now()").await;
            until("the bank is asked", async || scratch.bank.look(|l| l.inquiries("acme").count()) == 1)
                .await;
        } else {
            until("it is in flight", async || scratch.bank.look(|l| l.all().len()) == 1).await;
        }
        fs::write(header.path(), "Bearer the-new-one").unwrap();
        node.daemon.reload(scratch.config("a", &file)).await.unwrap();
        let refusals = async || {
            let attempts = "select count(*) from refundd.attempts where status = 401";
            scratch.number(attempts).await
        };
        assert_eq!(refusals().await, 0, "the bank answered before the reload");
        until("the bank has refused the old ones", async || refusals().await == 1).await;
        assert_eq!(scratch.suspensions().await, 0, "inquiry: {asks}");
        if asks {
            scratch.sql("update refundd.refunds set inquire_at = now() where state = 'unknown'").await;
        }
        until("the refund is paid", async || scratch.count(State::Succeeded).await == 1).await;
        scratch.bank.next("acme", [Step::unauthorised()]);
        scratch.insert("acme", "S-", 1).await;
        until("the new ones suspend it", async || scratch.suspensions().await == 1).await;
        node.stop().await;
    }
}
