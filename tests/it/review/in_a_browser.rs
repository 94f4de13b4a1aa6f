//! A person decides in a browser about all refunds at once, without the page's script, and on a list that has changed.

use refundd::refund::{RefundId, State};
use refundd::store::{Decided, Decision};
use serde_json::json;

use crate::harness::browser::{Browser, LOOKS};
use crate::harness::stage::stage;
use crate::harness::until;

#[tokio::test]
async fn one_box_chooses_all_refunds_of_the_page_and_they_are_decided_together() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    browser.look(LOOKS[0]).await;
    browser.go(&format!("http://{}/review", node.daemon.address())).await;
    browser.tab_to("#all").await;
    browser.press(&["Space"]).await;
    browser.tab_to("input[name=state]").await;
    browser.press(&["Space"]).await;
    browser.tab_to("input[name=reason]").await;
    browser.write("all of them are on the statement").await;
    browser.tab_to("input[name=by]").await;
    browser.write("ann").await;
    browser.press(&["Enter"]).await;
    browser.shows("6 of 6 refunds decided").await;
    assert_eq!(scratch.count(State::Review).await, 0);
    node.stop().await;
}

#[tokio::test]
async fn going_back_to_a_list_that_one_refund_has_left_chooses_no_other_refund() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    browser.look(LOOKS[0]).await;
    let go = async |path: &str| browser.go(&format!("http://{}{path}", node.daemon.address())).await;
    for path in ["/approvals", "/review"] {
        go(path).await;
        let forms = "return [...document.querySelectorAll('form:has(input[type=checkbox])')].map((form) => form.autocomplete)";
        assert_eq!(browser.eval(forms).await, json!(["off"]), "{path}");
    }
    for field in ["input[name=refund]", "input[name=state]"] {
        browser.tab_to(field).await;
        browser.press(&["Space"]).await;
    }
    let chosen =
        "return [...document.querySelectorAll('input[name=refund]:checked')].map((box) => box.value)";
    let before = browser.eval(chosen).await;
    let (id, version) = before[0].as_str().and_then(|first| first.split_once('@')).unwrap();
    go("/").await;
    // Somebody else decides about it, and the others move up.
    let decision = Decision {
        id: RefundId(id.parse().unwrap()),
        seen: version.parse().unwrap(),
        next: State::Succeeded,
        not_executed: false,
        why: "on the statement",
        who: "bob",
    };
    let decided = scratch.store.decide(&decision).await.unwrap();
    assert!(matches!(decided, Decided::Done(_)), "{decided:?}");
    browser.eval("history.back()").await;
    until("the list is there again", async || {
        browser.eval("return document.readyState === 'complete' && location.pathname === '/review'").await
            == true
    })
    .await;
    // A browser that kept the whole page shows the old list, and the old choice is right there.
    let after = browser.eval(chosen).await;
    assert!(after.as_array().unwrap().iter().all(|one| *one == before[0]), "{before} became {after}");
    node.stop().await;
}

#[tokio::test]
async fn the_page_works_without_its_script() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    browser.block("*/page.js").await;
    browser.go(&format!("http://{}/review", node.daemon.address())).await;
    assert!(browser.text().await.contains("wait for a person"));
    assert_eq!(
        browser.eval("return document.querySelector('.all').hidden").await,
        true,
        "nothing is offered that needs it"
    );
    browser.tab_to("input[name=refund]").await;
    browser.press(&["Space"]).await;
    browser.tab_to("input[name=state]").await;
    browser.press(&["Space"]).await;
    browser.tab_to("input[name=reason]").await;
    browser.write("on the statement").await;
    browser.tab_to("input[name=by]").await;
    browser.write("ann").await;
    browser.press(&["Enter"]).await;
    browser.shows("1 of 1 refund decided").await;
    assert_eq!(scratch.count(State::Review).await, 5);
    // A form with two buttons: the second one names its own way.
    browser.go(&format!("http://{}/approvals", node.daemon.address())).await;
    browser.tab_to("input[name=proposal]").await;
    browser.press(&["Space"]).await;
    browser.tab_to("input[name=reason]").await;
    browser.write("the bank found it").await;
    browser.tab_to("input[name=by]").await;
    browser.write("bob").await;
    browser.tab_to("button[formaction]").await;
    browser.press(&["Enter"]).await;
    browser.shows("1 of 1 decision withdrawn").await;
    node.stop().await;
}
