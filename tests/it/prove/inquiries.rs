//! The limits of inquiries are proven, too.

use futures_util::future::join_all;
use playground::bank::Step;
use refundd::refund::State;

use super::{json, prove, text};
use crate::harness::{Scratch, TestNode, until};

/// A node asks about three refunds, and stops. `limits` are those of sends, and `inquiry` is what the inquiry says of its own.
async fn asked(limits: &str, inquiry: &str) -> Scratch {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let channels = format!(
        "[limit.asks]\npermits = 20\nper = \"1s\"\nlateness = \"100ms\"\n\
         [channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [{limits}]\n\
         timeout = \"1s\"\nconnect_timeout = \"1s\"\non_unknown = \"inquire\"\n\
         inquiry = {{ url = \"http://{{bank}}/acme/refunds/{{request_id}}\", not_found_is_final = true, grace = \"30s\"{inquiry} }}\n"
    );
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 3).await;
    until("all are unknown", async || scratch.count(State::Unknown).await == 3).await;
    scratch
        .sql(
            "update refundd.refunds set inquire_at = now(), uncertain_at = now() - interval '10 seconds'
              where inquire_at is not null",
        )
        .await;
    until("all are settled", async || scratch.count(State::Succeeded).await == 3).await;
    node.stop().await;
    // The settings a minute old and more: a first byte without a permit cannot be of those before.
    scratch.sql("update refundd.channels set published_at = now() - interval '10 minutes'").await;
    scratch
}

#[tokio::test]
async fn the_limits_of_inquiries_are_proven_and_an_inquiry_without_a_permit_is_found() {
    let cases = [
        // Sends are unlimited, and need no permit of the inquiries' limit.
        ("", ", limits = [\"asks\"]", 3),
        // Inquiries spend permits of the sends' limit.
        ("\"asks\"", "", 6),
    ];
    join_all(cases.map(|(limits, inquiry, first_bytes)| async move {
        let scratch = asked(limits, inquiry).await;
        let said = prove(&scratch, &["--channel", "acme", "--json"]);
        assert_eq!(said.status.code(), Some(0), "{}", text(&said));
        let page = json(&said);
        assert_eq!(page["limits"].as_array().map(Vec::len), Some(1), "{page}");
        let limit = &page["limits"][0];
        assert_eq!((&limit["limit"], &limit["verdict"]), (&"asks".into(), &"held".into()), "{limit}");
        assert!(limit["journal"]["first_bytes"].as_u64() >= Some(first_bytes), "{limit}");
        scratch
            .sql(
                "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome)
                 select refund_id, channel, kind, 9, lease_epoch, node, clock_timestamp(), outcome from refundd.attempts
                  where kind = 'inquiry' order by id limit 1",
            )
            .await;
        let said = prove(&scratch, &["--channel", "acme", "--json"]);
        assert_eq!(said.status.code(), Some(1), "{}", text(&said));
        assert_eq!(json(&said)["limits"][0]["journal"]["without_permit"]["count"], 1, "{}", text(&said));
    }))
    .await;
}
