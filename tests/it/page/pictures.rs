//! The pictures of the documentation.

use std::time::Duration;

use crate::harness::browser::{Browser, Look};
use crate::harness::stage::{in_review, stage};
use crate::harness::{until, within};

/// `make screenshots`: the pictures of README.md and docs/desk.md.
#[tokio::test]
#[ignore = "writes the pictures of the documentation; `make screenshots` runs it"]
async fn the_pictures_of_the_documentation_are_made() {
    let ((scratch, node), browser) = (stage().await, Browser::open().await);
    let id = in_review(&scratch).await;
    // Shares and paces are of the last minute, so a minute must have passed.
    within(Duration::from_mins(2), "northbank has sent for a minute", async || {
        let channels = node.get("/v1/channels").await.json();
        let channels = channels["channels"].as_array().unwrap().clone();
        let north = channels.into_iter().find(|channel| channel["channel"] == "northbank").unwrap();
        north["observed_per_second"].as_f64().unwrap() > 0.95
    })
    .await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/desk");
    std::fs::create_dir_all(folder).unwrap();
    let (wide, narrow) =
        (Look { width: 1280, height: 860, dark: false }, Look { width: 360, height: 740, dark: false });
    for (name, path, look) in [
        ("channels", "/".to_owned(), wide),
        ("channels-narrow", "/".to_owned(), Look { dark: true, ..narrow }),
        ("channel", "/channels/acme".to_owned(), wide),
        ("refund", format!("/refunds/{id}"), wide),
        ("review", "/review".to_owned(), wide),
    ] {
        browser.look(look).await;
        browser.go(&format!("http://{}{path}", node.daemon.address())).await;
        until("the counts are there", async || !browser.text().await.contains("still")).await;
        let picture = browser.picture(false).await;
        assert!(picture.len() < 180_000, "{name} has {} bytes", picture.len());
        std::fs::write(format!("{folder}/{name}.png"), picture).unwrap();
    }
    node.stop().await;
}
