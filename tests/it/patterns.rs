//! Every configuration of docs/patterns.md, at the bank's door.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use playground::judge::{JudgedPeriod, JudgedSpan, LimitPromise, judge};
use playground::load::Caller;
use refundd::refund::State;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::node::refund;
use crate::harness::{NodeProcess, Scratch, TestNode, until};

/// As in every configuration of the page.
const PERMITS: u32 = 20;
const COUNT: u32 = 60;

/// The first configuration below a heading of the page. The bank is the scratch's, and the limit bears a busy machine.
fn configuration(heading: &str) -> String {
    let page = include_str!("../../docs/patterns.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let (_, block) = section.split_once("```toml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let per = "per       = \"1s\"\n";
    let block = block.replace("per     = \"1s\"\n", per);
    assert!(block.contains(per), "{block}");
    block
        .replace(per, &format!("{per}lateness = \"100ms\"\n"))
        .replace("https://gateway.example/", "http://{bank}/")
}

/// Sends refunds under the configuration. The bank must see no span above its promise, and all refunds in time.
async fn keeps(heading: &str, nodes: usize, span: JudgedSpan) {
    let mut scratch = Scratch::new().await;
    let file = configuration(heading);
    if file.contains("kind = \"memory\"") {
        "redis://127.0.0.1:1".clone_into(&mut scratch.redis_url);
    }
    let mut running = Vec::new();
    for name in ["a", "b"].into_iter().take(nodes) {
        running.push(TestNode::start(&scratch, name, &file).await);
    }
    scratch.insert("acme", "R-", COUNT).await;
    until("all refunds are paid", async || scratch.count(State::Succeeded).await == i64::from(COUNT)).await;
    check(&scratch, span);
    for node in running {
        node.stop().await;
    }
}

fn check(scratch: &Scratch, span: JudgedSpan) {
    let promise = LimitPromise { span, permits: PERMITS, per: Duration::from_secs(1) };
    let times: Vec<i64> = scratch.bank.look(|l| l.arrivals("acme").map(|arrival| arrival.at_us).collect());
    let judged = judge(&times, &JudgedPeriod::always(promise));
    assert!(!judged.is_empty());
    let above = judged.iter().find(|judged| judged.is_above());
    assert!(above.is_none(), "{above:?}");
}

#[tokio::test]
async fn a_fixed_window_counter_keeps_its_number_in_each_window() {
    keeps("Fixed window counter", 2, JudgedSpan::Aligned).await;
}

#[tokio::test]
async fn a_sliding_window_log_keeps_its_number_in_any_span() {
    keeps("Sliding window log", 2, JudgedSpan::Any).await;
}

#[tokio::test]
async fn a_sliding_window_counter_keeps_its_number_in_any_span() {
    keeps("Sliding window counter", 2, JudgedSpan::Any).await;
}

#[tokio::test]
async fn a_leaky_bucket_with_a_shared_counter_keeps_its_number_in_any_span() {
    keeps("Leaky bucket with a shared counter", 2, JudgedSpan::Any).await;
}

#[tokio::test]
async fn a_leaky_bucket_in_memory_keeps_its_number_in_any_span() {
    keeps("Leaky bucket in memory", 1, JudgedSpan::Any).await;
}

#[tokio::test]
async fn a_token_bucket_keeps_its_number_and_its_burst() {
    keeps("Token bucket", 2, JudgedSpan::AnyAndBurst(10)).await;
}

#[tokio::test]
async fn local_shares_keep_the_number_together() {
    keeps("Local shares", 2, JudgedSpan::Any).await;
}

#[tokio::test]
async fn a_leaky_bucket_with_a_redis_list_refuses_what_does_not_fit_and_one_node_empties_it_when_the_other_is_killed()
 {
    let scratch = Scratch::new().await;
    let file = configuration("Leaky bucket with a Redis list");
    let mut killed = NodeProcess::start(&scratch, "a", &file);
    let other = TestNode::start(&scratch, "b", &file).await;
    scratch.pause("acme", "fill the backlog", "test").await;
    scratch.insert("acme", "R-", COUNT).await;
    let mut saved = COUNT;
    // Nodes count a backlog about once a second.
    until("a refund that does not fit is refused", async || {
        let answer = other.post("/v1/refunds", &refund(&format!("R-late-{saved}"), "acme")).await;
        if answer.status == 201 {
            saved += 1;
            return false;
        }
        answer.status == 429 && answer.json()["type"].as_str().unwrap().ends_with("backlog-full")
    })
    .await;
    scratch.resume("acme").await;
    assert!(scratch.bank.until(Duration::from_secs(30), |l| l.all().len() >= 20).await);
    killed.signal(Signal::KILL);
    killed.wait();
    let least = i64::from(saved) - 16;
    until("the other node sends all but the requests in progress", async || {
        scratch.count(State::Ready).await == 0 && scratch.count(State::Succeeded).await >= least
    })
    .await;
    check(&scratch, JudgedSpan::Any);
    other.stop().await;
}

#[tokio::test]
async fn rejecting_at_once_grants_the_number_of_a_window_and_no_more() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &configuration("Reject at once")).await;
    let mut windows = std::collections::BTreeMap::<String, u32>::new();
    let mut refused = 0;
    // At the end of a window a call is refused although the window has permits left.
    let began = Instant::now();
    while refused < 3 || !windows.values().any(|&granted| granted == PERMITS) {
        assert!(began.elapsed() < Duration::from_secs(30), "{windows:?}");
        let answer = node.post("/v1/limits/acme/acquire", &json!({ "caller": "checkout" })).await;
        match answer.status.as_u16() {
            200 => {
                let permit = answer.json()["permits"][0].as_str().unwrap().to_owned();
                let (window, _) = permit.split_once('#').unwrap();
                *windows.entry(window.to_owned()).or_default() += 1;
            }
            429 => refused += 1,
            // On a busy machine the ledger may be slower than a permit lives. Nothing was granted, and the caller asks again.
            503 => {}
            other => panic!("{other}: {}", answer.text),
        }
    }
    assert!(windows.values().all(|&granted| granted <= PERMITS), "{windows:?}");
    node.stop().await;
}

/// One process of the pattern that refundd has no configuration for: it keeps its queue in memory, and before each request
/// it asks the counter of the current second, which all processes share.
async fn queue_in_memory(scratch: &Scratch, mut queue: VecDeque<String>) {
    let count = redis::Script::new(
        "local now = redis.call('TIME')
         local key = KEYS[1] .. now[1]
         local number = redis.call('INCR', key)
         redis.call('EXPIRE', key, 10)
         return { number, 1000000 - now[2] }",
    );
    let (mut redis, bank) = (scratch.redis().await, Caller::of(scratch.bank.address()));
    while let Some(refund) = queue.pop_front() {
        loop {
            let counter = format!("{}:counter:", scratch.key_prefix());
            let (number, rest_us): (u32, u64) = count.key(counter).invoke_async(&mut redis).await.unwrap();
            if number <= PERMITS {
                break;
            }
            tokio::time::sleep(Duration::from_micros(rest_us)).await;
        }
        bank.post("/queues/refunds", refund).await.unwrap();
    }
}

/// Both send at the same time, so that a busy machine slows both.
#[tokio::test]
async fn one_list_keeps_the_pace_of_queues_in_memory_with_a_shared_counter() {
    const EACH: u32 = 60;
    let scratch = Scratch::new().await;
    let file = configuration("Fixed window counter");
    let nodes = [TestNode::start(&scratch, "a", &file).await, TestNode::start(&scratch, "b", &file).await];
    let queue = || (0..EACH).map(|n| format!("{{\"number\":{n}}}")).collect();
    scratch.insert("acme", "R-", 2 * EACH).await;
    tokio::join!(queue_in_memory(&scratch, queue()), queue_in_memory(&scratch, queue()));
    until("all refunds are paid", async || scratch.count(State::Succeeded).await == i64::from(2 * EACH))
        .await;
    check(&scratch, JudgedSpan::Aligned);
    let pace = |channel: &str| {
        scratch.bank.look(|ledger| {
            let mut times: Vec<i64> = ledger.arrivals(channel).map(|arrival| arrival.at_us).collect();
            times.sort_unstable();
            let second = |at_us: &i64| at_us / 1_000_000;
            let (first, last) = (times.first().map(second).unwrap(), times.last().map(second).unwrap());
            // The first and the last window are not used in full.
            let full = times.iter().filter(|at_us| (first + 1..last).contains(&second(at_us))).count();
            (full, last - first - 1)
        })
    };
    let (list, queues) = (pace("acme"), pace("queues"));
    let figures = format!("one list: {list:?}, queues in memory: {queues:?} (requests, whole windows)");
    println!("{figures}");
    let rate = |(requests, windows): (usize, i64)| requests as f64 / windows as f64;
    assert!(rate(list) >= 0.9 * rate(queues), "{figures}");
    for node in nodes {
        node.stop().await;
    }
}
