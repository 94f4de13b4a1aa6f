//! Every kind of limit at the bank's door, on two nodes that share it.

use std::time::Duration;

use playground::bank::Step;
use refundd::bucket::Purpose;
use refundd::refund::State;
use serde_json::json;

use crate::harness::{Scratch, TestNode, depth, until};

const SECOND: Duration = Duration::from_secs(1);

/// The lateness is that of a machine that runs eight tests at a time.
fn channel(rule: &str) -> String {
    format!(
        "[limit.acme]\n{rule}\nper = \"1s\"\nlateness = \"100ms\"\n[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\n\
         limits = [\"acme\"]\nmax_in_flight = 50\n"
    )
}

/// Sends under a rule from two nodes until `count` arrived; answers the scratch with the bank's ledger.
async fn saturate(rule: &str, count: usize) -> Scratch {
    let scratch = Scratch::new().await;
    let channels = channel(rule);
    let a = TestNode::start(&scratch, "a", &channels).await;
    let b = TestNode::start(&scratch, "b", &channels).await;
    scratch.insert("acme", "R-", u32::try_from(count).unwrap() + 50).await;
    let arrived = scratch.bank.until(Duration::from_secs(30), |l| l.all().len() >= count).await;
    assert!(arrived, "{rule}: {} of {count} arrived", scratch.bank.look(|l| l.all().len()));
    a.stop().await;
    b.stop().await;
    scratch
}

fn fullest_span(scratch: &Scratch) -> usize {
    scratch.bank.look(|l| l.worst_rolling_span("acme", SECOND).map_or(0, |w| w.count))
}

fn rate(scratch: &Scratch) -> f64 {
    scratch.bank.look(|l| l.rate("acme")).unwrap_or_default()
}

#[tokio::test]
async fn paced_sends_no_more_than_its_number_in_any_second_and_evenly() {
    let scratch = saturate("algorithm = \"paced\"\npermits = 50", 200).await;
    assert!(fullest_span(&scratch) <= 50, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 30.0, "{}", rate(&scratch));
    // Two sends are never closer than the spacing less the permit's life and what the way may vary.
    let mut times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).collect());
    times.sort_unstable();
    let close = times.windows(2).filter(|pair| pair[1] - pair[0] < 400).count();
    assert!(close * 20 < times.len(), "{close} of {} gaps below 0.4 ms", times.len());
}

#[tokio::test]
async fn sliding_log_sends_no_more_than_its_number_in_any_second() {
    let scratch = saturate("algorithm = \"sliding_log\"\npermits = 50", 220).await;
    assert!(fullest_span(&scratch) <= 50, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 30.0, "{}", rate(&scratch));
}

#[tokio::test]
async fn sliding_window_sends_no_more_than_its_number_in_any_second() {
    let scratch = saturate("algorithm = \"sliding_window\"\npermits = 50", 220).await;
    assert!(fullest_span(&scratch) <= 50, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 30.0, "{}", rate(&scratch));
}

#[tokio::test]
async fn token_bucket_sends_its_burst_and_then_at_its_rate() {
    let scratch = saturate("algorithm = \"token_bucket\"\nburst = 30\npermits = 50", 220).await;
    let fullest = fullest_span(&scratch);
    assert!((51..=80).contains(&fullest), "{fullest}");
    assert!(rate(&scratch) > 30.0, "{}", rate(&scratch));
}

#[tokio::test]
async fn fixed_window_sends_no_more_than_its_number_in_each_second() {
    let scratch = saturate("permits = 50", 220).await;
    let fullest = scratch.bank.look(|l| l.worst_aligned_window("acme", SECOND).map_or(0, |w| w.count));
    assert!(fullest <= 50, "{fullest}");
}

