//! Pages that are older than what suspends a channel now, and links to what a form did once.

use super::see;
use crate::callers::post_form;
use crate::dispatch::UNLIMITED;
use crate::harness::node::Answer;
use crate::harness::{Scratch, TestNode};

const PAUSED: &str = "Paused: nothing more is claimed";
const RESUMED: &str = "Resumed: refunds are sent again";
const CANCELLED: &str = "Cancelled: it is never sent";
const NOT_SEEN: &str = "Nothing was changed: what suspends it now is not what you saw";

/// What the first form of the page that leads to this path saw.
fn seen(page: &str, path: &str) -> String {
    let form = page.split(&format!("action=\"{path}\"")).nth(1).unwrap_or_default();
    let form = form.split("</form>").next().unwrap_or_default();
    let value = form.split("name=\"seen\" value=\"").nth(1);
    let value = value.unwrap_or_else(|| panic!("the form to {path} does not say what it saw: {page}"));
    value.split('"').next().unwrap().to_owned()
}

/// The page to which a form leads.
async fn after(node: &TestNode, form: &Answer) -> String {
    assert_eq!(form.status, 303, "{form:?}");
    see(node, form.headers["location"].to_str().unwrap()).await.text
}

#[tokio::test]
async fn an_old_page_ends_no_pause_that_it_did_not_show() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for (page, at, who) in [
        ("/channels/acme", "/channels/acme", "select paused_by from refundd.channels"),
        ("/", "", "select who from refundd.suspensions where channel = '*'"),
    ] {
        let (pause, resume) = (format!("{at}/pause"), format!("{at}/resume"));
        let paused = post_form(&node, None, &pause, "reason=maintenance&by=ann").await;
        assert_eq!(paused.status, 303, "{paused:?}");
        let old = seen(&see(&node, page).await.text, &resume);
        assert_eq!(post_form(&node, None, &resume, "by=ann").await.status, 303);
        let pays_twice = "reason=pays+twice,+do+not+resume&by=cid";
        assert_eq!(post_form(&node, None, &pause, pays_twice).await.status, 303);
        let refused = post_form(&node, None, &resume, &format!("by=bob&seen={old}")).await;
        let shown = after(&node, &refused).await;
        assert!(shown.contains(NOT_SEEN) && shown.contains("pays twice, do not resume"), "{shown}");
        assert_eq!(scratch.suspensions().await, 1, "the old page ended a pause that it did not show");
        assert_eq!(scratch.text(who).await, "cid");
        // Whoever has read the page ends it, and reads what ended.
        let read = seen(&shown, &resume);
        let ended = post_form(&node, None, &resume, &format!("by=bob&seen={read}")).await;
        let shown = after(&node, &ended).await;
        for words in [RESUMED, "was paused by cid since", "pays twice, do not resume"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        assert_eq!(scratch.suspensions().await, 0);
    }
    node.stop().await;
}

#[tokio::test]
async fn an_old_page_gives_no_pause_that_it_did_not_show_another_end() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let ends = "select count(*) from refundd.suspended where until is not null";
    for (page, at) in [("/channels/acme", "/channels/acme"), ("/", "")] {
        let (pause, resume) = (format!("{at}/pause"), format!("{at}/resume"));
        let old = seen(&see(&node, page).await.text, &pause);
        assert_eq!(old, "none");
        let pays_twice = "reason=pays+twice,+do+not+resume&by=cid";
        assert_eq!(post_form(&node, None, &pause, pays_twice).await.status, 303);
        let asks = |seen: &str| format!("reason=a+look&by=bob&for_seconds=900&seen={seen}");
        let refused = post_form(&node, None, &pause, &asks(&old)).await;
        let shown = after(&node, &refused).await;
        assert!(shown.contains(NOT_SEEN) && shown.contains("pays twice, do not resume"), "{shown}");
        assert_eq!(scratch.number(ends).await, 0, "the old page gave the pause an end");
        let changed = post_form(&node, None, &pause, &asks(&seen(&shown, &pause))).await;
        assert!(after(&node, &changed).await.contains(PAUSED), "{changed:?}");
        assert_eq!(scratch.number(ends).await, 1);
        assert_eq!(post_form(&node, None, &resume, "by=ann").await.status, 303);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_link_to_what_a_form_did_says_only_what_is_so_now() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that nothing is sent", "ann").await;
    scratch.insert("acme", "R-", 1).await;
    let cancelled = "/refunds/1?done=cancelled";
    let page = see(&node, cancelled).await.text;
    assert!(!page.contains(CANCELLED), "the refund is ready: {page}");
    let form = post_form(&node, None, "/refunds/1/cancel", "version=1&reason=twice&by=ann").await;
    assert!(after(&node, &form).await.contains(CANCELLED), "{form:?}");
    // The notice belongs to the part that the page renews.
    let channel = see(&node, "/channels/acme?done=paused").await.text;
    let live = format!("<div id=\"said\" data-live><p class=\"notice\" role=\"status\">{PAUSED}");
    assert!(channel.contains(&live), "{channel}");
    for (link, words) in [
        ("/channels/acme?done=resumed", RESUMED),
        ("/channels/acme?done=ended&of=breaker", "Something else still suspends it"),
        ("/channels/acme?done=unchanged&of=person", "nothing was changed"),
        ("/?done=paused", PAUSED),
    ] {
        let page = see(&node, link).await.text;
        assert!(!page.contains(words), "{link} says `{words}` of a channel that ann paused: {page}");
    }
    scratch.resume("acme").await;
    let page = see(&node, "/channels/acme?done=paused").await.text;
    assert!(!page.contains(PAUSED), "the channel is resumed: {page}");
    node.stop().await;
}

#[tokio::test]
async fn a_link_to_what_a_form_ended_reads_no_more_than_the_events_of_an_hour() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let ended = [("2 minutes", "2025-01-02T00:00:00Z", true), ("70 minutes", "2025-01-01T00:00:00Z", false)];
    for (ago, since, is_said) in ended {
        scratch
            .sql(&format!(
                "insert into refundd.events (at, kind, channel, who, before)
                 values (now() - interval '{ago}', 'resumed', 'acme', 'ann',
                         '{{\"who\": \"cid\", \"reason\": \"maintenance\", \"since\": \"{since}\"}}')"
            ))
            .await;
        let page = see(&node, &format!("/channels/acme?done=resumed&of=person&since={since}")).await.text;
        assert!(page.contains(RESUMED), "{page}");
        assert_eq!(page.contains("was paused by cid since"), is_said, "{ago}: {page}");
    }
    node.stop().await;
}
