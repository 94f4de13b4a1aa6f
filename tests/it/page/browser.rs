//! The page in a real browser: readable at both widths and in both schemes, usable by keyboard alone, and up to date by itself.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use playground::bank::Step;
use refundd::refund::State;
use sqlx::Executor;

use crate::callers::{Doors, TWO_CHANNELS};
use crate::harness::browser::{Browser, LOOKS, Look, axe};
use crate::harness::{Scratch, TestNode, until};

const CHANNELS: &str = r#"
[limit.acme]
permits = 20
per = "1s"
[limit.acme-day]
permits = 1000000
per = "24h"
[limit.northbank]
algorithm = "paced"
permits = 1
per = "1s"
[limit.globex]
algorithm = "token_bucket"
permits = 300
per = "1m"
burst = 50
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = ["acme", "acme-day"]
max_backlog = 100000
[channel.northbank]
endpoint = "http://{bank}/northbank/refunds"
limits = ["northbank"]
[channel.globex]
endpoint = "http://{bank}/globex/refunds"
limits = ["globex"]
[channel.sepa]
endpoint = "http://{bank}/sepa/refunds"
limits = ["acme"]
[channel.farbank]
endpoint = "http://127.0.0.1:9/refunds"
limits = ["northbank"]
connect_timeout = "1s"
"#;

/// What happened in the last minutes, as the journal and the ledger have it. The owner writes it, because nobody waits for it.
const HISTORY: &[&str] = &[
    "set session_replication_role = 'replica'",
    "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state, attempts, settled_at)
     select 'order-' || n || '-refund-1', 'acme', 'P-' || 70000 + n, 1000 + n * 371 % 90000, 'EUR', 'succeeded', 1, now()
       from generate_series(1, 1000) n",
    "create temporary table pace as
     select s, greatest(0, least(20, round(13 + 6 * sin(s / 45.0) + 3 * sin(s / 7.0) + random() * 3)))::int as n
       from generate_series(2, 899) s where s not between 300 and 345",
    "insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
     select 'acme', date_trunc('second', now()) - s * interval '1 second', o, 1, 'a#1' from pace, generate_series(1, n) o",
    "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
     select 'acme', date_trunc('second', now()) - s * interval '1 second', n + 1, 'ledger-service', 'a#1' from pace where n < 20 and s % 3 = 0",
    "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, moved_to, status, code)
     select 1 + (s * 20 + o) % 1000, 'acme', case when o = 7 then 'inquiry' else 'send' end, 1, 1, 'a#1', now() - s * interval '1 second', now() - s * interval '1 second',
            case when s % 97 = 5 and o < 4 then 'rejected' when s between 600 and 630 and o % 3 = 0 then 'unknown' when o = 7 then 'accepted' else 'succeeded' end, 'succeeded',
            case when s % 97 = 5 and o < 4 then 422 when s between 600 and 630 and o % 3 = 0 then 500 else 200 end,
            case when s % 97 = 5 and o < 4 then 'rejected' when s between 600 and 630 and o % 3 = 0 then 'server_error' end
       from pace, generate_series(1, n) o",
];

/// A node with channels of every kind: one that sends, one that waits, one that is paused, one whose bank is away; and refunds
/// that wait for a person.
pub(super) async fn stage() -> (Scratch, TestNode) {
    let scratch = Scratch::new().await;
    scratch.bank.then("globex", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "node-a", CHANNELS).await;
    scratch.store.pause("sepa", "the bank's maintenance until six", "ann", false).await.unwrap();
    let mut owner = scratch.connect().await;
    for statement in HISTORY {
        owner.execute(*statement).await.unwrap();
    }
    scratch.insert("globex", "order-9", 6).await;
    scratch.insert("sepa", "sepa-", 12).await;
    scratch.insert("farbank", "far-", 3).await;
    scratch.insert("northbank", "north-", 400).await;
    scratch.insert("acme", "acme-", 9000).await;
    until("refunds wait for a person", async || scratch.count(State::Review).await == 6).await;
    until("the bank of farbank is away", async || {
        node.get("/v1/channels").await.json()["channels"]
            .as_array()
            .unwrap()
            .iter()
            .any(|channel| channel["bank"]["unreachable"].is_string())
    })
    .await;
    (scratch, node)
}

/// The id of a refund that waits for a person.
async fn in_review(scratch: &Scratch) -> i64 {
    scratch.number("select min(id) from refundd.refunds where state = 'review'").await
}

