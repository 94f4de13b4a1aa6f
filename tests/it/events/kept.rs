//! Events that were dropped: nobody takes a list that lacks them for a whole one.

use std::time::Duration;

use hyper::Method;

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

#[tokio::test]
async fn the_log_and_the_page_say_since_when_events_are_kept() {
    let scratch = Scratch::new().await;
    let file = file(&scratch.file("cli", UNLIMITED));
    let log = |args: &[&str]| text(&refundd(file.path(), &[&["log"], args].concat()));
    let old = "insert into refundd.events (kind, who, at) values ('paused', 'old', now() - interval '50 days'), ('paused', 'young', now() - interval '1 hour')";
    scratch.sql(old).await;
    let said = log(&[]);
    assert!(said.lines().count() == 2 && !said.contains("may be missing"), "{said}");
    assert_eq!(scratch.store.forget_events(Duration::from_hours(24)).await.unwrap(), 1);
    let since = "select to_char(min(at) at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS') from refundd.events";
    let since = scratch.text(since).await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let page = async |query: &str| {
        let path = format!("/events?{query}");
        node.request_with(Method::GET, &path, &[("accept", "text/html")], "").await.text
    };
    // A channel, a span that reaches further back, and everything.
    for args in [&["acme"][..], &["--since", "2h"], &[], &["--json"]] {
        let said = log(args);
        assert!(said.contains(&format!("Events before {since}")), "{args:?}: {said}");
        assert!(said.contains("may be missing"), "{args:?}: {said}");
    }
    for args in [&["--since", "1us"][..], &["--most", "1"]] {
        let said = log(args);
        assert!(!said.contains("may be missing"), "{args:?}: {said}");
    }
    assert!(page("channel=acme").await.contains("may be missing: "));
    assert!(!page("from=1m").await.contains("may be missing"));
    node.stop().await;
}
