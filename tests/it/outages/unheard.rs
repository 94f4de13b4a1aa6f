//! A commit whose answer is lost.

use playground::Weather;
use playground::forward::Forward;
use refundd::config::Config;
use refundd::refund::State;

use super::limited;
use crate::harness::failing::{a_commit_dawdles, dawdle_at_commits};
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until};

/// The node tries again. The refund does not move twice, and the journal does not tell of two sends.
#[tokio::test]
async fn an_outcome_whose_commit_the_node_did_not_hear_of_has_one_line_in_the_journal() {
    let scratch = Scratch::new().await;
    dawdle_at_commits(&scratch, State::Succeeded).await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let text = scratch.file("a", &limited()).replace(&scratch.database_url, &around);
    let config = Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let node = TestNode::run(config).await;
    scratch.insert("acme", "R-", 1).await;
    a_commit_dawdles(&scratch).await;
    way.set(Weather::Closed);
    // Before that a second try would wait for the row of the first one.
    until("it is committed", async || scratch.count(State::Succeeded).await == 1).await;
    way.set(Weather::Fair);
    // A node ends when all its outcomes are written.
    node.stop().await;
    let lines = "select count(*) from refundd.attempts where kind = 'send'";
    assert_eq!(scratch.number(lines).await, 1);
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1);
}
