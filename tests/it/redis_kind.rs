//! A Redis of another kind than its address says: one server, the sentinels of one, or a cluster.

use std::time::Duration;

use playground::{PrivateRedis, RedisCluster, RedisOptions, RedisPair, Sentinels};
use refundd::bucket::{Bucket, ClearText, End, ServerTrust};
use refundd::daemon::Daemon;
use refundd::refund::{ChannelName, RefundId, State};

use crate::cli::{file, refundd, text};
use crate::harness::{Scratch, TestNode, node::refund, until};

const CHANNEL: &str = "[limit.acme]\npermits = 20\nper = \"1s\"\n[channel.acme]\n\
    endpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";

async fn one_server() -> (PrivateRedis, String) {
    let redis =
        PrivateRedis::start_with(&RedisOptions { tcp: true, ..RedisOptions::default() }).await.unwrap();
    let host = redis.tcp_url().unwrap().replace("redis://", "");
    (redis, host) // with the login
}

/// Neither a node nor `status` takes it for an outage, and what was saved waits.
async fn is_refused(url: &str, way_out: &str) {
    let scratch = Scratch::with_redis(url.to_owned()).await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 3).await;
    let file = file(&scratch.file("a", CHANNEL));
    let check = refundd(file.path(), &["check"]);
    assert!(check.status.success(), "it asks no server: {}", text(&check));
    let named = format!("[redis] url = \"{}\"", url.replace("CHANGE-ME", "****"));
    let run = Daemon::start(scratch.config("a", CHANNEL), || {}).await.map(drop).unwrap_err().to_string();
    assert!(run.contains(&named) && run.contains(way_out), "{run}");
    let status = refundd(file.path(), &["status"]);
    assert!(status.status.success(), "{}", text(&status));
    for words in [&named, way_out, "refunds are saved and wait"] {
        assert!(text(&status).contains(words), "`{words}` is missing: {}", text(&status));
    }
    assert_eq!(scratch.count(State::Ready).await, 3);
}

#[tokio::test]
async fn an_address_of_another_kind_of_redis_is_refused_by_name_and_with_the_way_out() {
    let (plain, host) = one_server().await;
    let cluster = RedisCluster::start(&RedisOptions::default()).await.unwrap();
    let node = cluster.server(0).tcp_url().unwrap().replace("redis://", "");
    let clustered = format!("redis-cluster://{host}");
    is_refused(&clustered, "write redis://").await;
    let here = format!("redis://{node}");
    is_refused(&here, "write redis-cluster://").await;
    for host in [&host, &node] {
        let watched = format!("redis+sentinel://{host}/main");
        is_refused(&watched, "name the sentinels").await;
    }
    cluster.stop().await.unwrap();
    plain.stop().await.unwrap();
}

#[tokio::test]
async fn an_address_that_leads_to_sentinels_is_refused_too() {
    let pair = RedisPair::start(&RedisOptions::default(), 1).await.unwrap();
    pair.attach().await.unwrap();
    let sentinels = Sentinels::watch(pair.primary()).await.unwrap();
    let url = sentinels.url();
    // The login is for the primary; sentinels have users of their own.
    let (hosts, _) = url.split_once('@').unwrap().1.split_once('/').unwrap();
    let first = format!("redis://{}", hosts.split(',').next().unwrap());
    is_refused(&first, "write redis+sentinel://").await;
    let clustered = format!("redis-cluster://{hosts}");
    is_refused(&clustered, "with its sentinels").await;
    sentinels.stop().await.unwrap();
    pair.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_that_finds_another_kind_of_redis_later_says_so_and_goes_on_saving() {
    let (plain, host) = one_server().await;
    plain.kill_hard().await.unwrap();
    let scratch = Scratch::with_redis(format!("redis-cluster://{host}")).await;
    // Nothing answers: that may well be a cluster.
    let node = TestNode::start(&scratch, "a", CHANNEL).await;
    plain.restart(None).await.unwrap();
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 201);
    until("health says what is wrong", async || {
        let health = node.get("/health/ready").await;
        health.status == 200 && health.text.contains("no node of a cluster; write redis://")
    })
    .await;
    node.stop().await;
    assert_eq!(scratch.count(State::Ready).await, 1);
    plain.stop().await.unwrap();
}