#[tokio::test]
async fn other_services_and_refunds_share_one_limit_and_one_ledger() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5").replace("\"1s\"", "\"1h\"")).await;
    let answer = node.post("/v1/limits/acme/acquire", &json!({ "permits": 2, "caller": "checkout" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["granted"], 2);
    assert_eq!(answer.headers["ratelimit"], "\"acme\";r=3;t=3600");
    assert_eq!(answer.headers["ratelimit-policy"], "\"acme\";q=5;w=3600");
    scratch.insert("acme", "R-", 10).await;
    until("the hour's other three went to refunds", async || scratch.count(State::Succeeded).await == 3)
        .await;
    let answer = node.post("/v1/limits/acme/acquire", &json!({})).await;
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert!(answer.json()["retry_after_ms"].as_u64().unwrap() > 1000);
    assert!(answer.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() >= 1);
    let spent =
        "select count(*) filter (where caller = 'checkout') * 100 + count(refund_id) from refundd.permits";
    assert_eq!(scratch.number(spent).await, 203);
    let channels = node.get("/v1/channels").await.json();
    assert_eq!(channels["channels"][0]["waits_for"]["limit"], "acme", "{channels}");
    node.stop().await;
}

#[tokio::test]
async fn a_wish_for_permits_is_all_or_nothing_and_refused_in_words() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5").replace("\"1s\"", "\"1h\"")).await;
    assert_eq!(node.post("/v1/limits/acme/acquire", &json!({ "permits": 4 })).await.status, 200);
    assert_eq!(node.post("/v1/limits/acme/acquire", &json!({ "permits": 2 })).await.status, 429);
    assert_eq!(node.post("/v1/limits/acme/acquire", &json!({ "permits": 1 })).await.status, 200);
    let never = node.post("/v1/limits/acme/acquire", &json!({ "permits": 6 })).await;
    assert_eq!(never.status, 422, "{}", never.text);
    let unknown = node.post("/v1/limits/acne/acquire", &json!({})).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["detail"].as_str().unwrap().contains("there are: acme"), "{}", unknown.text);
    node.stop().await;
    let unlimited = "[limit.acme]\npermits = -1\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "b", unlimited).await;
    let needless = node.post("/v1/limits/acme/acquire", &json!({})).await;
    assert_eq!(needless.status, 404);
    assert!(needless.text.contains("unlimited (`permits = -1`) and needs no permits"), "{}", needless.text);
    node.stop().await;
}

#[tokio::test]
async fn a_channel_may_have_a_limit_for_the_second_and_one_for_the_day_and_says_which_one_it_waits_for() {
    let scratch = Scratch::new().await;
    let channels = "[limit.second]\nalgorithm = \"paced\"\npermits = 40\nper = \"1s\"\n\
                    [limit.day]\npermits = 25\nper = \"1d\"\ntime_zone = \"Asia/Tokyo\"\n\
                    [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"second\", \"day\"]\n\
                    [channel.other]\nendpoint = \"http://{bank}/other/refunds\"\nlimits = [\"day\"]\n";
    let node = TestNode::start(&scratch, "a", channels).await;
    scratch.insert("other", "O-", 5).await;
    until("the other channel took five of the day", async || scratch.count(State::Succeeded).await == 5)
        .await;
    scratch.insert("acme", "R-", 30).await;
    // A permit of the day whose slot of the second was missed stays spent.
    let spent = "select count(*) from refundd.permits where limit_name = 'day'";
    until("the day is used up", async || scratch.number(spent).await == 25).await;
    until("it says so", async || {
        let channels = node.get("/v1/channels").await.json();
        channels["channels"][0]["waits_for"]["limit"] == "day"
    })
    .await;
    let waits_for = "select coalesce(standing #>> '{waits,acme,limit}', '') from refundd.nodes";
    until("status can tell of it, too", async || scratch.text(waits_for).await == "day").await;
    let sent = scratch.bank.look(|l| l.all().len());
    assert!(sent <= 25, "{sent}");
    node.stop().await;
}

