//! Answers to inquiries that Postgres does not take at once.

use playground::bank::Step;
use refundd::refund::State;

use super::{ASKS, age, is};
use crate::harness::{NodeProcess, Scratch, until};

/// A node that asks the bank about refund 1, which the bank has paid.
async fn asks(scratch: &Scratch, channels: &str) -> NodeProcess {
    let node = NodeProcess::start(scratch, "a", channels);
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.insert("acme", "R-", 1).await;
    is(scratch, State::Unknown, 1).await;
    age(scratch, "10 seconds").await;
    node
}

/// Waits until the journal has the answer to the first inquiry, and the refund has succeeded. If the lease of that inquiry is over, the
/// answer to another one moves the refund, before or after.
async fn first_is_kept(scratch: &Scratch) {
    let lines = "select count(*) from refundd.attempts where kind = 'inquiry' and number = 1 and outcome = 'succeeded'";
    until("the first answer is in the journal", async || scratch.number(lines).await == 1).await;
    is(scratch, State::Succeeded, 1).await;
}

#[tokio::test]
async fn an_answer_that_the_bank_has_a_refund_is_kept_while_a_rule_of_somebody_refuses_it() {
    let scratch = Scratch::new().await;
    scratch
        .sql("alter table refundd.attempts add constraint somebodys_rule check (kind <> 'inquiry' or outcome <> 'succeeded')")
        .await;
    let node = asks(&scratch, ASKS).await;
    node.wait_for_line("Failed to write that the bank has refund 1");
    scratch.sql("alter table refundd.attempts drop constraint somebodys_rule").await;
    first_is_kept(&scratch).await;
}
