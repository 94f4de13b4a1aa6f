//! A real Redis Cluster of three masters: what is counted together stays together, slots move under load,
//! and a master is lost; by the bank's ledger.

mod gone;
mod load;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use playground::{RedisCluster, RedisOptions};
use refundd::bucket::Purpose;
use refundd::refund::{ChannelName, State};
use rustix::process::Signal;
use serde_json::json;

use crate::alarms::watch::Watch;
use crate::faults::{PERMITS, algorithms, channels};
use crate::harness::{Scratch, TestNode, until};
use load::Load;

const SECOND: Duration = Duration::from_secs(1);

fn signal(redis: &RedisCluster, master: usize, signal: Signal) {
    let pid = i32::try_from(redis.server(master).pid()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn channel(name: &str, limits: &str) -> String {
    format!(
        "[channel.{name}]\nendpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = {limits}\ntimeout = \"2s\"\n\
         connect_timeout = \"1s\"\n"
    )
}

fn limit(name: &str, permits: u32) -> String {
    format!("[limit.{name}]\npermits = {permits}\nper = \"1s\"\nlateness = \"100ms\"\n")
}

#[tokio::test]
async fn channels_spread_over_all_masters_and_every_refund_is_sent_once() {
    let redis = RedisCluster::start(&RedisOptions::default()).await.unwrap_or_else(|error| panic!("{error}"));
    let scratch = Scratch::with_redis(redis.url()).await;
    let names: Vec<String> = (0..12).map(|nth| format!("c{nth}")).collect();
    let file: String = names
        .iter()
        .enumerate()
        .map(|(nth, name)| match nth % 3 {
            0 => channel(name, "[]"),
            _ => limit(name, 25) + &channel(name, &format!("[\"{name}\"]")),
        })
        .collect();
    let mut masters = BTreeSet::new();
    for name in &names {
        masters.insert(redis.owner(redis.slot_of(name).await.unwrap()).await.unwrap());
    }
    assert_eq!(masters.len(), 3, "each master has a channel");
    let (a, b) = (TestNode::start(&scratch, "a", &file).await, TestNode::start(&scratch, "b", &file).await);
    for name in &names {
        scratch.insert(name, &format!("{name}-"), 100).await;
    }
    let all = 12 * 100;
    assert!(
        scratch.bank.until(Duration::from_mins(1), |l| l.all().len() == all).await,
        "{:?}",
        scratch.counts().await
    );
    assert!(scratch.bank.ledger().repeated().is_empty());
    for name in names.iter().enumerate().filter(|(nth, _)| nth % 3 != 0).map(|(_, name)| name) {
        let worst = scratch.bank.look(|l| l.worst_aligned_window(name, SECOND).map_or(0, |w| w.count));
        assert!(worst <= 25, "{name}: {worst}");
    }
    for master in 0..3 {
        assert!(!redis.keys(master).await.unwrap().is_empty(), "master {master} does its part");
    }
    until("no Redis is away", async || {
        let health = a.get("/health/ready").await;
        health.status == 200 && !health.text.contains("degraded")
    })
    .await;
    a.stop().await;
    b.stop().await;
    assert_eq!(scratch.count(State::Succeeded).await, i64::try_from(all).unwrap());
    redis.stop().await.unwrap();
}

#[tokio::test]
async fn channels_and_outside_callers_that_share_a_limit_count_it_together() {
    let redis = RedisCluster::start(&RedisOptions::default()).await.unwrap_or_else(|error| panic!("{error}"));
    let scratch = Scratch::with_redis(redis.url()).await;
    // Through `second` the two limits are one slot group, whose slot is that of `every`.
    let file = limit("shared", 30)
        + &limit("every", 10_000)
        + &channel("first", "[\"shared\"]")
        + &channel("second", "[\"shared\", \"every\"]");
    let (a, b) = (TestNode::start(&scratch, "a", &file).await, TestNode::start(&scratch, "b", &file).await);
    let slot = redis.slot_of("every").await.unwrap();
    let far = async |tag: &str| redis.owner(redis.slot_of(tag).await.unwrap()).await;
    assert_ne!(far("every").await, far("shared").await, "by its own name it would be on another master");
    for name in ["first", "second"] {
        scratch.insert(name, &format!("{name}-"), 100).await;
    }
    let (mut acquired, mut late) = (0, 0);
    until("all are sent", async || {
        let answer = a.post("/v1/limits/shared/acquire", &json!({ "permits": 2 })).await;
        acquired += if answer.status == 200 { 2 } else { 0 };
        // Permits that the ledger took too late are handed to nobody, and stay in the ledger.
        late += if answer.text.contains("the ledger was slower") { 2 } else { 0 };
        scratch.bank.look(|l| l.all().len()) == 200
    })
    .await;
    assert!(acquired > 0, "outside callers get their part");
    let times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|arrival| arrival.at_us).collect());
    let outside = "select window_us, count(*) as n from (select (extract(epoch from window_start) * 1000000)::bigint
         as window_us from refundd.permits where limit_name = 'shared' and refund_id is null) p group by window_us";
    let mut connection = scratch.connect().await;
    let outside: Vec<(i64, i64)> = sqlx::query_as(outside).fetch_all(&mut connection).await.unwrap();
    assert_eq!(outside.iter().map(|(_, n)| n).sum::<i64>(), acquired + late);
    let mut windows: std::collections::BTreeMap<i64, i64> = outside.into_iter().collect();
    for at in times {
        *windows.entry(at - at % 1_000_000).or_default() += 1;
    }
    assert!(windows.values().all(|spent| *spent <= 30), "no more than a window has: {windows:?}");
    assert!(scratch.bank.ledger().repeated().is_empty());
    let owner = redis.owner(slot).await.unwrap();
    for master in 0..3 {
        let keys = redis.keys(master).await.unwrap();
        assert_eq!(keys.is_empty(), master != owner, "one slot group, one master: {keys:?}");
    }
    a.stop().await;
    b.stop().await;
    redis.stop().await.unwrap();
}