/// Ids whose refunds were cancelled behind the line's back, as by SQL, or a moment before the take.
#[tokio::test]
async fn cancelled_refunds_that_stand_in_line_spend_none_of_a_days_permits() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 40").replace("\"1s\"", "\"1d\"")).await;
    scratch.store.pause("acme", "test", "test", false).await.unwrap();
    scratch.insert("acme", "R-", 70).await;
    let acme = refundd::refund::ChannelName::new("acme").unwrap();
    let bucket = scratch.bucket();
    let depth = async || depth(&bucket, Purpose::Send, &acme).await;
    until("all stand in line", async || depth().await == 70).await;
    let gone = "update refundd.refunds set state = 'cancelled', settled_at = now() where id <= 30";
    assert_eq!(scratch.sql(gone).await, 30);
    scratch.store.resume("acme").await.unwrap();
    until("the other forty are sent", async || scratch.count(State::Succeeded).await == 40).await;
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 40);
    assert_eq!(scratch.bank.look(|l| l.all().len()), 40);
    node.stop().await;
}

#[tokio::test]
async fn refunds_past_their_deadline_do_not_stand_in_the_way_of_fresh_ones() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("algorithm = \"paced\"\npermits = 1")).await;
    scratch.insert("acme", "R-", 150).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| !l.all().is_empty()).await);
    scratch.sql("update refundd.refunds set deadline_at = now() where state = 'ready'").await;
    let late = "select count(*) from refundd.refunds where reason = 'deadline_passed'";
    until("recovery sees that", async || scratch.number(late).await >= 140).await;
    let before = scratch.bank.look(|l| l.all().len());
    scratch.insert("acme", "F-", 1).await;
    let began = std::time::Instant::now();
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() > before).await);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let sent = i64::try_from(scratch.bank.look(|l| l.all().len())).unwrap();
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, sent);
    node.stop().await;
}

/// Nobody withdraws them: their rows say by now that they are not due for an hour.
#[tokio::test]
async fn permits_of_dead_ids_carry_over_to_the_first_refund_that_can_be_sent() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("algorithm = \"paced\"\npermits = 2")).await;
    scratch.store.pause("acme", "test", "test", false).await.unwrap();
    scratch.insert("acme", "R-", 300).await;
    scratch.insert("acme", "F-", 1).await;
    let acme = refundd::refund::ChannelName::new("acme").unwrap();
    let bucket = scratch.bucket();
    until("all stand in line", async || depth(&bucket, Purpose::Send, &acme).await == 301).await;
    assert_eq!(
        scratch.sql("update refundd.refunds set due_at = now() + interval '1 hour' where id <= 300").await,
        300
    );
    scratch.store.resume("acme").await.unwrap();
    until("the node hears of it", async || {
        node.get("/v1/channels").await.json()["channels"][0]["paused"].is_null()
    })
    .await;
    let began = std::time::Instant::now();
    assert!(scratch.bank.until(Duration::from_secs(20), |l| !l.all().is_empty()).await);
    let took = began.elapsed();
    println!("sent after {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    until("it is settled", async || scratch.count(State::Succeeded).await == 1).await;
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 1);
    // What was popped beyond the permits stands in line again, in its order.
    scratch.insert("acme", "G-", 5).await;
    until("the others go, too", async || scratch.count(State::Succeeded).await == 6).await;
    let order = scratch.bank.look(|l| l.all().iter().map(|a| a.refund_ref.to_string()).collect::<Vec<_>>());
    assert_eq!(order, ["F-1", "G-1", "G-2", "G-3", "G-4", "G-5"]);
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 6);
    node.stop().await;
}

#[tokio::test]
async fn a_cancelled_refund_leaves_its_line_at_once() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5")).await;
    scratch.store.pause("acme", "test", "test", false).await.unwrap();
    scratch.insert("acme", "R-", 3).await;
    let acme = refundd::refund::ChannelName::new("acme").unwrap();
    let bucket = scratch.bucket();
    let depth = async || depth(&bucket, Purpose::Send, &acme).await;
    until("all stand in line", async || depth().await == 3).await;
    assert_eq!(node.post("/v1/refunds/2/cancel", &json!({})).await.status, 200);
    until("it is gone", async || depth().await == 2).await;
    node.stop().await;
}

