//! A page that follows what happens while somebody reads it.

use crate::harness::browser::{Browser, WIDE};
use crate::harness::stage::{in_review, stage};

#[tokio::test]
async fn the_page_keeps_itself_up_to_date_without_disturbing_the_reader_and_says_when_it_cannot() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    browser.look(WIDE).await;
    browser.live_in("Asia/Tokyo").await;
    browser.go(&format!("http://{}/channels/sepa", node.daemon.address())).await;
    // Times are those of the reader, with UTC beside.
    let time = browser.eval("return document.querySelector('#standing time').textContent").await;
    let time = time.as_str().unwrap();
    assert!(time.contains("GMT+9 (") && time.ends_with(" UTC)"), "{time}");
    // A story tells moments of one second apart.
    let id = in_review(&scratch).await;
    browser.go(&format!("http://{}/refunds/{id}", node.daemon.address())).await;
    let time = browser.eval("return document.querySelector('.story time').textContent").await;
    let (own, utc) = time.as_str().unwrap().split_once(" GMT+9 (").unwrap();
    assert_eq!(own.rsplit_once('.').unwrap().1, utc.rsplit_once('.').unwrap().1.trim_end_matches(" UTC)"));
    // A focused link and a half-written reason stay.
    browser.go(&format!("http://{}/channels/globex", node.daemon.address())).await;
    browser.eval("document.querySelector('#steer details').open = true").await;
    browser.eval("document.querySelector('input[name=reason]').value = 'half a rea'").await;
    browser.eval("document.querySelector('#counts a').focus()").await;
    scratch.insert("globex", "later-", 2).await;
    browser.shows("8 refunds").await;
    assert_eq!(browser.eval("return document.activeElement.matches('#counts a')").await, true);
    assert_eq!(browser.eval("return document.querySelector('input[name=reason]').value").await, "half a rea");
    node.stop().await;
    browser.shows("Not updated since").await;
}
