//! The schedule of inquiries goes on although Postgres's clock was set.

use playground::bank::Step;
use refundd::refund::State;

use super::{ASKS, ask_now, clocked, step, steps};
use crate::harness::{TestNode, until};

#[tokio::test]
async fn a_schedule_of_inquiries_is_not_over_because_postgres_was_set_forward() {
    let (postgres, scratch) = clocked("schedule").await;
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.bank.next_for("acme", "R-1", [Step::answers(504, "{}")]);
    scratch.bank.next_for("acme", "R-2", [Step::pending()]);
    scratch.bank.then_inquiries("acme", Some(Step::answers(500, "{}")));
    scratch.insert("acme", "R-", 2).await;
    until("one is unknown and one accepted", async || {
        scratch.count(State::Unknown).await == 1 && scratch.count(State::Accepted).await == 1
    })
    .await;
    step(&postgres, 8 * 86400);
    // At once, before the next heartbeat, and again when the step stands in the table.
    for is_written in [false, true] {
        if is_written {
            until("the step is written down", async || steps(&scratch).await == 1).await;
        }
        let last = scratch.number("select max(id) from refundd.attempts").await;
        ask_now(&scratch).await;
        let asked = format!(
            "select count(distinct refund_id) from refundd.attempts where kind = 'inquiry' and id > {last}"
        );
        until("the bank was asked about both", async || scratch.number(&asked).await == 2).await;
        let planned = "select count(*) from refundd.refunds where state in ('unknown', 'accepted') and inquire_at < now() + interval '2 minutes'";
        assert_eq!(scratch.number(planned).await, 2, "written: {is_written}");
    }
    node.stop().await;
}
