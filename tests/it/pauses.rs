//! What people stop and start again, beside what refundd suspends by itself: each is a record of its own.

mod cooling;
mod everything;
mod in_a_browser;
mod seen;
mod ways_out;

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::State;
use refundd::store::{OwnSuspension, Pause, Resumed, SuspendedBy};
use serde_json::{Value, json};
use sqlx::{Connection, Executor};

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::anywhere::acme;
use crate::harness::{Scratch, TestNode, until};

/// The command's exit code and what it printed.
fn run(scratch: &Scratch, channels: &str, args: &[&str]) -> (Option<i32>, String) {
    let file = file(&scratch.file("cli", channels));
    let output = refundd(file.path(), args);
    (output.status.code(), text(&output))
}

/// What suspends channel `acme` now, in the order of the alphabet.
async fn causes(scratch: &Scratch) -> Vec<String> {
    let all = scratch.store.suspensions().await.unwrap().suspensions;
    all.iter().map(|one| one.by.to_string()).collect()
}

async fn are_sent(scratch: &Scratch, count: i64) {
    until("all are sent", async || scratch.count(State::Succeeded).await == count).await;
}

#[tokio::test]
async fn a_refund_that_is_never_let_in_is_named_and_lets_others_go_first_after_some_times() {
    let scratch = Scratch::new().await;
    scratch.bank.next_for("acme", "R-1", std::iter::repeat_n(Step::answers(403, "<html>"), 9));
    let channels = format!("{UNLIMITED}max_in_flight = 1\ncool_down = \"1h\"\n");
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 1).await;
    for nth in 1..=4 {
        until("the bank refuses it", async || causes(&scratch).await == ["credentials"]).await;
        until("nothing is under lease", async || scratch.count(State::Sending).await == 0).await;
        let reason = scratch.text("select reason from refundd.suspended").await;
        assert!(reason.contains("(refund 1): HTTP 403"), "{reason}");
        assert_eq!(scratch.bank.look(|l| l.all().len()), nth);
        if nth < 4 {
            scratch.resume("acme").await;
        }
    }
    scratch.insert("acme", "S-", 4).await;
    let waits =
        "select count(*) from refundd.refunds where id = 1 and due_at > now() + interval '30 minutes'";
    assert_eq!(scratch.number(waits).await, 1, "the others are due before");
    scratch.resume("acme").await;
    are_sent(&scratch, 4).await;
    node.stop().await;
}

#[tokio::test]
async fn a_persons_pause_and_the_banks_401_end_each_on_its_own() {
    for pause_ends_first in [true, false] {
        let scratch = Scratch::new().await;
        scratch.bank.next("acme", [Step::unauthorised()]);
        let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}max_in_flight = 1\n")).await;
        scratch.insert("acme", "R-", 5).await;
        until("the bank's answer suspends it", async || causes(&scratch).await == ["credentials"]).await;
        scratch.pause("acme", "we look into it", "ann").await;
        assert_eq!(causes(&scratch).await, ["credentials", "person"], "both are there");
        let reason = "select reason from refundd.suspended where source = 'credentials'";
        assert!(scratch.text(reason).await.contains("401"), "the pause overwrote the bank's answer");
        let end_pause = async || {
            let done = scratch.store.resume("acme", "ann", None).await.unwrap();
            assert!(matches!(done, Resumed::Now(_)), "{done:?}");
        };
        let end_own = async || {
            let by = SuspendedBy::Credentials;
            let done = scratch.store.release("acme", by, "ann", None).await.unwrap();
            assert!(matches!(done, Resumed::Now(_)), "{done:?}");
        };
        let left = if pause_ends_first {
            end_pause().await;
            "credentials"
        } else {
            end_own().await;
            "person"
        };
        assert_eq!(causes(&scratch).await, [left]);
        // Long enough for every node to read what is left.
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert_eq!(scratch.bank.look(|l| l.all().len()), 1, "it sends although one suspension is left");
        if pause_ends_first {
            end_own().await;
        } else {
            end_pause().await;
        }
        are_sent(&scratch, 5).await;
        node.stop().await;
    }
}

#[tokio::test]
async fn refundd_suspends_a_channel_that_a_person_paused() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.pause("acme", "the bank's maintenance", "ann").await;
    let own = OwnSuspension::Credentials { age: Duration::ZERO };
    assert!(scratch.store.suspend(&acme(), own, "HTTP 401", "node-a").await.unwrap());
    assert!(!scratch.store.suspend(&acme(), own, "HTTP 403", "node-b").await.unwrap(), "it is so already");
    assert_eq!(causes(&scratch).await, ["credentials", "person"]);
    let of_a_person = "select reason || ' ' || who from refundd.suspended where source = 'person'";
    assert_eq!(scratch.text(of_a_person).await, "the bank's maintenance ann");
    let of_refundd = "select reason || ' ' || who from refundd.suspended where source = 'credentials'";
    assert_eq!(scratch.text(of_refundd).await, "HTTP 401 node-a");
}

