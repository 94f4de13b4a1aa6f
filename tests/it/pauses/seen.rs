//! A resume or a pause that names the suspension that it saw changes no other one, and a resume says what it ended.

use std::process::Output;
use std::time::Duration;

use refundd::store::OwnSuspension;
use serde_json::{Value, json};

use super::{acme, run};
use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::node::Answer;
use crate::harness::{Scratch, TestNode};

/// Each pause, with the resume that ends it.
const WAYS: [(&str, &str); 2] =
    [("/v1/channels/acme/pause", "/v1/channels/acme/resume"), ("/v1/pause", "/v1/resume")];

const RESUMED: &str =
    "update refundd.channels set paused_at = null, pause_until = null, pause_reason = null, paused_by = null";

/// Runs `refundd pause acme` as Ann, beside other work of the test.
async fn pause_by_ann(scratch: &Scratch, more: Option<&'static str>) -> Output {
    let settings = scratch.file("cli", UNLIMITED);
    let command = tokio::task::spawn_blocking(move || {
        let mut arguments = vec!["pause", "acme", "--reason", "a look", "--by", "ann"];
        arguments.extend(more);
        refundd(file(&settings).path(), &arguments)
    });
    command.await.unwrap()
}

/// When the only suspension began, as programs read it.
async fn since(node: &TestNode) -> Value {
    node.get("/v1/suspensions").await.json()["suspensions"][0]["since"].clone()
}

/// The request was refused, because this person's suspension is there.
fn is_refused_because_of(answer: &Answer, who: &str) {
    assert_eq!(answer.status, 409, "{answer:?}");
    let problem = answer.json();
    assert_eq!(problem["type"], "urn:refundd:problem:suspension-changed", "{problem}");
    assert_eq!(problem["suspension"]["by"], who, "{problem}");
    assert!(problem["detail"].as_str().unwrap_or_default().contains("nothing was changed"), "{problem}");
}

