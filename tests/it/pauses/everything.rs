//! Everything is stopped at once: all channels on all nodes, and permits for other services.

use std::time::Duration;

use playground::bank::{Step, now_us};
use refundd::refund::State;
use refundd::store::Pause;
use serde_json::json;

use super::run;
use crate::cli::{file, refundd, text};
use crate::harness::{Scratch, TestNode, until, within};

/// Two channels that share a limit, and one without a limit.
const SHARED: &str = r#"
[limit.company]
permits = 50
per = "1s"
[channel.eu]
endpoint = "http://{bank}/eu/refunds"
limits = ["company"]
[channel.us]
endpoint = "http://{bank}/us/refunds"
limits = ["company"]
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
max_in_flight = 2
"#;

#[tokio::test]
async fn one_command_stops_everything_on_all_nodes_within_a_second_also_permits_for_others() {
    let scratch = Scratch::new().await;
    for channel in ["acme", "eu", "us"] {
        scratch.bank.then(channel, Step::pays().after(Duration::from_millis(5)));
    }
    let nodes = [
        TestNode::start(&scratch, "a", SHARED).await,
        TestNode::start(&scratch, "b", SHARED).await,
        TestNode::start(&scratch, "c", SHARED).await,
    ];
    for channel in ["acme", "eu", "us"] {
        scratch.insert(channel, &format!("{channel}-"), 3000).await;
    }
    assert!(scratch.bank.until(Duration::from_secs(30), |l| l.all().len() > 100).await);
    // In a thread of its own, so that the nodes go on meanwhile.
    let settings = scratch.file("cli", SHARED);
    let command = tokio::task::spawn_blocking(move || {
        let file = file(&settings);
        refundd(file.path(), &["pause", "--all", "--reason", "everything is wrong"])
    });
    let output = command.await.unwrap();
    let stopped_us = now_us();
    let (code, said) = (output.status.code(), text(&output));
    assert_eq!(code, Some(0), "{said}");
    for node in &nodes {
        until("the node says that it is paused", async || {
            let refused = node.post("/v1/limits/company/acquire", &json!({})).await;
            // The ledger refuses at once. Until the node has read the pause, the limit may be used up before that.
            assert_ne!(refused.status, 200, "{refused:?}");
            let is_paused = refused.status == 503;
            if is_paused {
                assert_eq!(refused.json()["type"], "urn:refundd:problem:paused", "{refused:?}");
                assert_eq!(refused.headers["retry-after"], "5", "{refused:?}");
            }
            is_paused
        })
        .await;
    }
    within(Duration::from_secs(10), "nothing is under lease", async || {
        scratch.count(State::Sending).await == 0
    })
    .await;
    let (last, sent) = scratch.bank.look(|l| (l.all().iter().map(|a| a.at_us).max().unwrap(), l.all().len()));
    // A busy machine may need a second itself.
    assert!(last - stopped_us < 2_000_000, "sent {} us after the command", last - stopped_us);
    // A channel that is resumed on its own stays stopped.
    assert_eq!(run(&scratch, SHARED, &["resume", "acme"]).0, Some(3));
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), sent);
    let (code, said) = run(&scratch, SHARED, &["resume", "--all", "--reason", "it was a false alarm"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() > sent).await);
    // So that the refunds that wait do not take every permit.
    scratch
        .sql("update refundd.refunds set state = 'cancelled', settled_at = now() where state = 'ready'")
        .await;
    until("permits are granted again", async || {
        nodes[0].post("/v1/limits/company/acquire", &json!({})).await.status == 200
    })
    .await;
    let events = "select string_agg(kind || ' ' || channel, ', ' order by event_id) from refundd.events where kind in ('paused', 'resumed')";
    assert_eq!(scratch.text(events).await, "paused *, resumed *");
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn permits_for_others_stop_when_every_channel_with_the_limit_is_paused() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", SHARED).await;
    let acquire = async || node.post("/v1/limits/company/acquire", &json!({})).await;
    scratch.pause("eu", "only this account", "ann").await;
    until("the limit serves another channel", async || acquire().await.status == 200).await;
    let pause = Pause { reason: "the whole bank", who: "ann", lasts: Some(Duration::from_secs(20)) };
    scratch.store.pause("us", &pause).await.unwrap();
    // A permit whose answer came too late was spent, too, and nobody got it.
    let spent = "select count(*) from refundd.permits where caller is not null";
    let before = scratch.number(spent).await;
    // At the end of a window the limit may be used up; then nobody asks the ledger.
    until("the ledger refuses", async || {
        let refused = acquire().await;
        assert_ne!(refused.status, 200, "{refused:?}");
        refused.json()["type"] == "urn:refundd:problem:paused"
    })
    .await;
    // Once the node has read the pause, it names the earliest end.
    until("the end is named", async || {
        let refused = acquire().await;
        assert_ne!(refused.status, 200, "{refused:?}");
        refused.status == 503 && refused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 5
    })
    .await;
    assert_eq!(scratch.number(spent).await, before, "a refused request spends nothing");
    scratch.resume("us").await;
    until("permits are granted again", async || acquire().await.status == 200).await;
    node.stop().await;
}

#[tokio::test]
async fn a_person_stops_and_decides_although_the_file_has_a_secret_that_only_nodes_may_read_and_other_faults()
{
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", SHARED).await;
    scratch.insert("acme", "R-", 1).await;
    until("it is sent", async || scratch.count(State::Succeeded).await == 1).await;
    let faulty = format!("{SHARED}authorization_file = \"of-the-nodes\"\nmisspelt = 1\n");
    assert_eq!(run(&scratch, &faulty, &["check"]).0, Some(1));
    let well = |args: &[&str]| {
        let (code, said) = run(&scratch, &faulty, args);
        assert_eq!(code, Some(0), "{args:?}: {said}");
        said
    };
    well(&["pause", "--all", "--reason", "everything is wrong"]);
    scratch.insert("acme", "S-", 2).await;
    for (args, says) in [
        (&["status"][..], "Redis was not asked"),
        (&["status", "acme", "--json"], "Redis was not asked"),
        (&["log"], "everything is wrong"),
        (&["show", "R-1"], "succeeded"),
        (&["review"], ""),
        (&["cancel", "S-1", "--reason", "saved in error"], "1 cancelled"),
        (&["move", "S-2", "--from", "acme", "--to", "eu", "--reason", "another account"], "1 moved"),
        (&["migrate"], "The schema is at version"),
        (&["resume", "--all", "--reason", "it was a false alarm"], ""),
    ] {
        let said = well(args);
        assert!(said.contains(says), "{args:?}: {said}");
    }
    // A fault of the section itself still counts.
    let (code, said) = run(&scratch, &format!("{SHARED}[postgres.misspelt]\n"), &["status"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("misspelt"), "{said}");
    node.stop().await;
}
