//! Every page in a browser: readable at both widths and in both schemes.

use crate::harness::browser::{Browser, LOOKS, Look, WIDE};
use crate::harness::reader::faults;
use crate::harness::stage::{in_review, stage};

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
