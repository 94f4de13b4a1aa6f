//! The pages in a browser that logged in.

use std::time::Duration;

use super::{CallerTables, TWO_CHANNELS, basic};
use crate::harness::browser::Browser;
use crate::harness::reader::Reader;
use crate::harness::{Scratch, TestNode, within};

#[tokio::test]
async fn a_browser_that_logged_in_keeps_its_page_up_to_date_and_sends_forms() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let desk = callers.caller("desk", "may = [\"look\", \"operate\"]\nchannels = [\"*\"]");
    let node = TestNode::start(&scratch, "a", &callers.with_channels(TWO_CHANNELS)).await;
    let browser = Browser::open().await;
    let login = basic("ann", &desk);
    let page = format!("http://{}/channels/acme", node.daemon.address());
    // As if the person had answered the browser's question.
    browser.send_header("Authorization", &login).await;
    browser.go(&page).await;
    browser.tab_to("summary").await;
    browser.press(&["Enter"]).await;
    browser.tab_to("input[name=reason]").await;
    browser.write("a reason").await;
    browser.press(&["Enter"]).await;
    browser.shows("is paused by desk since").await;
    scratch.resume("acme").await;
    within(Duration::from_secs(30), "the page follows", async || {
        !browser.text().await.contains("is paused by desk since")
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn the_pages_of_a_caller_who_may_only_look_are_accessible() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let desk = callers.caller("desk", "may = [\"look\"]\nchannels = [\"acme\"]");
    let node = TestNode::start(&scratch, "a", &callers.with_channels(TWO_CHANNELS)).await;
    scratch.pause("acme", "so that nothing is sent", "test").await;
    scratch.insert("acme", "R-", 3).await;
    scratch.to_review("id < 3").await;
    let mut reader = Reader::open().await;
    reader.browser.send_header("Authorization", &basic("ann", &desk)).await;
    for path in [
        "/",
        "/channels/acme",
        "/review",
        "/approvals",
        "/events",
        "/refunds/3",
        "/proof?channel=acme",
        "/nodes",
    ] {
        reader.browser.go(&format!("http://{}{path}", node.daemon.address())).await;
        reader.check("You are the caller desk").await;
        assert_eq!(
            reader.browser.eval("return document.querySelectorAll('main form[method=post]').length").await,
            0,
            "{path}"
        );
    }
    reader.browser.go(&format!("http://{}/channels/other", node.daemon.address())).await;
    reader.check("no node ever ran a channel `other`, or this caller does not have it").await;
    reader.end();
    node.stop().await;
}
