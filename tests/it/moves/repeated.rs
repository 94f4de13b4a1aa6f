//! Moves that are repeated after somebody moved the refund back: a version that the mover saw keeps the refund where it is.

use std::io::Write;

use refundd::refund::RefundId;
use serde_json::{Value, json};
use sqlx::Executor;

use super::{moved, order};
use crate::callers::TWO_CHANNELS;
use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

async fn places(scratch: &Scratch) -> String {
    let all =
        "select string_agg(channel || ' ' || version, ', ' order by id) from refundd.refunds where id <= 3";
    scratch.text(all).await
}

#[tokio::test]
async fn a_repeated_request_undoes_nobodys_move_back_if_it_names_the_version_that_was_seen() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", TWO_CHANNELS).await;
    for channel in ["acme", "other"] {
        scratch.pause(channel, "so that nothing is sent", "test").await;
    }
    scratch.insert("acme", "R-", 2).await;
    let path = "/v1/channels/acme/move";
    let dry = json!({ "to": "other", "refund_refs": ["R-1"], "dry_run": true });
    let dry = node.post(path, &dry).await.json()["results"][0].clone();
    assert_eq!((&dry["result"], &dry["version"]), (&json!("would_move"), &json!(1)), "{dry}");
    let order = |version: i32| {
        let refunds = json!([{ "refund_ref": "R-1", "version": version }]);
        json!({ "to": "other", "refunds": refunds, "reason": "acme is down", "by": "ann" })
    };
    let result = async |version: i32| -> Value {
        let answer = node.post(path, &order(version)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["results"][0].clone()
    };
    assert_eq!(result(1).await["result"], "moved");
    // Nothing happened since, so the repeat is done.
    assert_eq!(result(1).await["result"], "is_there");
    assert_eq!(places(&scratch).await, "other 2, acme 1");

    assert_eq!(moved(&scratch, &[1], "other", "acme").await.len(), 1);
    let mut dry = order(1);
    dry["dry_run"] = json!(true);
    for repeat in [result(1).await, node.post(path, &dry).await.json()["results"][0].clone()] {
        assert_eq!((&repeat["result"], &repeat["why"]), (&json!("stays"), &json!("changed")), "{repeat}");
        assert_eq!((&repeat["state"], &repeat["version"]), (&json!("ready"), &json!(3)), "{repeat}");
        let message = repeat["message"].as_str().unwrap();
        assert!(message.contains("in channel `acme` at version 3 now; look at it again"), "{message}");
    }
    assert_eq!(places(&scratch).await, "acme 3, acme 1");
    // Who looked at it again moves it all the same.
    assert_eq!(result(3).await["result"], "moved");
    // In a third channel it stays there.
    scratch.publish("spare").await;
    assert_eq!(moved(&scratch, &[1], "other", "spare").await.len(), 1);
    let third = result(3).await;
    assert_eq!(third["why"], "other_channel", "{third}");
    assert!(third["message"].as_str().unwrap().contains("`spare`"), "{third}");
    assert_eq!(places(&scratch).await, "spare 5, acme 1");

    // A request that names no version moves it whatever happened, as before.
    assert_eq!(moved(&scratch, &[1], "spare", "acme").await.len(), 1);
    let any = json!({ "to": "other", "refund_refs": ["R-1"], "reason": "acme is down", "by": "ann" });
    assert_eq!(node.post(path, &any).await.json()["moved"], json!(1));
    node.stop().await;
}

