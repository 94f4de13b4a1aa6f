//! What the Redis user of `config/redis.acl` may do. Nodes of every test log in as this user.

use std::process::Command;

use playground::bank::Step;
use playground::{PrivateRedis, find};
use refundd::refund::State;
use serde_json::json;

use crate::harness::{Scratch, TestNode, until};

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
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
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
    // On a busy machine the ledger may be slower than a permit lives.
    until("a permit is granted", async || {
        node.post("/v1/limits/paced/acquire", &json!({ "permits": 1 })).await.status == 200
    })
    .await;
    // A Redis that forgot everything gets the spent permits back from the ledger.
    redis.flush().await.unwrap();
    for name in names {
        scratch.insert(name, &format!("{name}-later-"), 10).await;
    }
    until("all have succeeded after a flush", async || scratch.count(State::Succeeded).await == 100).await;
    let client = redis::Client::open(redis.admin_url()).unwrap();
    let mut own = client.get_multiplexed_async_connection().await.unwrap();
    let denied: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query_async(&mut own).await.unwrap();
    assert!(denied.is_empty(), "{denied:?}");
    let client = redis::Client::open(redis.url()).unwrap();
    let mut user = client.get_multiplexed_async_connection().await.unwrap();
    for words in [&["SET", "other", "1"][..], &["FLUSHALL"], &["KEYS", "*"], &["CONFIG", "GET", "*"]] {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        assert!(command.query_async::<redis::Value>(&mut user).await.is_err(), "{words:?}");
    }
    let nobody = redis::Client::open(redis.url().split('?').next().unwrap()).unwrap();
    let mut nobody = nobody.get_multiplexed_async_connection().await.unwrap();
    let refused = redis::cmd("TIME").query_async::<redis::Value>(&mut nobody).await.unwrap_err();
    assert_eq!(refused.code(), Some("NOAUTH"), "the user `default` is off: {refused}");
    node.stop().await;
    redis.stop().await.unwrap();
}

#[test]
fn no_redis_starts_with_the_shipped_user_before_it_has_a_password() {
    let folder = tempfile::tempdir().unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/redis.acl");
    let mut redis = Command::new("timeout");
    redis.arg("20").arg(find::redis().unwrap()).args(["--port", "0", "--aclfile", file, "--unixsocket"]);
    let redis = redis.arg(folder.path().join("redis.sock")).output().unwrap();
    let said = String::from_utf8_lossy(&redis.stdout);
    assert!(!redis.status.success() && said.contains("password hash"), "{said}");
}
