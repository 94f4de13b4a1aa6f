//! Refunds that move to another channel: each is paid once, by the bank of the channel that it is in, under a key of its own.
//! Judged by the ledgers of both banks.

mod repeated;
mod rights;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use playground::PretendBank;
use refundd::bucket::{End, Purpose};
use refundd::refund::{ChannelName, Refund, RefundId, State};
use refundd::store::Move;
use serde_json::json;

use crate::cli::{file, refundd, text};
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, depth, until};
use crate::prove::prove;

/// `globex` is at another bank.
const TWO_BANKS: &str = r#"
[limit.acme]
permits = 100
per = "1s"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = ["acme"]
max_in_flight = 50
timeout = "10s"
connect_timeout = "1s"
[channel.globex]
endpoint = "http://{other}/globex/refunds"
limits = []
timeout = "10s"
connect_timeout = "1s"
"#;

fn two_banks(other: &PretendBank) -> String {
    TWO_BANKS.replace("{other}", &other.address().to_string())
}

fn order(from: &str, to: &str) -> Move {
    Move { from: from.to_owned(), to: to.to_owned(), who: "ann".to_owned(), why: "a test".to_owned() }
}

/// Moves these refunds without a look at Redis, and answers those that moved.
async fn moved(scratch: &Scratch, ids: &[i64], from: &str, to: &str) -> Vec<Refund> {
    let ids: Vec<_> = ids.iter().map(|id| (RefundId(*id), None)).collect();
    scratch.store.move_never_sent(&ids, &order(from, to)).await.unwrap()
}

/// The key of each refund.
async fn keys(scratch: &Scratch) -> BTreeMap<String, String> {
    let all = "select json_object_agg(refund_ref, request_id)::text from refundd.refunds";
    serde_json::from_str(&scratch.text(all).await).unwrap()
}

/// The refunds that arrived at a bank, each as often as it did, with their keys.
fn arrived(bank: &PretendBank) -> Vec<(String, String)> {
    bank.look(|ledger| {
        let all = ledger.all().iter();
        all.map(|arrival| (arrival.refund_ref.to_string(), arrival.key.to_string())).collect()
    })
}

#[tokio::test]
async fn two_hundred_of_a_thousand_move_under_load_and_each_is_paid_once_by_its_bank() {
    let (scratch, other) = (Scratch::new().await, PretendBank::start_here().unwrap());
    let channels = two_banks(&other);
    let a = TestNode::start(&scratch, "a", &channels).await;
    let b = TestNode::start(&scratch, "b", &channels).await;
    scratch.insert("acme", "R-", 1_000).await;
    let before = keys(&scratch).await;
    until("the nodes send", async || scratch.bank.look(|l| l.all().len()) >= 50).await;
    // These are the last of the backlog. Two people move them at the same time.
    let mut refs = tempfile::NamedTempFile::new().unwrap();
    for n in 801..=1_000 {
        writeln!(refs, "R-{n}").unwrap();
    }
    let config = file(&scratch.file("person", &channels));
    let path = refs.path().to_str().unwrap();
    // In threads of their own, so that the nodes send meanwhile.
    let mover = || {
        let (config, path) = (config.path().to_owned(), path.to_owned());
        let args = move || {
            let args =
                ["move", "--from", "acme", "--to", "globex", "--file", &path, "--reason", "acme is slow"];
            refundd(&config, &args)
        };
        tokio::task::spawn_blocking(args)
    };
    let (one, two) = tokio::join!(mover(), mover());
    let outputs = [one.unwrap(), two.unwrap()];
    let said: Vec<String> = outputs.iter().map(text).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{said:?}");
    let counts =
        said.iter().map(|said| said.lines().find_map(|line| Some(line.split_once(" moved")?.0)).unwrap());
    assert_eq!(counts.map(|count| count.parse::<u32>().unwrap()).sum::<u32>(), 200, "{said:?}");

    until("all are paid", async || scratch.count(State::Succeeded).await == 1_000).await;
    a.stop().await;
    b.stop().await;
    let after = keys(&scratch).await;
    let expected = |is_moved: fn(u32) -> bool| -> BTreeSet<(String, String)> {
        let refs = (1..=1_000).filter(|n| is_moved(*n)).map(|n| format!("R-{n}"));
        refs.map(|name| (name.clone(), after[&name].clone())).collect()
    };
    for (bank, expected) in [(&scratch.bank, expected(|n| n <= 800)), (&other, expected(|n| n > 800))] {
        let arrived = arrived(bank);
        assert_eq!(arrived.len(), expected.len(), "each refund arrived once");
        assert_eq!(arrived.into_iter().collect::<BTreeSet<_>>(), expected);
        assert!(bank.ledger().doubled().is_empty());
    }
    let same = before.iter().filter(|(name, key)| after[*name] == **key).count();
    assert_eq!(same, 800, "a moved refund has a new key, and no other one has");
    // The journals of both channels are as they were written.
    while !scratch.store.seal_journal(1_000).await.unwrap().is_done {}
    let proof = prove(&scratch, &["--journal"]);
    assert_eq!(proof.status.code(), Some(0), "{}", text(&proof));
    for (channel, code) in [("acme", "moved_out"), ("globex", "moved_in")] {
        let lines =
            format!("select count(*) from refundd.attempts where channel = '{channel}' and code = '{code}'");
        assert_eq!(scratch.number(&lines).await, 200, "{channel}");
        let events =
            format!("select count(*) from refundd.events where channel = '{channel}' and kind = '{code}'");
        assert_eq!(scratch.number(&events).await, 200, "{channel}");
    }
}