#[tokio::test]
async fn a_repeated_command_undoes_nobodys_move_back_if_it_names_the_version_that_was_seen() {
    let scratch = Scratch::with_refunds(2).await;
    scratch.publish("globex").await;
    // A ref may end as a version does.
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             values ('R-9@1', 'acme', 'P-9', 5, 'EUR')",
        )
        .await;
    let config = file(&scratch.file("a", UNLIMITED));
    let run = |args: &[&str]| {
        let command = ["move", "--from", "acme", "--to", "globex", "--reason", "acme is down"];
        let output = refundd(config.path(), &[&command[..], args].concat());
        (output.status.code(), text(&output))
    };
    for words in ["1 moved\n", "0 moved, 1 was in channel globex before\n"] {
        let (code, said) = run(&["R-1@1"]);
        assert!(code == Some(0) && said.contains(words), "{words}: {said}");
    }
    assert_eq!(moved(&scratch, &[1], "globex", "acme").await.len(), 1);
    let (code, said) = run(&["R-1@1", "R-2"]);
    assert_eq!(code, Some(1), "{said}");
    for words in
        ["1 moved, 1 stays\n", "R-1: it has changed since that version", "in channel `acme` at version 3"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(places(&scratch).await, "acme 3, globex 2, acme 1");
    for other in ["R-1", "R-1@1"] {
        let (code, said) = run(&["R-1@3", other]);
        assert!(code == Some(1) && said.contains("`R-1` is named with two versions"), "{said}");
    }
    let (code, said) = run(&["R-1@3", "R-9@1", "R-1@3"]);
    assert!(code == Some(0) && said.contains("2 moved\n"), "{said}");
    assert_eq!(places(&scratch).await, "globex 4, globex 2, globex 2");

    // Two refunds can be meant, and in a file the whole line is a ref first.
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             values ('R-9', 'acme', 'P-9', 5, 'EUR')",
        )
        .await;
    let (code, said) = run(&["R-9@1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is the ref of a refund, and also names version 1"), "{said}");
    let mut refs = tempfile::NamedTempFile::new().unwrap();
    writeln!(refs, "R-9@1").unwrap();
    let (code, said) = run(&["--file", refs.path().to_str().unwrap()]);
    assert!(code == Some(0) && said.contains("1 was in channel globex before"), "{said}");
}

#[tokio::test]
async fn a_refund_that_moves_away_and_back_while_a_move_waits_for_it_stays() {
    let scratch = Scratch::with_refunds(3).await;
    scratch.publish("globex").await;
    let mut other = scratch.connect().await;
    other.execute("begin").await.unwrap();
    // As a node of the last version calls it.
    for (from, to) in [("acme", "globex"), ("globex", "acme")] {
        let call =
            format!("select count(*) from refundd.move(array[1::bigint], '{from}', '{to}', 'a test', 'bob')");
        let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(call)).fetch_one(&mut other).await.unwrap();
        assert_eq!(count, 1);
    }
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let named = [(RefundId(1), Some(1)), (RefundId(2), Some(1)), (RefundId(3), None)];
    let order = order("acme", "globex");
    let (gone, ()) = tokio::join!(scratch.store.move_never_sent(&named, &order), async {
        until("the move waits for the refund", async || scratch.number(waits).await > 0).await;
        other.execute("commit").await.unwrap();
    });
    let mut gone: Vec<RefundId> = gone.unwrap().iter().map(|refund| refund.id).collect();
    gone.sort_unstable();
    assert_eq!(gone, [RefundId(2), RefundId(3)]);
    assert_eq!(places(&scratch).await, "acme 3, globex 2, globex 2");
    // At another version than the one that was seen nothing moves, and nothing is written.
    let stale = scratch.store.move_never_sent(&[(RefundId(1), Some(1))], &order).await.unwrap();
    assert!(stale.is_empty());
    assert_eq!(scratch.number("select count(*) from refundd.attempts where code = 'moved_out'").await, 4);
}

#[tokio::test]
async fn a_move_whose_versions_do_not_fit_to_its_refunds_moves_nothing() {
    let scratch = Scratch::with_refunds(2).await;
    scratch.publish("globex").await;
    let call = |refunds: &str, seen: &str| {
        format!(
            "select count(*) from refundd.move('{refunds}'::bigint[], 'acme', 'globex', 'a test', 'bob', '{seen}'::integer[])"
        )
    };
    for (refunds, seen) in [
        ("{1,2}", "{1}"),
        ("{1,2}", "{}"),
        ("{1}", "{1,1}"),
        ("{1,2}", "[0:1]={1,1}"),
        ("{1,1}", "{1,2}"),
        ("{1,1}", "{1,null}"),
    ] {
        let error = scratch.sql_error(&call(refunds, seen)).await.to_string();
        assert!(error.contains("needs one entry of its own in `seen`"), "{refunds} {seen}: {error}");
    }
    assert_eq!(places(&scratch).await, "acme 1, acme 1");
    assert_eq!(scratch.number(&call("{1,2}", "{1,null}")).await, 2);
}