#[tokio::test]
async fn while_files_differ_the_stricter_rule_rules_and_it_is_told() {
    let scratch = Scratch::new().await;
    let loose = TestNode::start(&scratch, "loose", &channel("permits = 100")).await;
    scratch.insert("acme", "R-", 400).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= 20).await);
    let strict = TestNode::start(&scratch, "strict", &channel("permits = 10")).await;
    until("the loose node says that it is overruled", async || {
        let channels = loose.get("/v1/channels").await.json();
        channels["channels"][0]["limits"][0]["overruled_by"]
            .as_str()
            .is_some_and(|by| by.starts_with("10 in each "))
    })
    .await;
    let metrics = loose.get("/metrics").await.text;
    assert!(metrics.contains("refundd_limit_overruled{limit=\"acme\"} 1"), "{metrics}");
    let now = scratch.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    let before = scratch.bank.look(|l| l.all().len());
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= before + 45).await);
    let mut seconds = std::collections::BTreeMap::<i64, usize>::new();
    for arrival in scratch.bank.ledger().all().iter().filter(|a| a.at_us >= now - now % 1_000_000 + 1_000_000)
    {
        *seconds.entry(arrival.at_us / 1_000_000).or_default() += 1;
    }
    assert!(seconds.values().all(|n| *n <= 10), "{seconds:?}");
    strict.stop().await;
    until("the loose rule is in force again", async || {
        let channels = loose.get("/v1/channels").await.json();
        channels["channels"][0]["limits"][0]["overruled_by"].is_null()
    })
    .await;
    loose.stop().await;
}

/// Two refusals of requests that were under way together are one, and one of so many costs next to nothing.
#[tokio::test]
async fn one_refusal_costs_a_paced_channel_less_than_a_twentieth_of_its_rate() {
    let scratch = Scratch::new().await;
    let rule = "algorithm = \"paced\"\npermits = 20";
    let node = TestNode::start(&scratch, "a", &channel(rule)).await;
    scratch.insert("acme", "R-", 500).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 40).await);
    scratch.bank.next("acme", [Step::answers(429, r#"{"error":"too many requests"}"#)]);
    assert!(
        scratch
            .bank
            .until(Duration::from_secs(10), |l| l.all().iter().any(|a| a.answered == Some(429)))
            .await
    );
    let refused = scratch.bank.look(|l| l.all().len());
    let counted = "select (refusals + coalesce(slow_ceiling, 0) * 100)::bigint from refundd.channels";
    until("it counts", async || scratch.number(counted).await == 10_001).await;
    let began = std::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(15)).await;
    let sent = scratch.bank.look(|l| l.all().len()) - refused;
    let share = sent as f64 / began.elapsed().as_secs_f64() / (20.0 / 1.1);
    println!("{sent} in {:?}: {share:.3} of the rate", began.elapsed());
    assert!(share > 0.95, "{share}");
    node.stop().await;
}

#[tokio::test]
async fn a_refused_refund_goes_first_when_the_pause_is_over() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("algorithm = \"paced\"\npermits = 5")).await;
    scratch
        .bank
        .next("acme", [Step::pays(), Step::pays(), Step::answers(429, r#"{"error":"too many requests"}"#)]);
    scratch.insert("acme", "R-", 60).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 8).await);
    let sent = scratch.bank.look(|l| l.all().iter().map(|a| a.refund_ref.to_string()).collect::<Vec<_>>());
    assert!(sent[3..6].contains(&sent[2]), "{sent:?}");
    node.stop().await;
}

/// A channel once went on for ever with two requests after each pause, one slot apart: the second was refused.
#[tokio::test]
async fn a_bank_that_takes_half_of_the_rate_gets_most_of_what_it_takes() {
    let scratch = Scratch::new().await;
    scratch.bank.refuses_within("acme", Duration::from_millis(100), 429);
    let node = TestNode::start(&scratch, "a", &channel("algorithm = \"paced\"\npermits = 20")).await;
    scratch.insert("acme", "R-", 500).await;
    let of = |l: &playground::bank::Ledger| {
        let refused = l.all().iter().filter(|a| a.answered == Some(429)).count();
        (l.all().len() - refused, refused)
    };
    assert!(scratch.bank.until(Duration::from_secs(30), |l| of(l).0 >= 20).await);
    let (before, began) = (scratch.bank.look(of), std::time::Instant::now());
    assert!(scratch.bank.until(Duration::from_secs(30), |l| of(l).0 >= before.0 + 60).await);
    let (rate, refused) = (60.0 / began.elapsed().as_secs_f64(), scratch.bank.look(of).1);
    println!("{rate:.1} of 10 a second, {refused} refused in all");
    assert!(rate > 4.0 && refused <= 15, "{rate} of 10 a second, {refused} refused");
    node.stop().await;
}

