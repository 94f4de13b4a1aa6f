//! The fields for a moment, in a browser.

use crate::harness::browser::{Browser, WIDE};
use crate::harness::stage::stage;

#[tokio::test]
async fn a_person_chooses_a_period_in_utc_or_with_a_calendar_in_their_own_time() {
    let ((_scratch, node), browser) = (stage().await, Browser::open().await);
    browser.look(WIDE).await;
    browser.live_in("Asia/Tokyo").await;
    browser.go(&format!("http://{}/proof", node.daemon.address())).await;
    browser.shows("From in your time, GMT+9").await;
    browser
        .eval(
            "const picker = document.querySelector('input[type=datetime-local]');
             picker.value = '2026-03-29T14:00';
             picker.dispatchEvent(new Event('change'));",
        )
        .await;
    assert_eq!(
        browser.eval("return document.querySelector('input[name=from]').value").await,
        "2026-03-29T05:00:00Z"
    );
    // A time of day, as people write it: a minute ago.
    let text = browser
        .eval(
            "const at = new Date(Date.now() - 120000).toISOString().slice(11, 16);
             document.querySelector('input[name=from]').value = at;
             document.querySelector('input[name=channel]').value = 'acme';
             document.querySelector('button.primary').click();
             return at;",
        )
        .await;
    browser.shows("Channel acme, ").await;
    browser.shows("Limit acme").await;
    let from = browser.eval("return document.querySelector('#result time').dateTime").await;
    assert_eq!(&from.as_str().unwrap()[11..16], text.as_str().unwrap());
    node.stop().await;
}
