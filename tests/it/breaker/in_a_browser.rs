//! A person ends in a browser what refundd suspended by itself.

use std::time::Duration;

use refundd::refund::ChannelName;
use refundd::store::OwnSuspension;

use crate::harness::browser::{Browser, LOOKS};
use crate::harness::stage::stage;

#[tokio::test]
async fn a_person_lifts_the_breaker_and_the_suspension_after_refused_credentials_by_keyboard() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    let channel = ChannelName::new("globex").unwrap();
    let credentials = OwnSuspension::Credentials { age: Duration::ZERO };
    let breaker =
        OwnSuspension::Breaker { kind: "rejected", probe: Duration::from_mins(10), age: Duration::ZERO };
    for look in LOOKS {
        let before = scratch.suspensions().await;
        for (own, why) in [(credentials, "the bank answered 401"), (breaker, "20 were rejected")] {
            assert!(scratch.store.suspend(&channel, own, why, "node-a#1").await.unwrap(), "{why}");
        }
        browser.look(look).await;
        browser.go(&format!("http://{}/channels/globex", node.daemon.address())).await;
        for (lift, done) in [
            ("credentials", "Ended. Something else still suspends it"),
            ("breaker", "Resumed: refunds are sent again"),
        ] {
            browser.tab_to(&format!("form:has(input[value={lift}]) input[name=by]")).await;
            browser.write("ann").await;
            browser.press(&["Enter"]).await;
            browser.shows(done).await;
        }
        assert_eq!(scratch.suspensions().await, before, "{look:?}");
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    node.stop().await;
}
