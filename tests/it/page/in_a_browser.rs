//! Every page in a browser: readable at both widths and in both schemes.

use crate::harness::browser::{Browser, Look, WIDE};
use crate::harness::reader::Reader;
use crate::harness::stage::{in_review, stage};

#[tokio::test]
async fn every_page_is_accessible_and_fits_at_both_widths_and_in_both_schemes() {
    let ((scratch, node), mut reader) = (stage().await, Reader::open().await);
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
    let mut complaints = Vec::new();
    for page in &pages {
        reader.browser.go(&format!("http://{}{page}", node.daemon.address())).await;
        reader.check_shown(page).await;
        let refused = reader.browser.complaints().await.into_iter();
        let refused = refused.filter(|line| !page.contains("nowhere") || !line.contains("404"));
        complaints.extend(refused.map(|line| format!("{page}: {line}")));
    }
    reader.end();
    assert_eq!(complaints, Vec::<String>::new());
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
