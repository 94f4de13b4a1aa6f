//! The page in a real browser: readable at both widths and in both schemes, usable by keyboard alone, and up to date by itself.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use refundd::refund::State;

use super::stage::{in_review, stage};
use crate::callers::{CallerTables, TWO_CHANNELS};
use crate::harness::browser::{Browser, LOOKS, Look};
use crate::harness::{Scratch, TestNode};

/// What is wrong with the page that the browser shows, with everything opened, so that nothing hides from the check.
pub async fn faults(browser: &Browser) -> Vec<String> {
    browser.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })").await;
    let mut faults = browser.findings().await;
    let wider = browser
        .eval("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        .await;
    if wider != 0 {
        faults.push(format!("{wider} px wider than the screen"));
    }
    let hidden =
        "const menu = document.querySelector('header nav'); return menu.scrollWidth - menu.clientWidth";
    if browser.eval(hidden).await != 0 {
        faults.push("a part of the menu is hidden".to_owned());
    }
    let covered = "
        const place = (one) => one.getBoundingClientRect();
        const words = [...document.querySelectorAll('.choice > input + *')];
        return words.filter((one) => place(one).left < place(one.previousElementSibling).right).length";
    if browser.eval(covered).await != 0 {
        faults.push("the words of a choice cover its button".to_owned());
    }
    faults
}

#[tokio::test]
async fn every_page_is_accessible_and_fits_at_both_widths_and_in_both_schemes() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    browser.add_axe().await;
    let id = in_review(&scratch).await;
    let waits = scratch.number("select max(id) from refundd.refunds where channel = 'northbank'").await;
    let pages = [
        "/".to_owned(),
        "/?show=trouble".to_owned(),
        "/channels/acme".to_owned(),
        "/channels/sepa?done=paused".to_owned(),
        "/channels/farbank".to_owned(),
        "/channels/globex".to_owned(),
        "/refunds?q=none".to_owned(),
        format!("/refunds/{id}"),
        format!("/refunds/{waits}"),
        "/refunds?q=P-1".to_owned(),
        "/review".to_owned(),
        "/approvals".to_owned(),
        "/events".to_owned(),
        "/proof?channel=acme&from=2m".to_owned(),
        "/nodes".to_owned(),
        "/nowhere".to_owned(),
    ];
    let mut findings = Vec::new();
    for look in LOOKS {
        browser.look(look).await;
        for page in &pages {
            browser.go(&format!("http://{}{page}", node.daemon.address())).await;
            let place = |what: String| format!("{page} at {look:?}: {what}");
            findings.extend(faults(&browser).await.into_iter().map(place));
            let refused = browser.complaints().await.into_iter();
            findings
                .extend(refused.filter(|line| !page.contains("nowhere") || !line.contains("404")).map(place));
        }
    }
    assert_eq!(findings, Vec::<String>::new());
    println!("{} pages, {} looks, no finding", pages.len(), LOOKS.len());
    node.stop().await;
}

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

#[tokio::test]
async fn the_page_keeps_itself_up_to_date_without_disturbing_the_reader_and_says_when_it_cannot() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    browser.look(Look { width: 1600, height: 1000, dark: false }).await;
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

#[tokio::test]
async fn a_browser_that_logged_in_keeps_its_page_up_to_date_and_sends_forms() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let desk = callers.caller("desk", "may = [\"look\", \"operate\"]\nchannels = [\"*\"]");
    let node = TestNode::start(&scratch, "a", &callers.with_channels(TWO_CHANNELS)).await;
    let browser = Browser::open().await;
    let login = format!("Basic {}", STANDARD.encode(format!("ann:{}", desk.expose())));
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
    crate::harness::within(Duration::from_secs(30), "the page follows", async || {
        !browser.text().await.contains("is paused by desk since")
    })
    .await;
    node.stop().await;
}
