//! The log of an answer whose commit was not heard of, beside the log of one that came too late.

use playground::Weather;
use playground::bank::Step;
use playground::forward::Forward;
use refundd::refund::State;
use sqlx::Executor;

use super::{ASKS, age, is};
use crate::harness::failing::{a_commit_dawdles, dawdle_at_commits, wait_at};
use crate::harness::http::get;
use crate::harness::servers::SERVERS;
use crate::harness::{NodeProcess, Scratch, until};

fn too_late(id: i64) -> String {
    format!("The inquiry outcome of refund {id} came too late; it is kept as evidence and moves nothing")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_commit_the_node_did_not_hear_of_is_not_said_to_be_late_and_one_that_is_late_is() {
    let scratch = Scratch::new().await;
    dawdle_at_commits(&scratch, State::Succeeded).await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let text = scratch.file("a", ASKS).replace(&scratch.database_url, &around);
    let node = NodeProcess::spawn_file(&text, []);
    node.wait_for_line("HTTP on");
    let address = node.address().unwrap().parse().unwrap();
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "10 seconds").await;
    a_commit_dawdles(&scratch).await;
    way.set(Weather::Closed);
    // Before that a second try would wait for the row of the first one.
    is(&scratch, State::Succeeded, 1).await;
    way.set(Weather::Fair);
    until("the node has written it again", async || {
        let page = get(address, "/metrics").await;
        page.is_some_and(|(_, page)| {
            page.contains(r#"refundd_inquiries_total{channel="acme",outcome="succeeded"} 1"#)
        })
    })
    .await;
    let lines = "select count(*) from refundd.attempts where kind = 'inquiry'";
    assert_eq!(scratch.number(lines).await, 1);

    // The next answer cannot be written, because its row waits for a lock. Somebody else settles the refund meanwhile.
    wait_at(&scratch, "new.state = 'failed'").await;
    let mut holder = scratch.connect().await;
    holder.execute("select pg_advisory_lock(7)").await.unwrap();
    scratch.bank.next("acme", [Step::resets().and_refuses()]);
    scratch.insert("acme", "S-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "10 seconds").await;
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'";
    until("the answer waits", async || scratch.number(waits).await > 0).await;
    scratch
        .sql("update refundd.refunds set state = 'succeeded', settled_at = now(), inquire_at = null where refund_ref = 'S-1'")
        .await;
    node.wait_for_line(&too_late(2));
    let log = node.log();
    assert!(!log.iter().any(|line| line.contains(&too_late(1))), "{log:#?}");
}
