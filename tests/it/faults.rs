//! Redis lost in every way, its clock stepped, and the files changed, under load and with every
//! algorithm at once: by the bank's ledger. The long campaign is `make faults`.

pub mod many_kinds;

use std::time::Duration;

use jiff::SignedDuration;
use playground::judge::{JudgedPeriod, JudgedSpan, LimitPromise, judge};
use playground::rule::{TestAlgorithm, TestRule};
use playground::{PrivateRedis, RedisOptions, RedisPair};
use refundd::refund::State;

use crate::harness::{Scratch, until};
use many_kinds::ManyKinds;

const SECOND: Duration = Duration::from_secs(1);
pub const PERMITS: u32 = 40;

/// Each channel is named after its algorithm. The second value is what its limit promises.
pub fn algorithms() -> [(&'static str, JudgedSpan); TestAlgorithm::ALL.len()] {
    TestAlgorithm::ALL.map(|algorithm| (algorithm.name(), rule(algorithm, PERMITS).promise().span))
}

fn rule(algorithm: TestAlgorithm, permits: u32) -> TestRule {
    TestRule { algorithm, permits, per: SECOND }
}

/// All of them. They allow for a machine that is busy with all the other tests: that is what `lateness` is.
pub fn channels(permits: u32) -> String {
    let of = |algorithm: TestAlgorithm| {
        let (name, section) = (algorithm.name(), rule(algorithm, permits).section(algorithm.name()));
        format!(
            "{section}lateness = \"250ms\"\n\
             [channel.{name}]\nendpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = [\"{name}\"]\n\
             max_in_flight = 60\ntimeout = \"10s\"\nconnect_timeout = \"1s\"\n"
        )
    };
    TestAlgorithm::ALL.map(of).concat()
}

/// Two nodes with a door each, and more refunds than they can send in six minutes.
type Load = ManyKinds<RedisPair>;

impl Load {
    async fn start(options: &RedisOptions) -> Load {
        let redis = RedisPair::start(options, 2).await.unwrap_or_else(|error| panic!("{error}"));
        let scratch = Scratch::with_redis(redis.url(0)).await;
        let urls = [redis.url(0), redis.url(1)];
        ManyKinds::over(scratch, redis, urls, 18_000).await
    }

    /// Takes this many ids out of each line of a server, those that would go first.
    async fn drop_heads(&self, server: &PrivateRedis, count: usize) {
        let client = redis::Client::open(server.admin_url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        for (name, _) in algorithms() {
            let key = |what| format!("{}:{{{name}}}:{what}", self.scratch.key_prefix());
            let mut heads = redis::cmd("RPOP");
            let heads: Vec<i64> =
                heads.arg(key("bucket")).arg(count).query_async(&mut connection).await.unwrap();
            let mut present = redis::cmd("ZREM");
            present.arg(key("present")).arg(heads).query_async::<()>(&mut connection).await.unwrap();
        }
    }

    /// Stops, and holds what arrived against these promises.
    async fn end(mut self, skip: &[&str], promises: impl Fn(JudgedSpan) -> Vec<JudgedPeriod>) -> Scratch {
        self.stop_nodes().await;
        hold(&self.scratch, skip, promises).await;
        self.redis.stop().await.unwrap();
        self.scratch
    }
}

/// Holds what arrived at the bank against these promises; nothing was sent twice, and nothing is half done.
pub async fn hold(scratch: &Scratch, skip: &[&str], promises: impl Fn(JudgedSpan) -> Vec<JudgedPeriod>) {
    for (name, span) in algorithms() {
        let times: Vec<i64> = scratch.bank.look(|ledger| ledger.arrivals(name).map(|a| a.at_us).collect());
        let judged = if skip.contains(&name) {
            // Its windows are those of a clock that was set: wherever their edges lie, two of them meet a span.
            judge(
                &times,
                &JudgedPeriod::always(LimitPromise {
                    span: JudgedSpan::AnyAndBurst(PERMITS),
                    permits: PERMITS,
                    per: SECOND,
                }),
            )
        } else {
            judge(&times, &promises(span))
        };
        let worst = judged.iter().max_by(|a, b| a.share().total_cmp(&b.share())).unwrap();
        assert!(!worst.is_above(), "{name}: {worst:?} of {} spans", judged.len());
    }
    let ledger = scratch.bank.ledger();
    assert!(ledger.repeated().is_empty(), "{:?}", ledger.repeated());
    let counts = scratch.counts().await;
    assert!(
        counts.keys().all(|state| matches!(state, State::Ready | State::Succeeded)),
        "nothing is left half done: {counts:?}"
    );
    let uncovered = "select count(*) from refundd.refunds r where r.state = 'succeeded'
         and not exists (select from refundd.permits p where p.refund_id = r.id)";
    assert_eq!(scratch.number(uncovered).await, 0, "nothing was sent without its permit");
}

pub fn always(span: JudgedSpan) -> Vec<JudgedPeriod> {
    JudgedPeriod::always(LimitPromise { span, permits: PERMITS, per: SECOND })
}

#[tokio::test]
async fn redis_lost_in_every_way_breaks_no_limit_of_any_kind() {
    let load = Load::start(&RedisOptions::default()).await;
    let redis = &load.redis;
    redis.primary().flush().await.unwrap();
    load.until_all_send().await;

    redis.primary().kill_hard().await.unwrap();
    redis.primary().restart(None).await.unwrap();
    load.until_all_send().await;

    let old = redis.primary().snapshot().await.unwrap();
    load.until_all_send().await;
    redis.primary().restart(Some(&old)).await.unwrap();
    load.until_all_send().await;

    redis.attach().await.unwrap();
    redis.sever().await.unwrap();
    load.until_all_send().await;
    redis.promote().await.unwrap();
    load.until_all_send().await;

    redis.attach().await.unwrap();
    redis.split(&[1]).await.unwrap();
    load.until_all_send().await;
    redis.heal().await.unwrap();
    load.until_all_send().await;
    load.end(&[], always).await;
}

#[tokio::test]
async fn a_step_of_redis_clock_either_way_breaks_no_limit_of_any_kind() {
    let load = Load::start(&RedisOptions { clock: true, ..RedisOptions::default() }).await;
    for by_ms in [1_700, -2_900, 30, -30] {
        load.redis.primary().step_clock(SignedDuration::from_millis(by_ms)).await.unwrap();
        load.until_all_send().await;
    }
    // The windows of Redis's clock are not the bank's any more: there the numbers are judged.
    let scratch = load.end(&["fixed_window"], always).await;
    let fullest = "select max(n) from (select greatest(count(*), max(ordinal)) as n from refundd.permits
                    where limit_name = 'fixed_window' group by window_start) w";
    let fullest = scratch.number(fullest).await;
    assert!((20..=i64::from(PERMITS)).contains(&fullest), "{fullest}");
}

#[tokio::test]
async fn a_server_that_takes_over_with_another_clock_breaks_no_limit_of_any_kind() {
    let load = Load::start(&RedisOptions { clock: true, ..RedisOptions::default() }).await;
    let redis = &load.redis;
    for by_ms in [830, 700, -600, 900] {
        redis.attach().await.unwrap();
        redis.second().step_clock(SignedDuration::from_millis(by_ms)).await.unwrap();
        redis.sever().await.unwrap();
        load.until_all_send().await;
        redis.promote().await.unwrap();
        load.until_all_send().await;
        // What is known of the step is lost with the counts.
        redis.primary().step_clock(SignedDuration::from_millis(by_ms / 3)).await.unwrap();
        redis.primary().flush().await.unwrap();
        load.until_all_send().await;
    }
    load.end(&["fixed_window"], always).await;
}

#[tokio::test]
async fn two_servers_that_both_count_by_clocks_of_their_own_break_no_limit_of_any_kind() {
    let load = Load::start(&RedisOptions { clock: true, ..RedisOptions::default() }).await;
    for by_ms in [570, -640, 900] {
        load.redis.attach().await.unwrap();
        let second = load.redis.second();
        second.step_clock(SignedDuration::from_millis(by_ms) - second.ahead()).await.unwrap();
        load.redis.split(&[1]).await.unwrap();
        // What stands first in its lines it does not have in common with the other half.
        load.drop_heads(load.redis.second(), 300).await;
        // Each half makes the other's permits worthless; what matters is that some are sent, and not too many.
        load.until_all_send().await;
        load.redis.heal().await.unwrap();
        load.until_all_send().await;
    }
    load.end(&["fixed_window"], always).await;
}

#[tokio::test]
async fn a_clock_that_is_a_minute_off_sends_nothing_until_it_is_right_again() {
    let load = Load::start(&RedisOptions { clock: true, ..RedisOptions::default() }).await;
    for off in [SignedDuration::from_secs(60), SignedDuration::from_secs(-60)] {
        let before_us = load.scratch.now_us().await;
        load.redis.primary().step_clock(off).await.unwrap();
        // Limits rest for a second or so after a step, also where the claims refuse nothing.
        until("the permits granted before are used up, and nothing is sent for three seconds", async || {
            let before = load.scratch.bank.look(|ledger| ledger.all().len());
            tokio::time::sleep(Duration::from_secs(3)).await;
            load.scratch.bank.look(|ledger| ledger.all().len()) == before
        })
        .await;
        let wrong = format!(
            "select count(*) from refundd.permits
              where spent_at > timestamptz 'epoch' + {before_us} * interval '1 microsecond'
                and window_start not between spent_at - interval '20 seconds' and spent_at + interval '20 seconds'"
        );
        assert_eq!(load.scratch.number(&wrong).await, 0, "no permit of a wrong time is spent: {off}");
        load.redis.primary().step_clock(-off).await.unwrap();
        load.until_all_send().await;
    }
    load.end(&["fixed_window"], always).await;
}

#[tokio::test]
async fn a_file_that_changes_on_one_node_after_the_other_breaks_neither_promise() {
    let load = Load::start(&RedisOptions::default()).await;
    let mut changes = vec![(i64::MIN, i64::MIN, PERMITS)];
    for permits in [15, PERMITS] {
        let from_us = load.scratch.now_us().await;
        for (door, node) in load.nodes.iter().enumerate() {
            let name = ["a", "b"][door];
            let config = load.scratch.config_at(name, &channels(permits), &load.redis.url(door));
            node.daemon.reload(config).await.unwrap();
            load.until_all_send().await;
        }
        changes.push((from_us, load.scratch.now_us().await + 2_000_000, permits));
        load.until_all_send().await;
    }
    let promises = |span| {
        let period = |(from_us, settled_us, permits): &(i64, i64, u32)| JudgedPeriod {
            from_us: *from_us,
            settled_us: *settled_us,
            promises: vec![LimitPromise { span, permits: *permits, per: SECOND }],
        };
        changes.iter().map(period).collect()
    };
    load.end(&[], promises).await;
}