/// Not a test: the figures of docs/limits.md. A bank that takes less than the channel's limit, by the gap to the last
/// request that it took.
#[tokio::test]
#[ignore = "measures for two minutes"]
async fn what_a_bank_gets_that_takes_less_than_the_limit() {
    let cases = [
        ("algorithm = \"paced\"\npermits = 20", 100, 429, "paced 20/s, the bank takes 10/s"),
        ("permits = 1", 1000, 429, "fixed_window 1/s, the bank takes 1/s by the gap"),
    ];
    for (rule, gap, status, what) in cases {
        let scratch = Scratch::new().await;
        scratch.bank.refuses_within("acme", Duration::from_millis(gap), status);
        let file = channel(rule).replace("lateness = \"100ms\"", "lateness = \"20ms\"");
        let node = TestNode::start(&scratch, "a", &file).await;
        scratch.insert("acme", "R-", 2000).await;
        let mut before = (0, 0);
        for quarter in 1..=4 {
            tokio::time::sleep(Duration::from_secs(15)).await;
            let now = scratch.bank.look(|l| {
                let refused = l.all().iter().filter(|a| a.answered == Some(status)).count();
                (l.all().len() - refused, refused)
            });
            println!(
                "{what}: quarter {quarter}: {:.2}/s taken, {} refused",
                (now.0 - before.0) as f64 / 15.0,
                now.1 - before.1
            );
            before = now;
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn after_a_429_the_rate_climbs_back_to_what_is_configured() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::too_many(1)]);
    let a = TestNode::start(&scratch, "a", &channel("permits = 20")).await;
    let b = TestNode::start(&scratch, "b", &channel("permits = 20")).await;
    scratch.insert("acme", "R-", 200).await;
    let slowed = async || a.get("/v1/channels").await.json()["channels"][0]["slowed_to_percent"].clone();
    // A first refusal is over within a second or so; it is held here, so that a busy machine sees it.
    let noted = "select count(*) from refundd.channels where slow_percent = 90";
    until("the refusal is noted", async || scratch.number(noted).await == 1).await;
    scratch.sql("update refundd.channels set slow_since = now() + interval '1 hour'").await;
    until("it says that it is slowed", async || slowed().await == 90).await;
    scratch.sql("update refundd.channels set slow_since = now() - interval '1 minute'").await;
    until("it is back at its full rate", async || slowed().await.is_null()).await;
    let before = scratch.bank.look(|l| l.all().len());
    let began = std::time::Instant::now();
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= before + 40).await);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?} for 40 at 20 a second", began.elapsed());
    a.stop().await;
    b.stop().await;
}

const IN_MEMORY: &str = "[bucket]\nkind = \"memory\"\n";

