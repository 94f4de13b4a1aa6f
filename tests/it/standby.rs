//! A standby that has not replayed everything: no command takes what it has for the whole.

use jiff::SignedDuration;
use playground::PrivatePostgres;
use serde_json::Value;

use crate::cli::{file, refundd, text};
use crate::clock_steps::{clocked, scratch_on};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, until};
use crate::prove::{json, prove};

/// A primary and a standby that replays nothing more, each with a scratch on one database.
struct Pair {
    primary: Scratch,
    standby: Scratch,
    follower: PrivatePostgres,
    // It ends when this is dropped.
    _leader: PrivatePostgres,
}

/// Two refunds of channel `acme` and one sealed line of the journal are on both servers, and a rule of limit `acme`.
async fn lagging(name: &str) -> Pair {
    let (leader, primary) = clocked(name).await;
    primary.publish("acme").await;
    primary
        .sql(&format!(
            "insert into refundd.limit_rules values ('acme', now() - interval '3 hours', '{RULE}', 'node-a')"
        ))
        .await;
    let follower = leader.add_standby().await.unwrap();
    let standby = scratch_on(&follower, name);
    primary.insert("acme", "R-", 2).await;
    send(&primary, 1).await;
    seal(&primary).await;
    until("the standby has the seal", async || standby.number(SEALS).await == 1).await;
    standby.sql("select pg_wal_replay_pause()").await;
    let state = "select pg_get_wal_replay_pause_state()";
    until("it replays nothing more", async || standby.text(state).await == "paused").await;
    Pair { primary, standby, follower, _leader: leader }
}

const RULE: &str = r#"{"algorithm":"fixed_window","permits":3,"per_us":1000000,"lateness_us":20000}"#;
const SEALS: &str = "select count(*) from refundd.seals";

/// Writes a send of a refund to the journal.
async fn send(scratch: &Scratch, refund: i64) {
    let line = format!(
        "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, code)
         values ({refund}, 'acme', 'send', 1, 1, 'a', now(), 'succeeded', 'succeeded')"
    );
    scratch.sql(&line).await;
}

async fn seal(scratch: &Scratch) {
    let before = scratch.number(SEALS).await;
    until("it is sealed", async || {
        scratch.store.seal_journal(1_000).await.unwrap();
        scratch.number(SEALS).await > before
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_on_a_standby_is_refused_because_it_may_lack_sends() {
    let pair = lagging("exported").await;
    send(&pair.primary, 2).await;
    let export = |scratch: &Scratch| {
        let config = file(&scratch.file("a", UNLIMITED));
        refundd(config.path(), &["export", "--channel", "acme", "--from", "1h"])
    };
    let refused = export(&pair.standby);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(refused.stdout.is_empty(), "{}", text(&refused));
    for words in ["nothing was exported", "is a standby", "Run the command on the primary"] {
        assert!(text(&refused).contains(words), "{words}: {}", text(&refused));
    }
    let whole = export(&pair.primary);
    assert!(whole.status.success(), "{}", text(&whole));
    assert!(text(&whole).contains("EUR: 2 sends of 2 refunds"), "{}", text(&whole));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_on_a_standby_ends_where_the_standby_ends() {
    let pair = lagging("proven").await;
    let too_many = "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
                    select 'acme', date_trunc('second', now()), n, 'shop', 'node-a' from generate_series(1, 4) n";
    pair.primary.sql(too_many).await;
    let broken = prove(&pair.primary, &["--limit", "acme"]);
    assert!(broken.status.code() == Some(1) && text(&broken).contains("broken"), "{}", text(&broken));

    let held = prove(&pair.standby, &["--limit", "acme", "--json"]);
    assert_eq!(held.status.code(), Some(0), "{}", text(&held));
    assert!(text(&held).contains("this Postgres is a standby"), "{}", text(&held));
    let page = json(&held);
    let limit = &page["limits"][0];
    let unproven: Vec<&Value> = limit["unproven"].as_array().unwrap().iter().collect();
    let [rest] = unproven[..] else { panic!("{page}") };
    assert_eq!((&rest["from"], &rest["to"]), (&limit["proven"]["to"], &page["to"]), "{page}");
    assert!(rest["why"].as_str().is_some_and(|why| why.contains("standby")), "{page}");

    let unseen = prove(&pair.standby, &["--limit", "acme", "--from", "1s"]);
    assert_eq!(unseen.status.code(), Some(1), "{}", text(&unseen));
    assert!(text(&unseen).contains("nothing can be said of this period"), "{}", text(&unseen));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_on_a_standby_is_proven_only_as_far_as_the_standby_is_fresh() {
    let pair = lagging("sealed").await;
    let fresh = prove(&pair.standby, &["--journal", "--json"]);
    assert_eq!(
        (fresh.status.code(), &json(&fresh)["verdict"]),
        (Some(0), &"whole".into()),
        "{}",
        text(&fresh)
    );

    send(&pair.primary, 2).await;
    seal(&pair.primary).await;
    let newest = "select encode(hash, 'hex') from refundd.seals order by number desc limit 1";
    let head = pair.primary.text(newest).await;
    let known = prove(&pair.primary, &["--journal", "--head", &head]);
    assert_eq!(known.status.code(), Some(0), "{}", text(&known));
    let lacks = prove(&pair.standby, &["--journal", "--head", &head]);
    assert_eq!(lacks.status.code(), Some(1), "{}", text(&lacks));
    assert!(text(&lacks).contains("unproven") && !text(&lacks).contains("broken"), "{}", text(&lacks));
    let advice = "is in no chain here: this standby may not have it yet; ask the primary";
    assert!(text(&lacks).contains(advice), "{}", text(&lacks));

    pair.follower.step_clock(SignedDuration::from_secs(600)).unwrap();
    let old = prove(&pair.standby, &["--journal"]);
    assert_eq!(old.status.code(), Some(1), "{}", text(&old));
    assert!(
        text(&old).contains("whole as far as it is sealed; this Postgres is a standby"),
        "{}",
        text(&old)
    );
}