#[tokio::test]
async fn a_resume_ends_only_the_pause_that_it_saw() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for (pause, resume) in WAYS {
        assert_eq!(node.post(pause, &json!({ "reason": "maintenance", "by": "ann" })).await.status, 200);
        let seen = since(&node).await;
        let asks = json!({ "by": "bob", "seen": seen });
        let ended = node.post(resume, &asks).await.json();
        assert_eq!((&ended["result"], &ended["ended"]["by"]), (&json!("resumed"), &json!("ann")), "{ended}");
        assert_eq!(ended["ended"]["since"], seen, "{ended}");
        // The answer was lost, and the program repeats the request.
        let again = node.post(resume, &asks).await.json();
        assert_eq!(
            (&again["result"], &again["ended"]),
            (&json!("was_not_suspended"), &Value::Null),
            "{again}"
        );
        let pays_twice = json!({ "reason": "pays twice, do not resume", "by": "cid" });
        assert_eq!(node.post(pause, &pays_twice).await.status, 200);
        is_refused_because_of(&node.post(resume, &asks).await, "cid");
        assert_eq!(scratch.suspensions().await, 1, "it ended a pause that it did not see");
        // A request that does not say what it saw ends what is there, and says what that was.
        let ended = node.post(resume, &json!({ "by": "bob" })).await.json();
        let message = ended["message"].as_str().unwrap_or_default();
        for words in ["was paused by cid since ", "pays twice, do not resume"] {
            assert!(message.contains(words), "{words}: {ended}");
        }
        assert_eq!(scratch.suspensions().await, 0, "{ended}");
        assert_eq!(node.post(resume, &json!({ "by": "bob", "seen": "soon" })).await.status, 422);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_resume_lifts_only_the_breaker_or_the_refusal_of_credentials_that_it_saw() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let breaker =
        OwnSuspension::Breaker { kind: "rejected", probe: Duration::from_mins(10), age: Duration::ZERO };
    let credentials = OwnSuspension::Credentials { age: Duration::ZERO };
    for (lift, own) in [("credentials", credentials), ("breaker", breaker)] {
        let resume = async |seen: &Value| {
            let asks = json!({ "by": "bob", "lift": lift, "seen": seen });
            node.post("/v1/channels/acme/resume", &asks).await
        };
        assert!(scratch.store.suspend(&acme(), own, "the first", "a#1").await.unwrap());
        let seen = since(&node).await;
        scratch.resume("acme").await;
        assert!(scratch.store.suspend(&acme(), own, "the second", "a#2").await.unwrap());
        is_refused_because_of(&resume(&seen).await, "a#2");
        assert_eq!(scratch.suspensions().await, 1, "{lift}");
        let ended = resume(&since(&node).await).await.json();
        assert_eq!(
            (&ended["result"], &ended["ended"]["reason"]),
            (&json!("resumed"), &json!("the second")),
            "{ended}"
        );
        assert_eq!(scratch.suspensions().await, 0, "{lift}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_pause_takes_the_place_of_the_pause_that_it_saw_and_of_no_other() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for (pause, resume) in WAYS {
        let asks = async |seen: &Value, who: &str| {
            let body = json!({ "reason": "a look", "by": who, "for_seconds": 900, "seen": seen });
            node.post(pause, &body).await
        };
        let none = json!("none");
        assert_eq!(asks(&none, "ann").await.status, 200);
        is_refused_because_of(&asks(&none, "bob").await, "ann");
        let seen = since(&node).await;
        assert_eq!(asks(&seen, "bob").await.status, 200);
        is_refused_because_of(&asks(&seen, "cid").await, "bob");
        let ended = node.post(resume, &json!({ "by": "ann" })).await.json();
        assert_eq!(ended["ended"]["by"], "bob", "{ended}");
        // A pause that takes no other one's place is never refused.
        assert_eq!(asks(&seen, "cid").await.status, 200);
        assert_eq!(node.post(resume, &json!({ "by": "ann" })).await.status, 200);
        assert_eq!(scratch.suspensions().await, 0);
    }
    let unknown = json!({ "reason": "r", "by": "ann", "seen": "none" });
    assert_eq!(node.post("/v1/channels/amce/pause", &unknown).await.status, 404);
    node.stop().await;
}

#[tokio::test]
async fn the_command_says_whose_pause_it_ended_since_when_and_why() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.pause("acme", "pays twice, do not resume", "cid").await;
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "acme"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Ended: acme was paused by cid since 2"), "{said}");
    assert!(said.contains("Z: pays twice, do not resume\n"), "{said}");
    run(&scratch, UNLIMITED, &["pause", "--all", "--reason", "an alarm", "--by", "ann"]);
    let (code, said) = run(&scratch, UNLIMITED, &["resume", "--all"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Ended: everything was paused by ann since 2"), "{said}");
}

#[tokio::test]
async fn the_command_replaces_another_persons_pause_only_if_it_is_told_to() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    for about in ["acme", "--all"] {
        let pause = |who: &str, more: &[&str]| {
            let arguments = [&["pause", about, "--reason", "a look", "--by", who][..], more].concat();
            run(&scratch, UNLIMITED, &arguments)
        };
        let in_force = "select string_agg(who || coalesce(' for ' || round(extract(epoch from until - since) / 3600), ''), ', ') from refundd.suspended";
        let (code, said) = pause("ann", &["--for", "2h"]);
        assert!(code == Some(0) && !said.contains("Replaced"), "{said}");
        let (code, said) = pause("bob", &["--for", "1h"]);
        assert_eq!(code, Some(3), "{said}");
        for words in
            [" is paused by ann since 2", "Z, until 2", "Z: a look\n", "Nothing was changed", "--replace"]
        {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(scratch.text(in_force).await, "ann for 2");
        // The same person may change the end.
        let (code, said) = pause("ann", &["--for", "3h"]);
        assert_eq!(code, Some(0), "{said}");
        for words in ["Replaced: ", " was paused by ann since 2", "It would have ended at 2"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(scratch.text(in_force).await, "ann for 3");
        let (code, said) = pause("bob", &["--replace"]);
        assert!(code == Some(0) && said.contains(" was paused by ann since 2"), "{said}");
        assert_eq!(scratch.text(in_force).await, "bob");
        let (code, said) = pause("bob", &[]);
        assert!(code == Some(0) && said.contains("It had no end."), "{said}");
        assert_eq!(run(&scratch, UNLIMITED, &["resume", about]).0, Some(0));
    }
}

#[tokio::test]
async fn the_command_lets_no_pause_of_the_same_name_end_earlier_unless_it_is_told_to() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    for about in ["acme", "--all"] {
        let pause = |more: &[&str]| {
            let arguments = [&["pause", about, "--reason", "a look", "--by", "root"][..], more].concat();
            run(&scratch, UNLIMITED, &arguments)
        };
        let hours = "select coalesce(round(extract(epoch from until - since) / 3600)::text, 'no end') from refundd.suspended";
        let is_not_shortened = async |in_force: &str| {
            let (code, said) = pause(&["--for", "1h"]);
            assert_eq!(code, Some(3), "{said}");
            for words in [" is paused by root since 2", "Nothing was changed", "ends later", "--replace"] {
                assert!(said.contains(words), "{words}: {said}");
            }
            assert_eq!(scratch.text(hours).await, in_force);
        };
        assert_eq!(pause(&["--for", "5h"]).0, Some(0));
        is_not_shortened("5").await;
        // To lengthen it, nobody needs a flag.
        assert_eq!(pause(&[]).0, Some(0));
        is_not_shortened("no end").await;
        let (code, said) = pause(&["--for", "1h", "--replace"]);
        assert!(code == Some(0) && said.contains("Replaced: "), "{said}");
        assert_eq!(scratch.text(hours).await, "1");
        assert_eq!(run(&scratch, UNLIMITED, &["resume", about]).0, Some(0));
    }
}

#[tokio::test]
async fn the_command_replaces_no_pause_that_another_person_begins_meanwhile() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let paused_by = |who: &str| {
        format!(
            "update refundd.channels set paused_at = now(), pause_reason = 'pays twice', paused_by = '{who}'"
        )
    };
    let (ann, bob) = (paused_by("ann"), paused_by("bob"));
    // Without a pause, with one that it would replace, and with one that it is told to replace.
    for (before, more, way_out) in [
        (RESUMED, None, "add --replace"),
        (ann.as_str(), None, "add --replace"),
        (ann.as_str(), Some("--replace"), "run the command again"),
    ] {
        scratch.sql(before).await;
        let output = scratch.while_a_commit_hangs(&[bob.as_str()], pause_by_ann(&scratch, more)).await;
        let said = text(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        for words in ["acme is paused by bob since 2", way_out] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(scratch.text("select paused_by from refundd.channels").await, "bob");
    }
}

#[tokio::test]
async fn the_command_pauses_when_the_pause_in_its_way_ends_before_it_is_read() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.pause("acme", "pays twice", "bob").await;
    // The command finds bob's pause in its way. Its next statement, which reads that pause, waits for this lock.
    let ends = ["lock table refundd.suspensions in access exclusive mode", RESUMED];
    let output = scratch.while_a_commit_hangs(&ends, pause_by_ann(&scratch, None)).await;
    let said = text(&output);
    assert!(output.status.code() == Some(0) && said.contains("acme is paused until"), "{said}");
    assert_eq!(scratch.text("select paused_by from refundd.channels").await, "ann");
}