#[tokio::test]
async fn a_single_node_without_redis_keeps_every_kind_of_limit() {
    let rules = [
        ("permits = 20", 20),
        ("algorithm = \"paced\"\npermits = 20", 20),
        ("algorithm = \"sliding_log\"\npermits = 20", 20),
        ("algorithm = \"sliding_window\"\npermits = 20", 20),
        ("algorithm = \"token_bucket\"\nburst = 10\npermits = 20", 30),
    ];
    for (rule, most) in rules {
        let mut scratch = Scratch::new().await;
        scratch.redis_url = "redis://127.0.0.1:1".to_owned();
        let node = TestNode::start(&scratch, "a", &format!("{IN_MEMORY}{}", channel(rule))).await;
        scratch.insert("acme", "R-", 60).await;
        let done = scratch.bank.until(Duration::from_secs(15), |l| l.all().len() >= 50).await;
        assert!(done, "{rule}: {}", scratch.bank.look(|l| l.all().len()));
        let fullest = match rule {
            "permits = 20" => {
                scratch.bank.look(|l| l.worst_aligned_window("acme", SECOND).map_or(0, |w| w.count))
            }
            _ => fullest_span(&scratch),
        };
        assert!(fullest <= most, "{rule}: {fullest} in a second");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_node_in_memory_that_is_started_again_goes_on_where_the_ledger_says() {
    let scratch = Scratch::new().await;
    for rule in ["permits = 5", "algorithm = \"sliding_log\"\npermits = 5"] {
        let name = if rule.contains("log") { "log" } else { "window" };
        let file = format!("{IN_MEMORY}{}", channel(rule).replace("acme", name).replace("\"1s\"", "\"1h\""));
        for _ in 0..3 {
            let node = TestNode::start(&scratch, "a", &file).await;
            scratch.insert(name, &format!("{name}-{}-", fastrand::u32(..)), 4).await;
            let spent = format!("select count(*) from refundd.permits where limit_name = '{name}'");
            until("it takes what is left", async || scratch.number(&spent).await >= 4).await;
            node.stop().await;
        }
        let sent = scratch.bank.look(|l| l.arrivals(name).count());
        assert!(sent <= 5, "{sent} of 5 an hour, by a node that was started three times");
    }
}

#[tokio::test]
async fn beside_a_node_in_memory_no_second_one_starts() {
    let scratch = Scratch::new().await;
    let first = TestNode::start(&scratch, "first", &format!("{IN_MEMORY}{}", channel("permits = 5"))).await;
    for kind in [IN_MEMORY, ""] {
        let file = scratch.config("second", &format!("{kind}{}", channel("permits = 5")));
        let error = refundd::daemon::Daemon::start(file, || {}).await.unwrap_err().to_string();
        assert!(error.contains("node first#") && error.contains("cannot be shared"), "{error}");
    }
    first.stop().await;
    let next = TestNode::start(&scratch, "next", &channel("permits = 5")).await;
    next.stop().await;
}

#[tokio::test]
async fn nodes_that_count_their_shares_alone_never_pass_the_whole_together() {
    let scratch = Scratch::new().await;
    let rule = "algorithm = \"sliding_log\"\npermits = 21\nplacement = \"local_share\"\nnodes = 2";
    let a = TestNode::start(&scratch, "a", &channel(rule)).await;
    let b = TestNode::start(&scratch, "b", &channel(rule)).await;
    let extra = TestNode::start(&scratch, "extra", &channel(rule)).await;
    scratch.insert("acme", "R-", 120).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 90).await);
    assert!(fullest_span(&scratch) <= 20, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 12.0, "{}", rate(&scratch));
    let holders =
        "select count(distinct (limit_name, node)) from refundd.permits where limit_name like 'acme.share%'";
    assert_eq!(scratch.number(holders).await, 2, "two shares, each counted by one node");
    // A node that leaves makes room for the third.
    a.stop().await;
    until("the third took the share", async || {
        scratch.number("select count(distinct node) from refundd.permits").await == 3
    })
    .await;
    assert!(fullest_span(&scratch) <= 20, "{}", fullest_span(&scratch));
    b.stop().await;
    extra.stop().await;
}

#[tokio::test]
async fn when_nodes_go_nobody_waits_for_their_turns() {
    let scratch = Scratch::new().await;
    let mut nodes = Vec::new();
    for n in 0..8 {
        nodes.push(TestNode::start(&scratch, &format!("n{n}"), &channel("permits = 1")).await);
    }
    scratch.insert("acme", "R-", 60).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 6).await);
    let last = nodes.pop().unwrap();
    for node in nodes {
        node.stop().await;
    }
    let before = scratch.bank.look(|l| l.all().len());
    let began = std::time::Instant::now();
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= before + 5).await);
    assert!(began.elapsed() < Duration::from_secs(9), "five in {:?} at one a second", began.elapsed());
    last.stop().await;
}

