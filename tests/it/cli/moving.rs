//! `refundd move`: many refunds at once, of which no byte ever left.

use std::io::Write;

use refundd::bucket::Purpose;
use refundd::refund::{ChannelName, State};

use super::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, depth, until};

/// Refunds `R-1` to `R-8` of channel `acme`. `R-5` was sent before and not executed, `R-6` is being sent, `R-7` is in review, and
/// `R-8` is past its deadline. `globex` takes 103 EUR cents at most.
async fn scratch() -> Scratch {
    let scratch = Scratch::with_refunds(8).await;
    scratch.publish("globex").await;
    scratch.sql("update refundd.channels set settings = '{\"max_amount_minor\": {\"EUR\": 103}}' where channel = 'globex'").await;
    scratch.sql("update refundd.refunds set first_sent_at = now(), attempts = 1 where id = 5").await;
    scratch.lease("id = 6", "attempts = 1").await;
    scratch.to_review("id = 7").await;
    scratch.sql("update refundd.refunds set deadline_at = now() - interval '1 second' where id = 8").await;
    scratch
}

async fn moved(scratch: &Scratch) -> String {
    let ids = "select coalesce(string_agg(id::text, ' ' order by id), '') from refundd.refunds where channel = 'globex'";
    scratch.text(ids).await
}

const TO_GLOBEX: [&str; 5] = ["move", "--from", "acme", "--to", "globex"];

