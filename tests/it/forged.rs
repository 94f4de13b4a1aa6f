//! A Redis whose contents somebody forges: it raises no limit, and nothing stops for good.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use crate::harness::{Scratch, TestNode, until};

const SECOND: Duration = Duration::from_secs(1);

/// Each algorithm at two a second, and the most requests in any second.
const RULES: [(&str, usize); 6] = [
    ("algorithm = \"fixed_window\"", 4),
    ("algorithm = \"paced\"", 2),
    ("algorithm = \"paced\"\ngap = \"strict\"", 2),
    ("algorithm = \"sliding_log\"", 2),
    ("algorithm = \"sliding_window\"", 2),
    ("algorithm = \"token_bucket\"\nburst = 1", 3),
];

fn channel(rule: &str) -> String {
    format!(
        "[limit.acme]\n{rule}\npermits = 2\nper = \"1s\"\nlateness = \"250ms\"\n\
         [channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\n"
    )
}

/// Writes into Redis behind the nodes' back.
struct Forger {
    redis: MultiplexedConnection,
    key: String,
}

impl Forger {
    async fn of(scratch: &Scratch) -> Self {
        Forger { redis: scratch.redis().await, key: format!("{}:{{acme}}:limit", scratch.key_prefix()) }
    }

    async fn set(&mut self, fields: &[(&str, String)]) {
        let mut call = redis::cmd("HSET");
        call.arg(&self.key);
        for (field, value) in fields {
            call.arg(field).arg(value);
        }
        // The key may just be another type; then nothing is forged this time.
        let _: Result<(), _> = call.query_async(&mut self.redis).await;
    }

    /// Redis's time in us.
    async fn now(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut self.redis).await.unwrap();
        seconds * 1_000_000 + micros
    }

    /// Forgets what was spent, by every field in which an algorithm keeps it.
    async fn forget_spent(&mut self) {
        let long_ago = (self.now().await - 5_000_000).to_string();
        let fields: Vec<String> =
            redis::cmd("HKEYS").arg(&self.key).query_async(&mut self.redis).await.unwrap();
        for field in fields {
            match field.as_str() {
                "used" => self.set(&[("used", "0".to_owned())]).await,
                "gone" => {
                    let total: Option<String> = redis::cmd("HGET")
                        .arg(&self.key)
                        .arg("total")
                        .query_async(&mut self.redis)
                        .await
                        .unwrap();
                    self.set(&[("gone", total.unwrap_or_default())]).await;
                }
                "last" | "full" | "slot" | "owed" => self.set(&[(&field, long_ago.clone())]).await,
                segment if segment.starts_with('s') && segment[1..].parse::<i64>().is_ok() => {
                    self.set(&[(segment, "0".to_owned())]).await;
                }
                _ => {}
            }
        }
        let log = self.key.replace(":limit", ":log");
        let _: () = redis::cmd("DEL").arg(log).query_async(&mut self.redis).await.unwrap();
    }

    /// A rule that passes for another node's stricter rule, and lets 2,000 go at once.
    async fn say_a_rule(&mut self, rule: &str) {
        let now = self.now().await;
        let window = now - now % 2_678_400_000_000;
        let said = [("rule", rule.to_owned()), ("seen", now.to_string()), ("window", window.to_string())];
        let nothing_spent = ["used", "total", "gone", "last"].map(|field| (field, "0".to_owned()));
        self.set(&[said.as_slice(), &nothing_spent].concat()).await;
    }
}

#[tokio::test]
async fn a_forged_count_raises_no_limit() {
    for (rule, most) in RULES {
        let scratch = Scratch::new().await;
        let node = TestNode::start(&scratch, "a", &channel(rule)).await;
        let mut forger = Forger::of(&scratch).await;
        scratch.insert("acme", "R-", 100).await;
        let until = Instant::now() + 3 * SECOND;
        while Instant::now() < until {
            forger.forget_spent().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let fullest = scratch.bank.look(|l| l.worst_rolling_span("acme", SECOND).map_or(0, |w| w.count));
        assert!(fullest <= most, "{rule}: {fullest} in a second, {most} are allowed");
        let before = scratch.bank.look(|l| l.all().len());
        let goes_on = scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= before + 4).await;
        assert!(goes_on, "{rule}: nothing goes after the forger has left");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_forged_rule_raises_no_limit_and_is_deleted() {
    let month = r#"{"algorithm":"fixed_window","permits":2000,"per_us":2678400000000,"lateness_us":20000}"#;
    let log = r#"{"algorithm":"sliding_log","permits":2000,"per_us":2678400000000,"lateness_us":20000}"#;
    for (rule, most) in RULES {
        for forged in [month, log] {
            let scratch = Scratch::new().await;
            let node = TestNode::start(&scratch, "a", &channel(rule)).await;
            let mut forger = Forger::of(&scratch).await;
            scratch.insert("acme", "R-", 100).await;
            let before = Instant::now();
            while before.elapsed() < 2 * SECOND {
                forger.say_a_rule(forged).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let fullest = scratch.bank.look(|l| l.worst_rolling_span("acme", SECOND).map_or(0, |w| w.count));
            assert!(fullest <= most, "{rule}, forged {forged}: {fullest} in a second");
            let before = scratch.bank.look(|l| l.all().len());
            let goes_on = scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= before + 4).await;
            assert!(goes_on, "{rule}: nothing goes after the rule {forged} was forged");
            node.stop().await;
        }
    }
}

#[tokio::test]
async fn garbage_in_a_limits_hash_stops_nothing() {
    for (rule, _) in RULES {
        let scratch = Scratch::new().await;
        let node = TestNode::start(&scratch, "a", &channel(rule)).await;
        let mut forger = Forger::of(&scratch).await;
        scratch.insert("acme", "R-", 4).await;
        until("the hash is there", async || scratch.bank.look(|l| l.all().len()) >= 2).await;
        for (nth, garbage) in ["", "garbage", "-1", "1e300", "nan"].into_iter().enumerate() {
            let fields: Vec<String> =
                redis::cmd("HKEYS").arg(&forger.key).query_async(&mut forger.redis).await.unwrap();
            // All but one field are garbage; which one is left differs.
            let forged: Vec<(&str, String)> = (0..)
                .zip(&fields)
                .filter(|(place, _)| place % fields.len() != nth)
                .map(|(_, field)| (field.as_str(), garbage.to_owned()))
                .collect();
            forger.set(&forged).await;
            let before = scratch.bank.look(|l| l.all().len());
            scratch.insert("acme", &format!("R-{nth}-"), 2).await;
            let goes_on = scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= before + 2).await;
            assert!(goes_on, "{rule}: nothing goes after {forged:?}");
        }
        node.stop().await;
    }
}