#[tokio::test]
async fn resuming_what_is_not_paused_claims_no_success_and_names_what_else_suspends_it() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "acme"]);
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(said, "Channel acme was not paused; nothing was changed.\n");
    let own = OwnSuspension::Credentials { age: Duration::ZERO };
    scratch.store.suspend(&acme(), own, "HTTP 401", "node-a").await.unwrap();
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "acme"]);
    assert_eq!(code, Some(3), "{said}");
    let nobody = "No person paused channel acme: refundd suspended it itself. Nothing was changed.\n";
    assert!(said.starts_with(nobody), "{said}");
    assert!(said.contains("HTTP 401. End it with: refundd resume acme --credentials"), "{said}");
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "acme", "--credentials"]);
    let nobody = "Channel acme is not suspended because of its credentials any more. Nothing is sent: no living node runs the channel.\n";
    assert!(code == Some(0) && said.ends_with(nobody), "{said}");
    scratch.sql("insert into refundd.nodes (node, version, channels, config_digest) values ('b#1', '0', '{acme}', 'd')").await;
    scratch.store.suspend(&acme(), own, "HTTP 401", "node-a").await.unwrap();
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "acme", "--credentials"]);
    assert!(code == Some(0) && said.ends_with("\nChannel acme sends again within a second.\n"), "{said}");
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "--all"]);
    assert_eq!((code, said.as_str()), (Some(3), "Everything was not paused; nothing was changed.\n"));
    scratch.pause("acme", "the bank's maintenance", "ann").await;
    run(&scratch, UNLIMITED, &["pause", "--all", "--reason", "an alarm"]);
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "--all"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("still suspended") && said.contains("acme is paused by ann"), "{said}");
    assert!(!said.contains("sends again"), "{said}");
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "amce"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no channel `amce` was ever run on this database"), "{said}");
    for wrong in [&["resume"] as &[&str], &["resume", "acme", "--all"], &["resume", "--all", "--breaker"]] {
        assert_eq!(run(&scratch, UNLIMITED, wrong).0, Some(2), "{wrong:?}");
    }
    let kinds = "select string_agg(kind, ' ' order by event_id) from refundd.events where channel = 'acme'";
    assert_eq!(
        scratch.text(kinds).await,
        "channel_added suspended released suspended released paused",
        "what changed nothing is no event"
    );
}

#[tokio::test]
async fn a_pause_with_an_end_ends_by_itself_on_all_nodes_and_is_written_down() {
    let scratch = Scratch::new().await;
    let a = TestNode::start(&scratch, "a", UNLIMITED).await;
    let b = TestNode::start(&scratch, "b", UNLIMITED).await;
    let pause = ["pause", "acme", "--reason", "a short look", "--for", "3s", "--by", "ann"];
    let (code, said) = run(&scratch, UNLIMITED, &pause);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is paused for 3s"), "{said}");
    let paused_us = "select (extract(epoch from paused_at) * 1000000)::bigint from refundd.channels";
    let paused_us = scratch.number(paused_us).await;
    scratch.insert("acme", "R-", 40).await;
    are_sent(&scratch, 40).await;
    let first = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).min().unwrap());
    let after = Duration::from_micros((first - paused_us).unsigned_abs());
    assert!(first > paused_us && after >= Duration::from_secs(3), "the first was sent after {after:?}");
    assert!(after < Duration::from_secs(8), "the first was sent after {after:?}");
    let ended = "select count(*) from refundd.events where kind = 'resumed' and who = 'refundd' and reason = 'its time was over'";
    until("its end is an event", async || scratch.number(ended).await == 1).await;
    assert_eq!(run(&scratch, UNLIMITED, &["resume", "acme"]).0, Some(3), "it is over");
    a.stop().await;
    b.stop().await;
}

/// Every round of recovery begins with the ends of pauses.
#[tokio::test]
async fn a_row_that_somebody_holds_keeps_no_other_pause_from_its_end() {
    let scratch = Scratch::new().await;
    for channel in ["acme", "globex"] {
        scratch.publish(channel).await;
        let pause = Pause { reason: "r", who: "ann", lasts: Some(Duration::from_millis(1)) };
        scratch.store.pause(channel, &pause).await.unwrap();
    }
    let over = "select count(*) from refundd.channels where pause_until <= now()";
    until("both are over", async || scratch.number(over).await == 2).await;
    let mut held = scratch.connect().await;
    let mut holds = held.begin().await.unwrap();
    holds.execute("select from refundd.channels where channel = 'acme' for update").await.unwrap();
    scratch.store.end_pauses().await.unwrap();
    let paused =
        "select coalesce(string_agg(channel, ','), '') from refundd.channels where paused_at is not null";
    assert_eq!(scratch.text(paused).await, "acme");
    holds.rollback().await.unwrap();
    scratch.store.end_pauses().await.unwrap();
    assert_eq!(scratch.text(paused).await, "");
}