#[tokio::test]
async fn every_page_is_accessible_and_fits_at_both_widths_and_in_both_schemes() {
    let (axe, (scratch, node), browser) = (axe(), stage().await, Browser::open().await);
    let id = in_review(&scratch).await;
    let pages = [
        "/".to_owned(),
        "/?show=trouble".to_owned(),
        "/channels/acme".to_owned(),
        "/channels/sepa?done=paused".to_owned(),
        "/channels/farbank".to_owned(),
        "/channels/globex".to_owned(),
        "/refunds?q=none".to_owned(),
        format!("/refunds/{id}"),
        "/review".to_owned(),
        "/proof?channel=acme&from=2m".to_owned(),
        "/nodes".to_owned(),
        "/nowhere".to_owned(),
    ];
    let mut findings = Vec::new();
    for look in LOOKS {
        browser.look(look).await;
        for page in &pages {
            browser.go(&format!("http://{}{page}", node.daemon.address())).await;
            // With everything opened, so that nothing hides from the check.
            browser.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })").await;
            let place = |what: String| format!("{page} at {look:?}: {what}");
            findings.extend(browser.findings(&axe).await.into_iter().map(place));
            let wider = browser
                .eval("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                .await;
            if wider != 0 {
                findings.push(place(format!("{wider} px wider than the screen")));
            }
            let refused = browser.complaints().await.into_iter();
            findings
                .extend(refused.filter(|line| !page.contains("nowhere") || !line.contains("404")).map(place));
        }
    }
    assert_eq!(findings, Vec::<String>::new());
    node.stop().await;
}

#[tokio::test]
async fn a_person_looks_pauses_resumes_and_decides_by_keyboard_alone() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    let start = format!("http://{}/", node.daemon.address());
    for (nth, look) in [LOOKS[0], LOOKS[3]].into_iter().enumerate() {
        browser.look(look).await;
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
        browser.shows("Paused by ann").await;
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
        // Decide about two at once.
        browser.tab_to("a[href='/review']").await;
        browser.press(&["Enter"]).await;
        browser.shows("wait for a person").await;
        browser.tab_to("input[name=refund]").await;
        browser.press(&["Space", "Tab"]).await;
        browser.tab_to("input[name=refund]").await;
        browser.press(&["Space"]).await;
        browser.tab_to("input[name=state]").await;
        browser.press(&["Space"]).await;
        let chosen = browser.eval("return document.querySelector('input[name=state]:checked').value").await;
        browser.tab_to("input[name=reason]").await;
        browser.write("on the statement").await;
        browser.tab_to("input[name=by]").await;
        browser.write("ann").await;
        browser.press(&["Enter"]).await;
        browser.shows("2 of 2 refunds decided").await;
        let state: State = chosen.as_str().unwrap().parse().unwrap();
        assert_eq!(state, State::Succeeded);
        assert_eq!(scratch.count(State::Review).await, 4 - 2 * i64::try_from(nth).unwrap());
    }
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
    // A focused link and a half-written reason stay.
    browser.go(&format!("http://{}/channels/globex", node.daemon.address())).await;
    browser.eval("document.querySelector('.controls details').open = true").await;
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
    node.stop().await;
}

#[tokio::test]
async fn a_browser_that_logged_in_keeps_its_page_up_to_date_and_sends_forms() {
    let scratch = Scratch::new().await;
    let mut doors = Doors::new();
    let desk = doors.caller("desk", "may = [\"look\", \"operate\"]\nchannels = [\"*\"]");
    let node = TestNode::start(&scratch, "a", &doors.behind(TWO_CHANNELS)).await;
    let browser = Browser::open().await;
    let login = format!("Basic {}", STANDARD.encode(format!("ann:{}", desk.expose())));
    let page = format!("http://{}/channels/acme", node.daemon.address());
    browser.go(&page).await;
    assert!(browser.text().await.contains("Log in"), "{}", browser.text().await);
    // As if the person had answered the browser's question.
    browser.send_header("Authorization", &login).await;
    browser.go(&page).await;
    browser.tab_to("summary").await;
    browser.press(&["Enter"]).await;
    browser.tab_to("input[name=reason]").await;
    browser.write("a reason").await;
    browser.press(&["Enter"]).await;
    browser.shows("Paused by desk").await;
    scratch.store.resume("acme").await.unwrap();
    crate::harness::within(Duration::from_secs(30), "the page follows", async || {
        !browser.text().await.contains("Paused by desk")
    })
    .await;
    node.stop().await;
}

/// `make screenshots`: the pictures of README.md and docs/desk.md.
#[tokio::test]
#[ignore = "writes the pictures of the documentation; `make screenshots` runs it"]
async fn the_pictures_of_the_documentation_are_made() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    let id = in_review(&scratch).await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/desk");
    std::fs::create_dir_all(folder).unwrap();
    let (wide, narrow) =
        (Look { width: 1280, height: 860, dark: false }, Look { width: 360, height: 740, dark: false });
    for (name, path, look) in [
        ("channels", "/".to_owned(), wide),
        ("channels-narrow", "/".to_owned(), Look { dark: true, ..narrow }),
        ("channel", "/channels/acme".to_owned(), wide),
        ("channel-dark", "/channels/acme".to_owned(), Look { dark: true, ..wide }),
        ("refund", format!("/refunds/{id}"), wide),
        ("review", "/review".to_owned(), wide),
    ] {
        browser.look(look).await;
        browser.go(&format!("http://{}{path}", node.daemon.address())).await;
        until("the counts are there", async || !browser.text().await.contains("still")).await;
        let picture = browser.picture(false).await;
        assert!(picture.len() < 150_000, "{name} has {} bytes", picture.len());
        std::fs::write(format!("{folder}/{name}.png"), picture).unwrap();
    }
    node.stop().await;
}
