//! Lists in a browser that grow while somebody reads them or chooses in them.

use refundd::refund::{RefundId, State};
use refundd::store::Decision;

use crate::harness::browser::{Browser, WIDE};
use crate::harness::stage::stage;
use crate::harness::until;

#[tokio::test]
async fn the_events_and_the_counts_of_the_review_follow_and_what_is_chosen_stays() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    let at = |path: &str| format!("http://{}{path}", node.daemon.address());
    browser.look(WIDE).await;
    browser.go(&at("/events")).await;
    scratch.pause("northbank", "a pause that was not there before", "bob").await;
    browser.shows("a pause that was not there before").await;
    // In the review list nothing moves below the reader's hand; a line says what is new.
    browser.go(&at("/review")).await;
    browser.eval("document.querySelector('input[name=refund]').click()").await;
    browser.eval("document.querySelector('input[name=reason]').value = 'half a rea'").await;
    let first = scratch.number("select min(id) from refundd.refunds where state = 'review'").await;
    scratch.insert("globex", "late-", 2).await;
    until("they wait for a person", async || scratch.count(State::Review).await == 8).await;
    browser.shows("8 refunds in 1 channel").await;
    browser.shows("2 new refunds: reload").await;
    let chosen = "return document.querySelector('input[name=refund]:checked').value.split('@')[0]";
    assert_eq!(browser.eval(chosen).await, first.to_string());
    assert_eq!(browser.eval("return document.querySelectorAll('tbody tr').length").await, 6);
    assert_eq!(browser.eval("return document.querySelector('input[name=reason]').value").await, "half a rea");
    let id = RefundId(first + 1);
    let seen = scratch.store.refund(id).await.unwrap().unwrap().version;
    let (next, why, who) = (State::Failed, "acme refused it", "bob");
    let decision = Decision { id, seen, next, not_executed: false, why, who };
    scratch.store.decide(&decision).await.unwrap();
    browser.shows("2 new refunds, 1 refund of this page moved on: reload").await;
    browser.eval("document.querySelector('#news a').click()").await;
    browser.shows("late-2").await;
    assert_eq!(browser.eval("return document.getElementById('news').hidden").await, true);
    node.stop().await;
}
