//! A Redis whose contents somebody forges: it raises no limit, and nothing stops for good.

mod liar;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use playground::Forger;
use playground::judge::JudgedSpan;
use playground::rule::{TestAlgorithm, TestRule};
use serde_json::json;

use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until};
use liar::Liar;

const SECOND: Duration = Duration::from_secs(1);

/// Each algorithm at two a second, and the most requests in any second.
fn rules() -> Vec<(String, usize)> {
    let mut rules = Vec::from(TestAlgorithm::ALL.map(|algorithm| {
        let rule = TestRule { algorithm, permits: 2, per: SECOND };
        let most = match rule.promise().span {
            JudgedSpan::Aligned => 4,
            JudgedSpan::Any => 2,
            JudgedSpan::AnyAndBurst(burst) => 2 + burst as usize,
        };
        (rule.settings(), most)
    }));
    rules.push(("algorithm = \"paced\"\npermits = 2\ngap = \"strict\"\n".to_owned(), 2));
    rules
}

fn channel(rule: &str) -> String {
    format!(
        "[limit.acme]\n{rule}per = \"1s\"\nlateness = \"250ms\"\n\
         [channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\n"
    )
}

async fn forger(scratch: &Scratch) -> Forger {
    Forger::over(scratch.redis().await, format!("{}:{{acme}}:limit", scratch.key_prefix()))
}

#[tokio::test]
async fn a_forged_count_raises_no_limit() {
    join_all(rules().into_iter().map(|(rule, most)| async move {
        let scratch = Scratch::new().await;
        let node = TestNode::start(&scratch, "a", &channel(&rule)).await;
        let mut forger = forger(&scratch).await;
        scratch.insert("acme", "R-", 100).await;
        forger.keep_forgetting(3 * SECOND).await.unwrap();
        let fullest = scratch.bank.look(|l| l.worst_rolling_span("acme", SECOND).map_or(0, |w| w.count));
        assert!(fullest <= most, "{rule}: {fullest} in a second, {most} are allowed");
        let before = scratch.bank.look(|l| l.all().len());
        let goes_on = scratch.bank.until(Duration::from_mins(1), |l| l.all().len() >= before + 4).await;
        assert!(goes_on, "{rule}: nothing goes after the forger has left");
        node.stop().await;
    }))
    .await;
}

