//! A person pauses, resumes and decides in a browser, without a mouse.

use refundd::refund::State;

use crate::harness::browser::{Browser, LOOKS};
use crate::harness::stage::stage;

#[tokio::test]
async fn a_person_looks_pauses_resumes_and_decides_by_keyboard_alone() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    let start = format!("http://{}/", node.daemon.address());
    for look in LOOKS {
        browser.look(look).await;
        let waited = scratch.count(State::Review).await;
        browser.go(&start).await;
        browser.press(&["Tab"]).await;
        assert_eq!(browser.eval("return document.activeElement.textContent").await, "Skip to the content");
        browser.tab_to("a[href='/channels/northbank']").await;
        browser.press(&["Enter"]).await;
        browser.shows("Channel northbank").await;
        browser.tab_to("summary").await;
        browser.press(&["Enter"]).await;
        browser.tab_to("input[name=reason]").await;
        browser.write("the bank asked us").await;
        browser.tab_to("input[name=by]").await;
        browser.write("ann").await;
        browser.press(&["Enter"]).await;
        browser.shows("Paused: nothing more is claimed").await;
        browser.shows("northbank is paused by ann since").await;
        browser.shows("until somebody resumes: the bank asked us").await;
        let why = scratch.text(
            "select paused_by || ': ' || pause_reason from refundd.channels where channel = 'northbank'",
        );
        assert_eq!(why.await, "ann: the bank asked us");
        browser.tab_to("input[name=by]").await;
        browser.write("ann").await;
        browser.press(&["Enter"]).await;
        browser.shows("Resumed").await;
        // Find a refund, and read its story.
        browser.tab_to("#find").await;
        browser.write("order-91").await;
        browser.press(&["Enter"]).await;
        browser.shows("What happened").await;
        assert!(browser.text().await.contains("status 500"));
        // Decide about two at once, or about one.
        browser.tab_to("a[href='/review']").await;
        browser.press(&["Enter"]).await;
        browser.shows("wait for a person").await;
        let decided = if waited == 6 { 2 } else { 1 };
        for _ in 0..decided {
            browser.tab_to("input[name=refund]").await;
            browser.press(&["Space", "Tab"]).await;
        }
        browser.tab_to("input[name=state]").await;
        browser.press(&["Space"]).await;
        let chosen = browser.eval("return document.querySelector('input[name=state]:checked').value").await;
        browser.tab_to("input[name=reason]").await;
        browser.write("on the statement").await;
        browser.tab_to("input[name=by]").await;
        browser.write("ann").await;
        browser.press(&["Enter"]).await;
        let noun = if decided == 1 { "refund" } else { "refunds" };
        browser.shows(&format!("{decided} of {decided} {noun} decided")).await;
        let state: State = chosen.as_str().unwrap().parse().unwrap();
        assert_eq!(state, State::Succeeded);
        assert_eq!(scratch.count(State::Review).await, waited - decided);
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    node.stop().await;
}
