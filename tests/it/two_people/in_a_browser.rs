//! One person stops, cancels and proposes in a browser, and a second one approves.

use refundd::refund::State;

use crate::harness::browser::{Browser, LOOKS};
use crate::harness::stage::stage;

#[tokio::test]
async fn a_person_stops_everything_cancels_and_approves_by_keyboard_alone() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    let at = |path: &str| format!("http://{}{path}", node.daemon.address());
    browser.look(LOOKS[0]).await;
    browser.go(&at("/")).await;
    browser.tab_to("#stop summary").await;
    browser.press(&["Enter"]).await;
    browser.tab_to("#stop input[name=reason]").await;
    browser.write("the bank called").await;
    browser.tab_to("#stop select").await;
    browser.press(&["Down"]).await;
    browser.tab_to("#stop input[name=by]").await;
    browser.write("ann").await;
    browser.press(&["Enter"]).await;
    browser.shows("everything is paused by ann since").await;
    let stop = "select who || ': ' || reason || ' ' || extract(epoch from until - since)::bigint
                  from refundd.suspensions where channel = '*'";
    assert_eq!(scratch.text(stop).await, "ann: the bank called 900");
    browser.tab_to("#everything input[name=by]").await;
    browser.write("ann").await;
    browser.press(&["Enter"]).await;
    browser.shows("Resumed: refunds are sent again").await;
    // A refund of a paused channel says what it waits for, and is cancelled.
    let id = scratch.number("select max(id) from refundd.refunds where channel = 'sepa'").await;
    browser.go(&at(&format!("/refunds/{id}"))).await;
    browser.shows("is paused by ann").await;
    browser.shows("12 of 12 that are ready").await;
    browser.tab_to("section[aria-labelledby=cancel] summary").await;
    browser.press(&["Enter"]).await;
    browser.tab_to("section[aria-labelledby=cancel] input[name=reason]").await;
    browser.write("paid in cash").await;
    browser.tab_to("section[aria-labelledby=cancel] input[name=by]").await;
    browser.write("ann").await;
    browser.press(&["Enter"]).await;
    browser.shows("Cancelled: it is never sent").await;
    // The second person's approval.
    browser.tab_to("a[href='/review']").await;
    browser.press(&["Enter"]).await;
    browser.shows("1 decision waits for a second person").await;
    browser.tab_to("a[href='/approvals']").await;
    browser.press(&["Enter"]).await;
    browser.shows("to become").await;
    browser.tab_to("input[name=proposal]").await;
    browser.press(&["Space"]).await;
    browser.tab_to("input[name=reason]").await;
    browser.write("they told me, too").await;
    browser.tab_to("input[name=by]").await;
    browser.write("bob").await;
    browser.press(&["Enter"]).await;
    browser.shows("1 of 1 decision approved").await;
    assert_eq!(scratch.count(State::Cancelled).await, 1);
    // What was done stands among the events.
    browser.tab_to("a[href='/events']").await;
    browser.press(&["Enter"]).await;
    browser.shows("paid in cash").await;
    browser.shows("the bank called").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    node.stop().await;
}