#[tokio::test]
async fn a_forged_rule_raises_no_limit_and_is_deleted() {
    join_all(rules().into_iter().map(|(rule, most)| async move {
        for forged in ["fixed_window", "sliding_log"] {
            let scratch = Scratch::new().await;
            let node = TestNode::start(&scratch, "a", &channel(&rule)).await;
            let mut forger = forger(&scratch).await;
            scratch.insert("acme", "R-", 100).await;
            let before = Instant::now();
            while before.elapsed() < 2 * SECOND {
                forger.write_rule(forged).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let fullest = scratch.bank.look(|l| l.worst_rolling_span("acme", SECOND).map_or(0, |w| w.count));
            assert!(fullest <= most, "{rule}, forged {forged}: {fullest} in a second");
            let before = scratch.bank.look(|l| l.all().len());
            let goes_on = scratch.bank.until(Duration::from_mins(1), |l| l.all().len() >= before + 4).await;
            assert!(goes_on, "{rule}: nothing goes after the rule {forged} was forged");
            node.stop().await;
        }
    }))
    .await;
}

#[tokio::test]
async fn garbage_in_a_limits_hash_stops_nothing() {
    join_all(rules().into_iter().map(|(rule, _)| async move {
        let scratch = Scratch::new().await;
        let node = TestNode::start(&scratch, "a", &channel(&rule)).await;
        let mut forger = forger(&scratch).await;
        scratch.insert("acme", "R-", 4).await;
        until("the hash is there", async || scratch.bank.look(|l| l.all().len()) >= 2).await;
        for (nth, garbage) in ["", "garbage", "-1", "1e300", "nan"].into_iter().enumerate() {
            // One field of five stays as it is; which one differs.
            forger.write_garbage(garbage, |place| place % 5 == nth).await.unwrap();
            let before = scratch.bank.look(|l| l.all().len());
            scratch.insert("acme", &format!("R-{nth}-"), 2).await;
            let goes_on = scratch.bank.until(Duration::from_mins(1), |l| l.all().len() >= before + 2).await;
            assert!(goes_on, "{rule}: nothing goes after `{garbage}`");
        }
        node.stop().await;
    }))
    .await;
}

/// Numbers that no script takes for true, or that are as far ahead as a number can be.
#[tokio::test]
async fn numbers_far_ahead_stop_nothing() {
    const TOO_FAR: &str = "9007199254740992"; // 2^53
    const FURTHEST: &str = "9007199254740991";
    join_all(rules().into_iter().map(|(rule, _)| async move {
        let scratch = Scratch::new().await;
        let node = TestNode::start(&scratch, "a", &channel(&rule)).await;
        let mut limit = forger(&scratch).await;
        let mut clock = Forger::over(scratch.redis().await, format!("{}:clock", scratch.key_prefix()));
        scratch.insert("acme", "R-", 4).await;
        until("the hash is there", async || scratch.bank.look(|l| l.all().len()) >= 4).await;
        for (round, fields, number) in [
            (0, ["rest_until", "turn", "telling_for", "heard"].as_slice(), TOO_FAR),
            (1, ["generation"].as_slice(), TOO_FAR),
            (2, ["turn", "telling_for", "heard", "generation"].as_slice(), FURTHEST),
            (3, ["steps"].as_slice(), TOO_FAR),
            (4, ["steps"].as_slice(), FURTHEST),
        ] {
            let forged: Vec<(&str, String)> =
                fields.iter().map(|field| (*field, number.to_owned())).collect();
            let to = if fields.contains(&"steps") { &mut clock } else { &mut limit };
            to.set(&forged).await;
            let before = scratch.bank.look(|l| l.all().len());
            scratch.insert("acme", &format!("R-{round}-"), 2).await;
            let goes_on = scratch.bank.until(Duration::from_mins(1), |l| l.all().len() >= before + 2).await;
            assert!(goes_on, "{rule}: nothing goes after {fields:?} = {number}");
        }
        node.stop().await;
    }))
    .await;
}

/// The steps of the clock move the grid of slots, and a last slot of 0 says that none was granted. So Redis grants a slot at any moment.
#[tokio::test]
async fn a_forged_grid_of_slots_closes_no_strict_gap() {
    const SLOT_US: i64 = 5_100_000; // per / permits, and the lateness
    let scratch = Scratch::new().await;
    let file = "[limit.acme]\nalgorithm = \"paced\"\ngap = \"strict\"\npermits = 2\nper = \"10s\"\nlateness = \"100ms\"\n\
         [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "a", file).await;
    let mut limit = forger(&scratch).await;
    let mut clock = Forger::over(scratch.redis().await, format!("{}:clock", scratch.key_prefix()));
    let one = json!({ "permits": 1 });
    assert_eq!(node.acquire("acme", &one).await.status, 200);
    let spent = "select count(*) from refundd.permits where limit_name = 'acme'";
    let before = scratch.number(spent).await;
    for _ in 0..5 {
        let now_us = scratch.now_us().await;
        // A slot opens in 0.9 s. A call of another service gets it, unless a busy machine makes that call too late.
        let steps = ((now_us + 900_000) % SLOT_US).to_string();
        clock.set(&[("steps", steps.clone())]).await;
        limit.set(&[("steps", steps), ("slot", "0".to_owned())]).await;
        let nearer = node.post("/v1/limits/acme/acquire", &one).await;
        assert_ne!(nearer.status, 200, "{}", nearer.text);
        if scratch.number(spent).await > before {
            break;
        }
    }
    assert_eq!(scratch.number(spent).await, before + 1, "Redis granted the slot, and the ledger refused it");
    assert_eq!(node.acquire("acme", &one).await.status, 200, "it goes on after the forger has left");
    node.stop().await;
}

#[tokio::test]
async fn replies_that_name_permits_wrongly_raise_no_limit() {
    // Hours away from each other, and within the difference that clocks may have.
    for (step_us, steps) in [(3_600_000_000, 1_000), (1_100_000, 7)] {
        join_all(rules().into_iter().map(|(rule, most)| async move {
            let scratch = Scratch::new().await;
            let server = SERVERS.redis.socket();
            let socket = server.with_file_name(format!("{}.sock", scratch.name));
            let liar = Liar::before(server, &socket, step_us, steps);
            let url = scratch.redis_url.replace(server.to_str().unwrap(), socket.to_str().unwrap());
            let node = TestNode::start_at(&scratch, "a", &channel(&rule), &url).await;
            let mut forger = forger(&scratch).await;
            scratch.insert("acme", "R-", 100).await;
            forger.keep_forgetting(2 * SECOND).await.unwrap();
            assert!(liar.renamed() > 0, "{rule}: no permit got another name");
            let fullest = scratch.bank.look(|l| l.worst_rolling_span("acme", SECOND).map_or(0, |w| w.count));
            assert!(fullest <= most, "{rule}, {step_us}: {fullest} in a second, {most} are allowed");
            liar.end();
            let before = scratch.bank.look(|l| l.all().len());
            let goes_on = scratch.bank.until(Duration::from_mins(1), |l| l.all().len() >= before + 4).await;
            assert!(goes_on, "{rule}: nothing goes after the lies have ended");
            node.stop().await;
        }))
        .await;
    }
}