#[tokio::test]
async fn an_id_that_still_waits_in_the_old_bucket_is_not_sent_there_and_spends_no_permit() {
    let (scratch, other) = (Scratch::new().await, PretendBank::start_here().unwrap());
    let node = TestNode::start(&scratch, "a", &two_banks(&other)).await;
    let order = async |path: &str| {
        let answer = node.post(path, &json!({ "reason": "a test", "by": "ann" })).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    };
    order("/v1/channels/acme/pause").await;
    order("/v1/channels/globex/pause").await;
    scratch.insert("acme", "R-", 10).await;
    let ids: Vec<i64> = (1..=9).collect();
    assert_eq!(moved(&scratch, &ids, "acme", "globex").await.len(), 9);
    // As if the list of the old channel had all of them already.
    let (bucket, acme) = (scratch.bucket(), ChannelName::new("acme").unwrap());
    let all: Vec<RefundId> = (1..=10).map(RefundId).collect();
    bucket.fill(&acme, &all, End::Front, 1_000).await.unwrap();
    assert_eq!(depth(&bucket, Purpose::Send, &acme).await, 10);
    order("/v1/channels/acme/resume").await;
    until("the old channel took all ids", async || depth(&bucket, Purpose::Send, &acme).await == 0).await;
    until("its own refund is paid", async || scratch.count(State::Succeeded).await == 1).await;
    let refs: Vec<String> = arrived(&scratch.bank).into_iter().map(|(name, _)| name).collect();
    assert_eq!((refs, other.ledger().all().len()), (vec!["R-10".to_owned()], 0));
    // A permit that closed before the first byte left was spent, too.
    let used = "select count(*) - (select count(*) from refundd.attempts where code = 'permit_lapsed') from refundd.permits where limit_name = 'acme'";
    assert_eq!(scratch.number(used).await, 1);
    order("/v1/channels/globex/resume").await;
    until("the other bank has the others", async || scratch.count(State::Succeeded).await == 10).await;
    assert_eq!((scratch.bank.ledger().all().len(), other.ledger().all().len()), (1, 9));
    node.stop().await;
}

#[tokio::test]
async fn two_moves_at_once_move_each_refund_once() {
    let scratch = Scratch::with_refunds(500).await;
    scratch.publish("globex").await;
    scratch.publish("initech").await;
    let up: Vec<i64> = (1..=500).collect();
    let down: Vec<i64> = up.iter().rev().copied().collect();
    let (a, b) =
        tokio::join!(moved(&scratch, &up, "acme", "globex"), moved(&scratch, &down, "acme", "initech"));
    assert_eq!(a.len() + b.len(), 500);
    assert_eq!(scratch.number("select count(*) from refundd.refunds where version = 2").await, 500);
    assert_eq!(scratch.number("select count(*) from refundd.attempts where code = 'moved_out'").await, 500);
    assert_eq!(scratch.number("select count(distinct request_id) from refundd.refunds").await, 500);
}

#[tokio::test]
async fn a_move_back_mints_a_third_key_and_a_repeated_save_names_either_channel() {
    let (scratch, other) = (Scratch::new().await, PretendBank::start_here().unwrap());
    let node = TestNode::start(&scratch, "a", &two_banks(&other)).await;
    for channel in ["acme", "globex"] {
        scratch.pause(channel, "so that nothing is sent", "test").await;
    }
    let saved = node.post("/v1/refunds", &refund("R-1", "acme")).await.json();
    let mut seen = BTreeSet::from([saved["request_id"].to_string()]);
    for (from, to, version) in [("acme", "globex", 2), ("globex", "acme", 3), ("acme", "globex", 4)] {
        let moved = moved(&scratch, &[1], from, to).await;
        assert_eq!((moved.len(), moved[0].version, &*moved[0].channel), (1, version, to));
        assert!(seen.insert(json!(moved[0].request_id).to_string()), "a key that it had before");
        for channel in ["acme", to] {
            let again = node.post("/v1/refunds", &refund("R-1", channel)).await;
            assert_eq!((again.status.as_u16(), &again.json()["channel"]), (200, &json!(to)), "{again:?}");
        }
    }
    let enqueued = "select id from refundd.enqueue('R-1', 'acme', 'P-1', 1250, 'EUR') where not created";
    assert_eq!(scratch.number(enqueued).await, 1);
    assert_eq!(moved(&scratch, &[1], "globex", "acme").await.len(), 1);
    // Back where it was saved, it is no refund of the other channel.
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "globex")).await.status, 409);
    node.stop().await;
}