#[tokio::test]
async fn slots_that_move_to_and_fro_under_load_break_no_limit_of_any_kind() {
    let load = Load::start(&RedisOptions::default(), 1500).await;
    for round in 0..3 {
        for (name, _) in algorithms() {
            println!("round {round}, {}", load.move_on(name).await);
        }
    }
    assert!(algorithms().iter().all(|(name, _)| load.sent(name) < load.saved), "load during all moves");
    load.drain().await;
    load.end(&[]).await;
}

#[tokio::test]
async fn a_slot_that_moves_to_a_master_with_another_clock_breaks_no_limit_of_any_kind() {
    let load = Load::start(&RedisOptions { clock: true, ..RedisOptions::default() }, Load::PLENTY).await;
    for (master, by_ms) in [(0, 640), (1, -570)] {
        load.redis.step_clock(master, SignedDuration::from_millis(by_ms)).await.unwrap();
        load.until_all_send().await;
    }
    for round in 0..3 {
        for (name, _) in algorithms() {
            println!("round {round}, to another clock, {}", load.move_on(name).await);
        }
    }
    // The windows of a master's clock are not the bank's: there the numbers are judged.
    let scratch = load.end(&["fixed_window"]).await;
    let fullest = "select max(n) from (select greatest(count(*), max(ordinal)) as n from refundd.permits
                    where limit_name = 'fixed_window' group by window_start) w";
    let fullest = scratch.number(fullest).await;
    assert!((20..=i64::from(PERMITS)).contains(&fullest), "{fullest}");
}

#[tokio::test]
async fn a_slot_under_way_holds_up_its_own_channel_and_nobody_else() {
    let load = Load::start(&RedisOptions::default(), Load::PLENTY).await;
    let (slot, from) = load.owner("sliding_log").await;
    let to = (from + 1) % 3;
    load.redis.begin_to_move(slot, from, to).await.unwrap();
    assert!(load.redis.move_keys(slot, from, to, 2).await.unwrap() > 0, "half of it is there");
    let others: Vec<&str> =
        algorithms().into_iter().map(|(name, _)| name).filter(|name| *name != "sliding_log").collect();
    for _ in 0..5 {
        load.until_these_send(&others).await;
    }
    load.redis.finish_moving(slot, from, to).await.unwrap();
    load.until_all_send().await;
    load.end(&[]).await;
}

#[tokio::test]
async fn a_lost_master_takes_nobody_elses_channels_with_it() {
    let load = Load::start(&RedisOptions::default(), Load::PLENTY).await;
    let (_, lost) = load.owner("paced").await;
    let (gone, there) = load.parted_by(lost).await;
    load.redis.server(lost).kill_hard().await.unwrap();
    for _ in 0..5 {
        load.until_these_send(&there).await;
    }
    until("health tells", async || load.nodes[0].get("/health/ready").await.text.contains("degraded")).await;
    Watch::on(&load.nodes[..1]).fires("RefunddRedisAway").await;
    // What is saved meanwhile, and what arrives for the lost ones, waits in Postgres.
    let before: Vec<usize> = gone.iter().map(|name| load.sent(name)).collect();
    load.until_these_send(&there).await;
    let after: Vec<usize> = gone.iter().map(|name| load.sent(name)).collect();
    assert_eq!(before, after, "nothing is sent without its limit's master");
    load.redis.restart(lost).await.unwrap();
    load.until_all_send().await;
    until("health is well again", async || {
        !load.nodes[0].get("/health/ready").await.text.contains("degraded")
    })
    .await;
    load.end(&[]).await;
}

