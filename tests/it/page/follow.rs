//! Pages that follow what happens: lists that grow, lists in which a reader chooses, and the fields for a moment.

use refundd::refund::{RefundId, State};
use refundd::store::Decision;

use super::stage::stage;
use crate::harness::browser::{Browser, Look};
use crate::harness::until;

const WIDE: Look = Look { width: 1600, height: 1000, dark: false };

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

#[tokio::test]
async fn a_chart_says_how_many_minutes_it_shows_at_each_width() {
    let ((_scratch, node), browser) = (stage().await, Browser::open().await);
    for (look, shown, other) in [
        (WIDE, "permits in a second, the last 15\u{a0}min", "the last 5\u{a0}min"),
        (
            Look { width: 360, height: 740, dark: true },
            "the last 5\u{a0}min; a wide screen shows 15\u{a0}min",
            "second, the last 15",
        ),
    ] {
        browser.look(look).await;
        browser.go(&format!("http://{}/channels/acme", node.daemon.address())).await;
        let text = browser.text().await;
        assert!(text.contains(shown) && !text.contains(other), "{look:?}: {text}");
    }
    node.stop().await;
}

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