#[tokio::test]
async fn a_pause_of_an_older_node_has_no_end_of_an_earlier_pause() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let pause = Pause { reason: "r", who: "ann", lasts: Some(Duration::from_hours(1)) };
    scratch.store.pause("acme", &pause).await.unwrap();
    // As the last version pauses and resumes.
    let pause = "update refundd.channels set paused_at = now(), pause_reason = 'again', paused_by = 'bob'";
    scratch.sql(pause).await;
    assert_eq!(scratch.number("select count(*) from refundd.suspended where until is null").await, 1);
    scratch.sql("update refundd.channels set paused_at = null, pause_reason = null, paused_by = null").await;
    let events = "select string_agg(kind || ' ' || who, ', ' order by event_id) from refundd.events where kind in ('paused', 'resumed')";
    assert_eq!(scratch.text(events).await, "paused ann, paused bob, resumed refundd", "each left its event");
}

#[tokio::test]
async fn http_pauses_and_resumes_as_the_commands_do() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let post = async |path: &str, body: Value| node.post(path, &body).await;
    let by = json!({ "by": "ann" });
    let paused =
        post("/v1/channels/acme/pause", json!({ "reason": "a look", "by": "ann", "for_seconds": 60 })).await;
    assert_eq!((paused.status.as_u16(), &paused.json()["result"]), (200, &json!("paused")), "{paused:?}");
    let listed = node.get("/v1/suspensions").await.json();
    let one = &listed["suspensions"][0];
    assert_eq!(
        (&one["channel"], &one["suspended_by"], &one["reason"], &one["by"]),
        (&json!("acme"), &json!("person"), &json!("a look"), &json!("ann"))
    );
    assert!(one["until"].is_string() && one["since"].is_string(), "{listed}");
    let shown = node.get("/v1/channels").await.json();
    assert_eq!(shown["channels"][0]["suspended_by"], json!(["person"]), "{shown}");
    assert_eq!(post("/v1/pause", json!({ "reason": "all", "by": "ann" })).await.status, 200);
    let resumed = post("/v1/channels/acme/resume", by.clone()).await.json();
    assert_eq!(resumed["result"], "resumed");
    assert_eq!(resumed["suspensions"][0]["suspended_by"], "all", "it says what is left: {resumed}");
    let again = post("/v1/channels/acme/resume", by.clone()).await;
    assert_eq!((again.status.as_u16(), &again.json()["result"]), (200, &json!("was_not_suspended")));
    let ended = post("/v1/resume", by.clone()).await.json();
    assert_eq!((&ended["result"], &ended["suspensions"]), (&json!("resumed"), &json!([])), "{ended}");
    let message = ended["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("everything is not paused any more; nothing suspends it"), "{ended}");
    assert_eq!(post("/v1/resume", by.clone()).await.json()["result"], "was_not_suspended");
    for lift in ["credentials", "breaker"] {
        let body = json!({ "by": "ann", "lift": lift });
        assert_eq!(post("/v1/channels/acme/resume", body).await.json()["result"], "was_not_suspended");
    }
    for path in ["/v1/channels/amce/pause", "/v1/channels/amce/resume"] {
        let refused = post(path, json!({ "reason": "r", "by": "ann" })).await;
        assert_eq!(refused.status, 404, "{refused:?}");
        assert_eq!(refused.json()["type"], "urn:refundd:problem:no-such-channel");
    }
    assert_eq!(post("/v1/channels/acme/pause", json!({ "by": "ann" })).await.status, 422);
    node.stop().await;
}

#[tokio::test]
async fn pauses_and_resumes_at_one_time_leave_one_event_for_each_change() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let work = (0..8).map(|nth| {
        let store = scratch.store.clone();
        async move {
            let who = format!("person-{nth}");
            let mut changes = 0;
            for _ in 0..10 {
                if nth % 2 == 0 {
                    let pause = Pause { reason: "r", who: &who, lasts: None };
                    assert!(store.pause("acme", &pause).await.unwrap());
                    changes += 1;
                } else if matches!(store.resume("acme", &who, None).await.unwrap(), Resumed::Now(_)) {
                    changes += 1;
                }
            }
            changes
        }
    });
    let changes: usize = futures_util::future::join_all(work).await.into_iter().sum();
    let kinds = "select string_agg(left(kind, 1), '' order by event_id) from refundd.events where kind in ('paused', 'resumed')";
    let kinds = scratch.text(kinds).await;
    assert_eq!(kinds.len(), changes, "{kinds}");
    assert!(!kinds.contains("rr") && !kinds.starts_with('r'), "what was not paused was resumed: {kinds}");
    let is_paused = scratch.suspensions().await == 1;
    assert_eq!(kinds.ends_with('p'), is_paused, "the last event is the state: {kinds}");
}
