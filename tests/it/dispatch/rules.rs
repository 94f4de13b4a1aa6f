//! A channel's own rules for its bank's answers.

use playground::bank::Step;
use refundd::refund::State;

use super::{UNLIMITED, ends_as};
use crate::harness::{Scratch, TestNode, until};

/// nginx refuses so when its `limit_req` refuses, and without a rule a person would have to decide about each refund.
#[tokio::test]
async fn a_refusal_without_retry_after_goes_to_nobody_where_a_rule_names_it() {
    let scratch = Scratch::new().await;
    let page = "<html><head><title>503 Service Temporarily Unavailable</title></head></html>";
    scratch.bank.next("acme", std::iter::repeat_n(Step::answers(503, page), 6));
    let rule = "[[channel.acme.verdict]]\nstatus = 503\noutcome = \"asked_to_wait\"\n";
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}cool_down = \"200ms\"\n{rule}")).await;
    scratch.insert("acme", "R-", 20).await;
    ends_as(&scratch, State::Succeeded, 20).await;
    assert_eq!(scratch.bank.ledger().all().len(), 26, "six were refused and sent again");
    let rules =
        "select string_agg(distinct message, ' | ') from refundd.attempts where code = 'channel_rule'";
    let shown = scratch.text(rules).await;
    assert_eq!(shown, "HTTP 503 (rule 1 of `verdict`)", "the journal says which rule decided");
    assert_eq!(scratch.number("select max(attempts)::bigint from refundd.refunds").await, 1);
    node.stop().await;
}

/// Varnish answers so whenever it has no answer of the bank, also where the bank was only slow and has paid.
#[tokio::test]
async fn the_page_of_a_proxy_with_retry_after_is_no_proof_that_the_bank_did_not_pay_until_a_rule_says_so() {
    let page = "<!DOCTYPE html><html><h1>Error 503 Backend fetch failed</h1><p>Guru Meditation:</p></html>";
    let answer = || Step::answers(503, page).with_header(hyper::header::RETRY_AFTER, 1.into());
    let rule = "[[channel.acme.verdict]]\nstatus = 503\noutcome = \"asked_to_wait\"\n";
    for (step, rule, ends, sends) in
        [(answer().and_pays(), "", State::Review, 1), (answer(), rule, State::Succeeded, 2)]
    {
        let scratch = Scratch::new().await;
        scratch.bank.next("acme", [step]);
        let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}{rule}")).await;
        scratch.insert("acme", "R-", 1).await;
        ends_as(&scratch, ends, 1).await;
        assert_eq!(scratch.bank.ledger().all().len(), sends);
        node.stop().await;
    }
}

#[tokio::test]
async fn a_verdict_that_no_rule_lists_is_never_taken_for_paid() {
    let scratch = Scratch::new().await;
    let paid = Step::answers(200, r#"{"code":"00"}"#).and_pays();
    let [listed, unlisted] = [r#"{"code":"51"}"#, r#"{"code":"05"}"#].map(|body| Step::answers(200, body));
    scratch.bank.next("acme", [paid, listed, unlisted]);
    let rule = |code: &str, outcome: &str| {
        format!(
            "[[channel.acme.verdict]]\nstatus = 200\npointer = \"/code\"\nequals = \"{code}\"\noutcome = \"{outcome}\"\n"
        )
    };
    let rules = format!("{}{}", rule("00", "succeeded"), rule("51", "rejected"));
    let one_at_a_time = format!("{UNLIMITED}max_in_flight = 1\n{rules}");
    let node = TestNode::start(&scratch, "a", &one_at_a_time).await;
    scratch.insert("acme", "R-", 3).await;
    for state in [State::Succeeded, State::Failed, State::Review] {
        ends_as(&scratch, state, 1).await;
    }
    let shown = scratch.text("select reason from refundd.refunds where state = 'review'").await;
    assert!(shown.starts_with("unmapped") && shown.contains("code \"05\""), "{shown}");
    let counted = "refundd_unmapped_answers_total{channel=\"acme\",status=\"200\"} 1";
    until("the answer is counted", async || node.get("/metrics").await.text.contains(counted)).await;
    node.stop().await;
}