#[tokio::test]
async fn harmless_attempts_stay_in_the_journal_of_the_old_channel_and_no_other_refund_moves() {
    let scratch = Scratch::with_refunds(8).await;
    scratch.publish("globex").await;
    let line = |id: i64, kind: &str, started: &str, outcome: &str| {
        format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, moved_to)
             values ({id}, 'acme', '{kind}', 1, 1, 'a#1', {started}, '{outcome}', 'ready')"
        )
    };
    // 1: no byte left. The others may have been sent, also where only the journal says so, as with very old nodes.
    scratch.sql("update refundd.refunds set lease_epoch = 1, attempts = 1 where id between 1 and 5").await;
    scratch.sql("update refundd.refunds set due_at = now() + interval '1 hour' where id = 1").await;
    scratch.sql(&line(1, "send", "null", "not_executed")).await;
    scratch.sql(&line(2, "send", "now()", "not_executed")).await;
    scratch.sql(&line(3, "send", "null", "unknown")).await;
    scratch.sql(&line(4, "inquiry", "null", "not_executed")).await;
    scratch.sql("update refundd.refunds set first_sent_at = now() where id = 5").await;
    scratch.to_review("id = 6").await;
    scratch.sql("update refundd.refunds set deadline_at = now() - interval '1 second' where id = 7").await;
    scratch.sql("update refundd.refunds set due_at = now() + interval '1 hour' where id = 8").await;

    let ids: Vec<i64> = (1..=8).collect();
    let went: Vec<i64> =
        moved(&scratch, &ids, "acme", "globex").await.iter().map(|refund| refund.id.0).collect();
    assert_eq!(went.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 8]));
    let lines = "select string_agg(concat_ws('|', channel, kind, number, node, outcome, code, message), ' ' order by id)
                   from refundd.attempts where refund_id = 1";
    assert_eq!(
        scratch.text(lines).await,
        "acme|send|1|a#1|not_executed acme|manual|1|ann|decided|moved_out|to globex: a test \
         globex|manual|1|ann|decided|moved_in|from acme: a test"
    );
    // The wait for a retry was one of the old bank. The producer's own due time stays.
    let due = "select string_agg(id || ' ' || (due_at > now()) || ' ' || attempts, ', ' order by id) from refundd.refunds where channel = 'globex'";
    assert_eq!(scratch.text(due).await, "1 false 0, 8 true 0");
    // A person's decision sends it again only where it was sent before.
    scratch.decide(RefundId(6), State::Ready, "it never arrived", "ann").await;
    assert_eq!(moved(&scratch, &[6], "acme", "globex").await.len(), 0);
    let event = scratch.text("select who || ' ' || reason || ' ' || (before ->> 'channel') || ' ' || (after ->> 'channel') from refundd.events where refund_id = 1 and kind = 'moved_out'").await;
    assert_eq!(event, "ann a test acme globex");
}

#[tokio::test]
async fn a_move_keeps_to_the_other_channels_bounds_also_when_two_are_made_at_once() {
    let scratch = Scratch::with_refunds(20).await;
    scratch.publish("globex").await;
    scratch.sql("update refundd.channels set max_backlog = 7, settings = '{\"max_amount_minor\": {\"EUR\": 115}}' where channel = 'globex'").await;
    let ids: Vec<i64> = (1..=20).collect();
    let (a, b) =
        tokio::join!(moved(&scratch, &ids, "acme", "globex"), moved(&scratch, &ids, "acme", "globex"));
    assert_eq!(a.len() + b.len(), 7);
    scratch.sql("update refundd.channels set max_backlog = null where channel = 'globex'").await;
    moved(&scratch, &ids, "acme", "globex").await;
    let most = "select max(amount_minor) from refundd.refunds where channel = 'globex'";
    assert_eq!(
        (
            scratch.number(most).await,
            scratch.number("select count(*) from refundd.refunds where channel = 'globex'").await
        ),
        (115, 15)
    );
    // What looks like a card number is refused where a save would refuse it.
    scratch.sql("update refundd.channels set settings = '{\"card_numbers\": \"accepted\"}' where channel = 'acme'").await;
    scratch.sql("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency) values ('4111111111111111', 'acme', 'P', 1, 'EUR')").await;
    let id = scratch.number("select max(id) from refundd.refunds").await;
    assert_eq!(moved(&scratch, &[id], "acme", "globex").await.len(), 0);
    scratch.sql("update refundd.channels set settings = '{\"card_numbers\": \"accepted\"}' where channel = 'globex'").await;
    assert_eq!(moved(&scratch, &[id], "acme", "globex").await.len(), 1);
    // And a channel that no node runs takes none.
    scratch.sql("update refundd.channels set retired_at = now() where channel = 'acme'").await;
    for to in ["acme", "nowhere", "globex"] {
        let refused = scratch.store.move_never_sent(&[(RefundId(1), None)], &order("globex", to)).await;
        assert!(refused.is_err(), "to {to}");
    }
}
