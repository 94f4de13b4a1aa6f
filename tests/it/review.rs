//! What waits for a person, what a person decides, and what will be too late.

use playground::bank::Step;
use refundd::refund::{RefundId, State};
use serde_json::json;

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn a_person_sees_every_attempt_and_settles_many_at_once_over_http() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 3).await;
    until("all are shown", async || scratch.count(State::Review).await == 3).await;
    let file = node.get("/v1/refunds/1/attempts").await.json();
    let sent = &file["attempts"][0];
    assert_eq!((sent["kind"].as_str(), sent["status"].as_i64()), (Some("send"), Some(500)), "{file}");
    let decision =
        json!({ "ids": [1, 2, 99], "state": "succeeded", "reason": "on the statement", "by": "ann" });
    let reply = node.post("/v1/review", &decision).await.json();
    assert_eq!(reply["decided"], 2, "{reply}");
    assert_eq!(reply["results"][2]["result"], "no_such_refund", "{reply}");
    let again = node.post("/v1/review", &decision).await.json();
    assert_eq!(
        (again["decided"].as_i64(), again["results"][0]["state"].as_str()),
        (Some(0), Some("succeeded"))
    );
    assert_eq!(again["results"][0]["message"], "it is succeeded already", "{again}");
    assert!(
        again["results"][2]["message"].as_str().is_some_and(|message| message.contains("refund_ref")),
        "{again}"
    );
    let other = json!({ "refunds": [{ "id": 1, "version": again["results"][0]["version"] }], "state": "failed", "reason": "r", "by": "ann" });
    let other = node.post("/v1/review", &other).await.json();
    let message = other["results"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("is succeeded cannot become failed"), "{other}");
    let evidence = scratch.store.evidence(RefundId(2)).await.unwrap();
    let last = evidence.last().unwrap();
    assert_eq!((last.kind.as_str(), last.node.as_str()), ("manual", "ann"));
    assert_eq!(last.message.as_deref(), Some("on the statement"));
    assert_eq!(scratch.count(State::Review).await, 1);
    let refused = node.post("/v1/review", &json!({ "ids": [3], "state": "succeeded", "by": "ann" })).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    node.stop().await;
}

#[tokio::test]
async fn a_deadline_that_cannot_be_kept_is_foretold() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.publish("globex").await;
    scratch.insert("globex", "G-", 5).await;
    scratch.insert("acme", "R-", 100).await;
    // At two a second the last of 101 goes after 50 seconds.
    scratch.sql("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, deadline_at)
                 values ('early', 'acme', 'P', 1, 'EUR', now() + interval '20 seconds'), ('late', 'acme', 'P', 1, 'EUR', now() + interval '1 hour')").await;
    let rates = |acme: f64| [("acme", acme), ("globex", 0.01)];
    let foretold = scratch.store.forecast(&rates(2.0)).await.unwrap();
    assert_eq!(foretold.len(), 1, "{foretold:?}");
    assert_eq!((foretold[0].channel.as_str(), foretold[0].late), ("acme", 1));
    let census = scratch.store.census().await.unwrap();
    assert_eq!(census[0].late.map(|(late, _)| late), Some(1));
    assert_eq!(scratch.store.forecast(&rates(2.0)).await.unwrap(), [], "what is known is not told again");
    let over = scratch.store.forecast(&rates(20.0)).await.unwrap();
    assert_eq!((over.len(), over[0].late, over[0].from), (1, 0, None));
    assert_eq!(scratch.store.census().await.unwrap()[0].late, None);

    // Without limits a channel has no rate, and nothing is said of its deadlines.
    scratch.store.forecast(&rates(2.0)).await.unwrap();
    scratch.store.forecast(&[("globex", 0.01)]).await.unwrap();
    assert_eq!(scratch.store.census().await.unwrap()[0].late, None);
}

#[tokio::test]
async fn a_refund_that_is_due_later_does_not_wait_for_a_backlog_that_is_gone_by_then() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    // At two a second these are gone after 50 seconds, and 20 of the 30 others leave within ten seconds after they are due.
    scratch.insert("acme", "R-", 100).await;
    let save = async |prefix: &str, count: u32, due: &str, deadline: &str| {
        scratch
            .sql(&format!(
                "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, due_at, deadline_at)
                 select '{prefix}' || n, 'acme', 'P', 1, 'EUR', {due}, {deadline} from generate_series(1, {count}) n"
            ))
            .await;
    };
    save("later-", 1, "now() + interval '1 hour'", "now() + interval '1 hour 10 seconds'").await;
    assert_eq!(scratch.store.forecast(&[("acme", 2.0)]).await.unwrap(), []);
    save("many-", 30, "now() + interval '2 hours'", "now() + interval '2 hours 10.25 seconds'").await;
    let foretold = scratch.store.forecast(&[("acme", 2.0)]).await.unwrap();
    assert_eq!(foretold.iter().map(|one| one.late).collect::<Vec<_>>(), [10], "{foretold:?}");

    // Neither the last day that a refund may have nor the smallest rate is too far away.
    save("last-", 1, "timestamptz '9998-12-01 00:00Z'", "timestamptz '9998-12-31 00:00Z'").await;
    for rate in [2.0, 1.0 / 2_678_400.0, 1e-15] {
        scratch.store.forecast(&[("acme", rate)]).await.unwrap();
    }
    assert!(scratch.store.census().await.unwrap()[0].late.is_some_and(|(late, _)| late == 32));
}