#[tokio::test]
async fn a_database_that_went_back_stops_nothing() {
    for rule in
        ["permits = 20", "algorithm = \"paced\"\npermits = 20", "algorithm = \"sliding_log\"\npermits = 20"]
    {
        let scratch = Scratch::new().await;
        let node = TestNode::start(&scratch, "a", &channel(rule)).await;
        for (round, statement) in [
            // The first finds no row yet.
            "update refundd.limits set generation = generation + 5",
            "update refundd.limits set generation = generation + 5",
            "update refundd.limits set generation = generation - 1",
            "delete from refundd.limits",
        ]
        .into_iter()
        .enumerate()
        {
            scratch.sql(statement).await;
            let before = scratch.bank.look(|l| l.all().len());
            scratch.insert("acme", &format!("R-{round}-"), 10).await;
            let arrived = scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= before + 10).await;
            assert!(arrived, "{rule}: nothing goes after `{statement}`");
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn two_time_zone_databases_give_one_day_one_number() {
    let scratch = Scratch::new().await;
    // Another node was here first, and in its database Tokyo's days begin half an hour earlier.
    let day =
        "date_trunc('day', now() at time zone 'Asia/Tokyo') + n * interval '1 day' - interval '30 minutes'";
    scratch
        .sql(&format!(
            "insert into refundd.zone_days (zone, day, begins_at, node)
             select 'Asia/Tokyo', (now() at time zone 'Asia/Tokyo')::date + n, ({day}) at time zone 'Asia/Tokyo', 'other' from generate_series(-1, 3) n"
        ))
        .await;
    let limit = "[limit.acme]\npermits = 5\nper = \"1d\"\ntime_zone = \"Asia/Tokyo\"\n[channel.acme]\n\
                 endpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "a", limit).await;
    scratch.insert("acme", "R-", 9).await;
    until("the day is used up", async || scratch.count(State::Succeeded).await == 5).await;
    let foreign = "select count(*) from refundd.permits p where not exists (select from refundd.zone_days d where d.begins_at = p.window_start)";
    assert_eq!(scratch.number(foreign).await, 0, "the windows are those of the shared days");
    // A node of an older version, or a forged Redis, speaks of a window by its own midnight.
    let mut redis = scratch.redis().await;
    let own = scratch
        .number("select (extract(epoch from date_trunc('day', now() at time zone 'Asia/Tokyo') at time zone 'Asia/Tokyo') * 1000000)::bigint")
        .await;
    let key = format!("{}:{{acme}}:limit", scratch.key_prefix());
    redis::cmd("HSET")
        .arg(&key)
        .arg("window")
        .arg(own)
        .arg("used")
        .arg(0)
        .query_async::<()>(&mut redis)
        .await
        .unwrap();
    let refused = node.post("/v1/limits/acme/acquire", &json!({ "permits": 1 })).await;
    assert_eq!(refused.status, 429, "{}", refused.text);
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 5);
    // Whatever Redis says, the ledger takes no permit of such a window.
    let name = refundd::refund::LimitName::stored("acme");
    let generation = scratch.store.generation(&name).await.unwrap();
    let number = |window_start_us| {
        refundd::limiter::PermitNumber {
        limit: name.clone(),
        window_start_us,
        ordinal: 6,
        generation,
        own_rule: r#"{"algorithm":"fixed_window","permits":9,"per_us":86400000000,"lateness_us":20000,"zone":"Asia/Tokyo"}"#.into(),
        stricter_rule: None,
    }
    };
    let permit = |window| refundd::limiter::Permit { numbers: vec![number(window)], span: None };
    let shared = own - 1_800_000_000;
    for (window, spent) in [(own, refundd::store::Spent::Refused), (shared, refundd::store::Spent::Yes)] {
        let done = scratch
            .store
            .spend(&[permit(window)], "shop", "node-b", Duration::from_secs(4_000_000_000))
            .await;
        assert_eq!(done.unwrap(), spent, "{window}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_strict_gap_keeps_any_two_requests_as_far_apart_as_the_bank_wants() {
    let scratch = saturate("algorithm = \"paced\"\ngap = \"strict\"\npermits = 10", 40).await;
    let mut times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).collect());
    times.sort_unstable();
    let closest = times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(closest >= 100_000, "{closest} us between two requests");
    assert!(rate(&scratch) > 3.0, "{}", rate(&scratch));
}
