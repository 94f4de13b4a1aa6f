//! Claims that take so long that their leases would not outlive the requests.

use playground::bank::Step;
use refundd::refund::State;

use crate::harness::failing::{slow_at, slow_no_more};
use crate::harness::{Scratch, TestNode, is, until};

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