#[tokio::test]
async fn status_tells_the_lines_of_a_whole_cluster_and_of_what_is_left_of_one() {
    let cluster = RedisCluster::start(&RedisOptions::default()).await.unwrap();
    let scratch = Scratch::with_redis(cluster.url()).await;
    let names: Vec<String> = (0..6).map(|nth| format!("c{nth}")).collect();
    // A slot group has the name of its limit, not the channel's.
    let channel = |name: &String| {
        CHANNEL
            .replace("[limit.acme]", "[limit.of-acme]")
            .replace("[\"acme\"]", "[\"of-acme\"]")
            .replace("acme", name)
    };
    let channels: String = names.iter().map(channel).collect();
    let (config, bucket) = (scratch.config("a", &channels), scratch.bucket());
    let limits = config.limits.values().map(AsRef::as_ref);
    bucket.group(config.channels.values().map(AsRef::as_ref), limits);
    let ids: Vec<RefundId> = (1..=7).map(RefundId).collect();
    for channel in config.channels.keys() {
        scratch.publish(channel.as_str()).await;
        bucket.fill(channel, &ids, End::Back, 100).await.unwrap();
    }
    let file = file(&scratch.file("a", &channels));
    let lines = || {
        let status: serde_json::Value =
            serde_json::from_slice(&refundd(file.path(), &["status", "--json"]).stdout).unwrap();
        let depth = |nth: usize| status["channels"][nth]["in_line"].as_u64();
        ((0..names.len()).map(depth).collect::<Vec<_>>(), status["redis_trouble"].clone())
    };
    assert_eq!(lines(), (vec![Some(7); 6], serde_json::Value::Null));
    let lost = cluster.owner(cluster.slot_of("of-c0").await.unwrap()).await.unwrap();
    cluster.server(lost).kill_hard().await.unwrap();
    let (depths, trouble) = lines();
    for (name, depth) in names.iter().zip(depths) {
        let owner = cluster.owner(cluster.slot_of(&format!("of-{name}")).await.unwrap()).await;
        assert_eq!(depth, owner.map(|_| 7), "{name}");
    }
    assert!(trouble.is_string(), "{trouble}");
    cluster.stop().await.unwrap();
}

/// What the first call says to this Redis.
async fn first_call(url: &str, clear_text: ClearText) -> Result<u64, String> {
    let scratch = Scratch::with_redis(url.to_owned()).await;
    let trust = ServerTrust { clear_text, ..ServerTrust::default() };
    let bucket = Bucket::open(url, trust, &scratch.key_prefix(), Duration::from_secs(5)).unwrap();
    let acme = ChannelName::new("acme").unwrap();
    let filled = bucket.fill(&acme, &[RefundId(1)], End::Back, 100).await;
    filled.map_err(|error| refundd::telemetry::chain(&error).to_string())
}

/// The kernel connects to no broadcast address, so nothing leaves this machine.
#[tokio::test]
async fn a_primary_on_another_host_that_sentinels_name_is_not_reached_in_clear_text() {
    let pair = RedisPair::start(&RedisOptions::default(), 1).await.unwrap();
    pair.attach().await.unwrap();
    let sentinels = Sentinels::watch(pair.primary()).await.unwrap();
    sentinels.watch_also("elsewhere", "255.255.255.255", pair.primary()).await.unwrap();
    let url = sentinels.url().replace(Sentinels::MASTER, "elsewhere");
    let refused = first_call(&url, ClearText::ThisHostOnly).await.unwrap_err();
    for words in ["`255.255.255.255` on another host", "rediss+sentinel://", "plain = \"accepted\""] {
        assert!(refused.contains(words) && !refused.contains("CHANGE-ME"), "{refused}");
    }
    let tried = first_call(&url, ClearText::Accepted).await.unwrap_err();
    assert!(!tried.contains("on another host"), "{tried}");
    assert_eq!(first_call(&sentinels.url(), ClearText::ThisHostOnly).await, Ok(1));
    sentinels.stop().await.unwrap();
    pair.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_on_another_host_that_a_cluster_names_is_not_reached_in_clear_text() {
    let names =
        [("cluster-announce-hostname", "elsewhere.invalid"), ("cluster-preferred-endpoint-type", "hostname")];
    let settings = names.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster = RedisCluster::start(&RedisOptions { settings, ..RedisOptions::default() }).await.unwrap();
    let refused = first_call(&cluster.url(), ClearText::ThisHostOnly).await.unwrap_err();
    for words in ["`elsewhere.invalid` on another host", "rediss+cluster://", "plain = \"accepted\""] {
        assert!(refused.contains(words) && !refused.contains("CHANGE-ME"), "{refused}");
    }
    cluster.stop().await.unwrap();
}
