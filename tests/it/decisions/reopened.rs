//! A refund that has failed, or was cancelled, is reopened for a person. Nothing is sent by that.

use playground::bank::Step;
use refundd::refund::{RefundId, State};
use refundd::store::{Decided, Decision, RecoveryMove};
use serde_json::{Value, json};

use super::{shown, version};
use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn refunds_that_were_settled_as_failed_by_mistake_are_reopened_and_called_succeeded() {
    let scratch = Scratch::with_refunds(40).await;
    scratch.to_review("true").await;
    let config = file(&scratch.file("a", UNLIMITED));
    for (version, next) in [(3, "failed"), (4, "review"), (5, "succeeded")] {
        let names: Vec<String> = (1..=40).map(|n| format!("R-{n}@{version}")).collect();
        let mut args = vec!["review", "settle"];
        args.extend(names.iter().map(String::as_str));
        args.extend(["--as", next, "--reason", "on the statement", "--by", "ann"]);
        let settled = refundd(config.path(), &args);
        assert_eq!(settled.status.code(), Some(0), "{next}: {}", text(&settled));
        assert!(text(&settled).contains("40 of 40 decided, 0 proposed."), "{next}: {}", text(&settled));
    }
    let counts = scratch.store.census().await.unwrap().remove(0).counts;
    let ended = [State::Succeeded, State::Failed].map(|state| counts.get(&state).copied().unwrap_or(0));
    assert_eq!(ended, [40, 0]);
    let lines = "select string_agg(concat_ws(' ', node, moved_to, code), '; ' order by id) from refundd.attempts where refund_id = 40 and kind = 'manual'";
    assert_eq!(
        scratch.text(lines).await,
        "ann failed decided; ann review reopened_failed; ann succeeded decided"
    );
    let events = "select string_agg(who || ' ' || (before ->> 'state') || ' to ' || (after ->> 'state'), '; ' order by event_id)
                    from refundd.events where refund_id = 40 and kind = 'decided'";
    assert_eq!(
        scratch.text(events).await,
        "ann review to failed; ann failed to review; ann review to succeeded"
    );
}

#[tokio::test]
async fn a_stale_look_reopens_nothing_and_only_what_failed_or_was_cancelled_is_reopened() {
    let scratch = Scratch::with_refunds(3).await;
    scratch.to_review("id <> 2").await;
    scratch.decide(RefundId(1), State::Failed, "acme refused it", "ann").await;
    scratch.decide(RefundId(3), State::Succeeded, "on the statement", "ann").await;
    let leased = "state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'a', lease_until = now(), first_sent_at = now()";
    scratch.sql(&format!("update refundd.refunds set {leased} where id = 2")).await;
    scratch.store.recover(RecoveryMove::Lapse, 10, &[]).await.unwrap();
    assert_eq!(scratch.count(State::Unknown).await, 1);
    for id in [2, 3] {
        let decided = scratch.decide(RefundId(id), State::Review, "to look again", "ann").await;
        assert!(matches!(decided, Decided::Illegal(_)), "{decided:?}");
    }
    let now = scratch.store.refund(RefundId(1)).await.unwrap().unwrap().version;
    let reopen = async |seen: i32| {
        let decision = Decision {
            id: RefundId(1),
            seen,
            next: State::Review,
            not_executed: false,
            why: "on the statement",
            who: "ann",
        };
        scratch.store.decide(&decision).await.unwrap()
    };
    assert!(matches!(reopen(now - 1).await, Decided::Changed(_)));
    assert_eq!(scratch.count(State::Failed).await, 1);
    let Decided::Done(refund) = reopen(now).await else { panic!("it is not reopened") };
    assert_eq!((refund.state, refund.version, refund.settled_at), (State::Review, now + 1, None));
    assert!(matches!(reopen(now).await, Decided::Changed(_)), "a repeat changes nothing");
}

#[tokio::test]
async fn nothing_is_sent_by_reopening() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 1).await;
    shown(&scratch, 1).await;
    let decide = async |state: &str| {
        let named = json!([{ "id": 1, "version": version(&node, 1).await }]);
        let decision = json!({ "refunds": named, "state": state, "reason": "on the statement", "by": "ann" });
        let answer = node.post("/v1/review", &decision).await.json();
        let result: &Value = &answer["results"][0];
        assert_eq!((&result["result"], &result["state"]), (&json!("decided"), &json!(state)), "{answer}");
    };
    decide("failed").await;
    let page = node.get("/refunds/1").await.text;
    assert!(
        page.contains("value=\"review\"") && page.contains("Look at it again: nothing is sent"),
        "{page}"
    );
    decide("review").await;
    // A refund that is saved after it goes out; the reopened one stays.
    scratch.insert("acme", "S-", 1).await;
    until("the other one is paid", async || scratch.count(State::Succeeded).await == 1).await;
    assert_eq!((scratch.count(State::Review).await, scratch.bank.ledger().all().len()), (1, 2));
    until("programs hear of it", async || {
        let feed = node.get("/v1/changes").await.json();
        let changes = feed["changes"].as_array().unwrap().iter().filter(|one| one["refund_id"] == 1);
        changes.filter_map(|one| one["state"].as_str()).collect::<Vec<_>>().ends_with(&["failed", "review"])
    })
    .await;
    decide("succeeded").await;
    node.stop().await;
}