#[tokio::test]
async fn a_replica_that_takes_over_breaks_no_limit_of_any_kind() {
    let mut load = Load::start(&RedisOptions::default(), Load::PLENTY).await;
    let (slot, lost) = load.owner("sliding_log").await;
    let replica = load.redis.add_replica(lost).await.unwrap();
    load.until_all_send().await;
    load.redis.server(lost).kill_hard().await.unwrap();
    until("the replica was elected", async || load.redis.owner(slot).await == Some(replica)).await;
    load.until_all_send().await;
    // The old one comes back, and finds that it is a replica now.
    load.redis.restart(lost).await.unwrap();
    load.until_all_send().await;
    load.end(&[]).await;
}

#[tokio::test]
async fn a_frozen_master_does_not_slow_the_channels_of_the_others() {
    let load = Load::start(&RedisOptions::default(), Load::PLENTY).await;
    let (_, frozen) = load.owner("token_bucket").await;
    let (_, there) = load.parted_by(frozen).await;
    // As many seconds for each: what is compared is a pace.
    let sent_in_a_while = async || {
        let before: usize = there.iter().map(|name| load.sent(name)).sum();
        tokio::time::sleep(5 * SECOND).await;
        there.iter().map(|name| load.sent(name)).sum::<usize>() - before
    };
    // A busy machine may stand still during one of the two spans, so there are three tries.
    let mut kept = false;
    for _ in 0..3 {
        let usual = sent_in_a_while().await;
        signal(&load.redis, frozen, Signal::STOP);
        let meanwhile = sent_in_a_while().await;
        signal(&load.redis, frozen, Signal::CONT);
        println!("{meanwhile} sent by the others while a master was frozen, {usual} before");
        kept = meanwhile * 10 >= usual * 8;
        if kept {
            break;
        }
        load.until_all_send().await;
    }
    assert!(kept, "the channels of the other masters went slower each time");
    load.until_all_send().await;
    load.end(&[]).await;
}

#[tokio::test]
async fn a_master_that_did_not_answer_is_waited_for_once_and_not_by_everybody() {
    let redis = RedisCluster::start(&RedisOptions::default()).await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let bucket = scratch.bucket();
    let names: Vec<ChannelName> = (0..6).map(|nth| ChannelName::new(&format!("c{nth}")).unwrap()).collect();
    let mut owners = Vec::new();
    for name in &names {
        owners.push(redis.owner(redis.slot_of(name.as_str()).await.unwrap()).await.unwrap());
    }
    let survey = async || {
        let answers = bucket.survey(Purpose::Send, &names).await;
        answers.iter().map(Result::is_ok).collect::<Vec<_>>()
    };
    assert_eq!(survey().await, [true; 6]);
    let frozen = owners[0];
    signal(&redis, frozen, Signal::STOP);
    let there: Vec<bool> = owners.iter().map(|owner| *owner != frozen).collect();
    assert_eq!(survey().await, there);
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(survey().await, there);
    }
    // Connecting anew would be waited for a second each time.
    assert!(began.elapsed() < SECOND * 5 / 2, "{:?}", began.elapsed());
    signal(&redis, frozen, Signal::CONT);
    until("it is asked again", async || survey().await == [true; 6]).await;
    redis.stop().await.unwrap();
}

#[tokio::test]
async fn a_file_that_gives_a_slot_group_another_name_breaks_no_limit_and_strands_nothing() {
    let load = Load::start(&RedisOptions::default(), 600).await;
    // One after the other, the families of all limits become one, named after a limit that none had before.
    let joined = channels(PERMITS)
        + "[limit.aaa]\npermits = 100000\nper = \"1s\"\n"
        + &channel("all", &format!("[\"aaa\", \"{}\"]", algorithms().map(|(name, _)| name).join("\", \"")));
    for (nth, file) in [(0, &joined), (1, &joined), (0, &channels(PERMITS)), (1, &channels(PERMITS))] {
        let config = load.scratch.config(["a", "b"][nth], file);
        load.nodes[nth].daemon.reload(config).await.unwrap();
        load.until_all_send().await;
        load.until_all_send().await;
    }
    load.drain().await;
    load.end(&[]).await;
}