#[tokio::test]
async fn named_refunds_move_and_each_one_that_stays_is_named_with_its_reason() {
    let scratch = scratch().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let run = |args: &[&str]| refundd(config.path(), &[&TO_GLOBEX[..], args].concat());
    let dry = run(&["R-1", "R-2", "R-6", "--dry-run"]);
    assert!(text(&dry).contains("2 would be moved, 1 stays"), "{}", text(&dry));
    assert_eq!((dry.status.code(), moved(&scratch).await.as_str()), (Some(1), ""));

    let all = ["R-1", "R-2", "R-4", "R-5", "R-6", "R-7", "R-8", "R-9", "--reason", "acme is down"];
    let output = run(&all);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in [
        "2 moved, 5 stay, 1 not found",
        "EUR: 2 refunds, 203 in minor units",
        "R-4: channel `globex` does not take 1.04 EUR",
        "R-5: it was sent before",
        "R-6: it is sending, so it may have been sent",
        "R-7: it is in review; decide it: refundd review show 7",
        "R-8: its deadline has passed",
        "R-9: there is no such refund",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(moved(&scratch).await, "1 2");
    assert_eq!(
        scratch.text("select reason from refundd.refunds where id = 1").await,
        "moved by ann: acme is down"
    );
    let log = text(&refundd(config.path(), &["log", "globex"]));
    assert!(log.contains("moved_in") && log.contains("acme is down"), "{log}");
    let shown = text(&refundd(config.path(), &["show", "R-1"]));
    assert!(shown.contains("saved for channel `acme`"), "{shown}");
    assert!(shown.contains("ann moved it from acme to globex: acme is down"), "{shown}");
    // Repeating is safe, and writes no second line.
    let again = run(&["R-1", "R-2", "R-3", "--reason", "again", "--dry-run"]);
    assert!(again.status.success(), "{}", text(&again));
    for words in
        ["1 would be moved, 2 were in channel globex before\n", "R-1: it was in channel globex before"]
    {
        assert!(text(&again).contains(words), "{words}: {}", text(&again));
    }
    let again = run(&["R-1", "--reason", "again"]);
    assert!(text(&again).contains("0 moved, 1 was in channel globex before\n"), "{}", text(&again));
    assert_eq!(scratch.number("select count(*) from refundd.attempts where code = 'moved_out'").await, 2);
    // One in a third channel stays there.
    scratch.publish("initech").await;
    let third =
        refundd(config.path(), &["move", "--from", "acme", "--to", "initech", "R-1", "--reason", "x"]);
    assert!(text(&third).contains("R-1: it is in channel `globex`, and not in `acme`"), "{}", text(&third));
}

#[tokio::test]
async fn a_whole_channel_moves_only_when_somebody_says_so_and_as_far_as_there_is_room() {
    let scratch = scratch().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let run = |args: &[&str]| refundd(config.path(), &[&TO_GLOBEX[..], args].concat());
    let dry = run(&["--dry-run"]);
    for words in [
        "EUR: 3 refunds, 306 in minor units = 3.06 EUR in all, would be moved",
        "EUR: 1 refund, 104 in minor units = 1.04 EUR in all, stays: above what channel `globex` takes (max_amount_minor)",
        "EUR: 1 refund, 105 in minor units = 1.05 EUR in all, stays: sent before",
        "EUR: 1 refund, 108 in minor units = 1.08 EUR in all, stays: past the deadline",
        "R-6: it is sending",
        "R-7: it is in review",
    ] {
        assert!(dry.status.success() && text(&dry).contains(words), "{words}: {}", text(&dry));
    }
    let unconfirmed = run(&["--reason", "acme is down"]);
    assert_eq!(unconfirmed.status.code(), Some(1), "{}", text(&unconfirmed));
    assert!(
        text(&unconfirmed).contains("--yes") && moved(&scratch).await.is_empty(),
        "{}",
        text(&unconfirmed)
    );

    scratch.sql("update refundd.channels set max_backlog = 2 where channel = 'globex'").await;
    let full = run(&["--reason", "acme is down", "--yes"]);
    assert_eq!(full.status.code(), Some(1), "{}", text(&full));
    assert!(text(&full).contains("2 moved") && text(&full).contains("max_backlog"), "{}", text(&full));
    let named = run(&["R-1", "R-2", "R-3", "--reason", "x"]);
    assert!(text(&named).contains("R-3: channel `globex` has as many refunds waiting"), "{}", text(&named));
    scratch.sql("update refundd.channels set max_backlog = null where channel = 'globex'").await;
    let done = run(&["--reason", "acme is down", "--yes"]);
    let said = text(&done);
    assert!(
        done.status.success() && said.contains("1 moved\n") && said.contains("R-5: it was sent"),
        "{said}"
    );
    assert_eq!(moved(&scratch).await, "1 2 3");
    let again = run(&["--reason", "x", "--yes"]);
    assert!(again.status.success() && text(&again).contains("Nothing was changed"), "{}", text(&again));
}

#[tokio::test]
async fn a_whole_channel_is_changed_only_with_the_totals_that_the_dry_run_showed() {
    for (command, can_be, done) in [
        (&TO_GLOBEX[..], "can be moved", "4 moved\n"),
        (&["cancel", "--channel", "acme"][..], "can be cancelled", "6 cancelled\n"),
    ] {
        let scratch = scratch().await;
        let config = file(&scratch.file("a", UNLIMITED));
        let run = |args: &[&str]| refundd(config.path(), &[command, args].concat());
        let dry = text(&run(&["--dry-run"]));
        let (_, shown) = dry.split_once("--expect ").unwrap_or_else(|| panic!("{dry}"));
        let (shown, _) = shown.split_once('\n').unwrap();
        scratch.insert("acme", "N-", 1).await;
        let expecting = |totals: &str| run(&["--reason", "acme is down", "--yes", "--expect", totals]);
        let changed = expecting(shown);
        let said = text(&changed);
        assert_eq!(changed.status.code(), Some(1), "{said}");
        for words in [format!("the part of channel acme that {can_be} has "), ": +101".to_owned()] {
            assert!(said.contains(&words) && said.contains("Nothing was changed"), "{words}: {said}");
        }
        assert_eq!(run(&["--dry-run", "--expect", shown]).status.code(), Some(1));
        assert_eq!(scratch.number("select count(*) from refundd.attempts where kind = 'manual'").await, 0);

        let dry = text(&run(&["--dry-run"]));
        let (_, shown) = dry.split_once("--expect ").unwrap();
        let all = expecting(shown.split_once('\n').unwrap().0);
        assert!(all.status.success() && text(&all).contains(done), "{}", text(&all));
    }
    let scratch = scratch().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let args = [&TO_GLOBEX[..], &["R-1", "--reason", "x", "--expect", "count=1"]].concat();
    let refs = refundd(config.path(), &args);
    assert!(text(&refs).contains("--expect goes with a whole channel"), "{}", text(&refs));
    assert_eq!(moved(&scratch).await, "");
}

#[tokio::test]
async fn a_channel_moves_whole_or_fails_where_nodes_of_the_other_channel_make_room_meanwhile() {
    let scratch = Scratch::with_refunds(60).await;
    scratch.publish("globex").await;
    scratch.sql("update refundd.channels set max_backlog = 7 where channel = 'globex'").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let ended = tokio_util::sync::CancellationToken::new();
    let sends = async {
        while !ended.is_cancelled() {
            // One at a time, as a node with one request at a time does.
            scratch
                .sql(
                    "update refundd.refunds set state = 'cancelled', settled_at = now()
                      where id = (select min(id) from refundd.refunds where channel = 'globex' and state = 'ready')",
                )
                .await;
        }
    };
    let moves = async {
        let args = [&TO_GLOBEX[..], &["--reason", "acme is down", "--yes"]].concat();
        let path = config.path().to_owned();
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let run = move || refundd(&path, &args.iter().map(String::as_str).collect::<Vec<_>>());
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        ended.cancel();
        output
    };
    let (output, ()) = tokio::join!(moves, sends);
    let left = scratch.number("select count(*) from refundd.refunds where channel = 'acme'").await;
    let said = text(&output);
    assert_eq!(output.status.success(), left == 0, "{left} are left: {said}");
    assert!(left == 0 || said.contains("max_backlog"), "{said}");
}

#[tokio::test]
async fn what_a_command_line_lacks_or_names_wrongly_is_named() {
    let scratch = scratch().await;
    let config = file(&scratch.file("a", UNLIMITED));
    scratch.publish("gone").await;
    scratch.sql("update refundd.channels set retired_at = now() where channel = 'gone'").await;
    for args in [
        &["move", "--to", "globex", "R-1", "--reason", "x"][..],
        &["move", "--from", "acme", "R-1", "--reason", "x"],
        &["move", "--from", "acme", "--to", "globex", "R-1"],
        &["move", "--from", "acme", "--to", "globex", "R-1", "--file", "x", "--reason", "x"],
    ] {
        assert_eq!(refundd(config.path(), args).status.code(), Some(2), "{args:?}");
    }
    for (from, to, words) in [
        ("acme", "acme", "--from and --to both name"),
        ("acme", "amce", "--to"),
        ("amce", "globex", "--from"),
        ("acme", "gone", "no node runs"),
    ] {
        for dry in [&["--dry-run"][..], &["--reason", "x"]] {
            let args = [&["move", "--from", from, "--to", to, "R-1"][..], dry].concat();
            let output = refundd(config.path(), &args);
            assert!(
                output.status.code() == Some(1) && text(&output).contains(words),
                "{args:?}: {}",
                text(&output)
            );
        }
    }
    for reason in [" ", "4111 1111 1111 1111", "a\u{202e}b"] {
        let output = refundd(config.path(), &[&TO_GLOBEX[..], &["R-1", "--reason", reason]].concat());
        assert!(text(&output).contains("--reason") && text(&output).contains("nothing was changed"));
    }
    assert_eq!(moved(&scratch).await, "");
}

#[tokio::test]
async fn moved_refunds_leave_their_bucket_and_go_out_through_the_other_channel() {
    let scratch = Scratch::new().await;
    // A permit in an hour: the others wait in the bucket.
    let slow =
        UNLIMITED.replace("limits = []", "limits = [\"slow\"]") + "[limit.slow]\npermits = 1\nper = \"1h\"\n";
    let both = format!("{slow}{}", UNLIMITED.replace("acme", "globex"));
    let node = TestNode::start(&scratch, "a", &both).await;
    scratch.insert("acme", "R-", 50).await;
    let (bucket, acme) = (scratch.bucket(), ChannelName::new("acme").unwrap());
    until("they wait in the bucket", async || {
        scratch.count(State::Succeeded).await == 1 && depth(&bucket, Purpose::Send, &acme).await == 49
    })
    .await;
    let mut refs = tempfile::NamedTempFile::new().unwrap();
    write!(refs, "R-2\r\n\n  R-3 \nR-2\n").unwrap();
    let config = file(&scratch.file("a", &both));
    let path = refs.path().to_str().unwrap();
    let some =
        refundd(config.path(), &[&TO_GLOBEX[..], &["--file", path, "--reason", "x", "--by", "bob"]].concat());
    assert!(some.status.success() && text(&some).contains("2 moved\n"), "{}", text(&some));
    let rest = refundd(config.path(), &[&TO_GLOBEX[..], &["--reason", "x", "--yes"]].concat());
    assert!(rest.status.success() && text(&rest).contains("47 moved\n"), "{}", text(&rest));
    until("the bucket is empty", async || depth(&bucket, Purpose::Send, &acme).await == 0).await;
    until("all are paid", async || scratch.count(State::Succeeded).await == 50).await;
    assert_eq!(scratch.bank.look(|l| (l.arrivals("acme").count(), l.arrivals("globex").count())), (1, 49));
    node.stop().await;
}
