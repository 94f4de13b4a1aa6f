//! A Redis user with the rights of `config/redis-user.acl`.

use playground::bank::Step;
use playground::{PrivateRedis, RedisOptions};
use refundd::refund::State;
use serde_json::json;

use crate::harness::{Scratch, TestNode, until};

const ACL: &str = include_str!("../../config/redis-user.acl");

/// A channel for each algorithm; refunds of the last one become unknown first.
fn channels() -> String {
    let limits = [
        ("fixed", "algorithm = \"fixed_window\"", ""),
        ("paced", "algorithm = \"paced\"", ""),
        ("log", "algorithm = \"sliding_log\"", ""),
        ("window", "algorithm = \"sliding_window\"", ""),
        (
            "tokens",
            "algorithm = \"token_bucket\"\nburst = 2",
            "on_unknown = \"inquire\"\ninquiry = { url = \"http://{bank}/tokens/refunds/{request_id}\" }",
        ),
    ];
    let section = |(name, algorithm, keys): &(&str, &str, &str)| {
        format!(
            "[limit.{name}]\npermits = 20\nper = \"1s\"\nlateness = \"100ms\"\n{algorithm}\n[channel.{name}]\n\
             endpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = [\"{name}\"]\n{keys}\n"
        )
    };
    limits.iter().map(section).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_redis_user_may_do_all_that_nodes_do_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.acl");
    // Each test has a key prefix of its own.
    std::fs::write(&file, ACL.replace("~refundd:*", "~scratch_*")).unwrap();
    let settings = vec![("aclfile".to_owned(), file.display().to_string())];
    let redis = PrivateRedis::start_with(&RedisOptions { tcp: true, settings, ..RedisOptions::default() })
        .await
        .unwrap();
    let url = redis.tcp_url().unwrap().replace("redis://", "redis://refundd:CHANGE-ME@");
    let scratch = Scratch::with_redis(url.clone()).await;
    let names = ["fixed", "paced", "log", "window", "tokens"];
    scratch.bank.next("tokens", [Step::pays_but_says_500(), Step::too_many(1)]);
    let node = TestNode::start(&scratch, "a", &channels()).await;
    for name in names {
        scratch.insert(name, &format!("{name}-"), 10).await;
    }
    let age = "update refundd.refunds set inquire_at = now() where inquire_at > now()";
    until("all have succeeded", async || {
        scratch.sql(age).await;
        scratch.count(State::Succeeded).await == 50
    })
    .await;
    assert_eq!(scratch.bank.ledger().inquiries("tokens").count(), 1);
    until("another service gets a permit", async || {
        node.post("/v1/limits/paced/acquire", &json!({ "permits": 1 })).await.status == 200
    })
    .await;
    // A Redis that forgot everything gets the spent permits back from the ledger.
    redis.flush().await.unwrap();
    for name in names {
        scratch.insert(name, &format!("{name}-later-"), 10).await;
    }
    until("all have succeeded after a flush", async || scratch.count(State::Succeeded).await == 100).await;
    let mut own = redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let denied: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query_async(&mut own).await.unwrap();
    assert!(denied.is_empty(), "{denied:?}");
    let mut user = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    for words in [&["SET", "other", "1"][..], &["FLUSHALL"], &["KEYS", "*"], &["CONFIG", "GET", "*"]] {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        assert!(command.query_async::<redis::Value>(&mut user).await.is_err(), "{words:?}");
    }
    node.stop().await;
    redis.stop().await.unwrap();
}
