//! A Redis of another kind than its address says: one server, the sentinels of one, or a cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use playground::{PrivateRedis, RedisCluster, RedisOptions, RedisPair, Sentinels};
use refundd::bucket::{Bucket, ClearText, End, ServerTrust};
use refundd::daemon::Daemon;
use refundd::refund::{ChannelName, RefundId, State};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

/// A way to a server that can make it look like one of version 5.
struct Older {
    address: SocketAddr,
    is_old: Arc<AtomicBool>,
}

impl Older {
    async fn way_to(server: SocketAddr) -> Older {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, is_old) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(true)));
        let says_so = Arc::clone(&is_old);
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let says_so = Arc::clone(&says_so);
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    let ((mut from_caller, mut to_caller), (mut from_server, mut to_server)) =
                        (caller.into_split(), server.into_split());
                    let back = async {
                        let mut bytes = vec![0; 64 * 1024];
                        while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
                            let version = b"redis_version:";
                            let at = bytes[..read].windows(version.len()).position(|bytes| bytes == version);
                            if let Some(at) = at.filter(|_| says_so.load(Ordering::Relaxed)) {
                                bytes[at + version.len()] = b'5';
                            }
                            if to_caller.write_all(&bytes[..read]).await.is_err() {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = back => {}
                        _ = tokio::io::copy(&mut from_caller, &mut to_server) => {}
                    }
                });
            }
        });
        Older { address, is_old }
    }

    /// The login and the address of this way, for a server with that login and address.
    async fn to(host: &str) -> (Older, String) {
        let (login, place) = host.rsplit_once('@').unwrap();
        let older = Older::way_to(place.trim_end_matches('/').parse().unwrap()).await;
        let url = format!("{login}@{}", older.address);
        (older, url)
    }
}

const TOO_OLD: &str = "and refundd needs Redis 6.2 or later";

// The commands run while the ways go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_a_cluster_that_are_too_old_are_refused_with_the_way_out() {
    let (plain, host) = one_server().await;
    let (_way, old) = Older::to(&host).await;
    let alone = format!("redis://{old}");
    is_refused(&alone, TOO_OLD).await;
    let cluster = RedisCluster::start(&RedisOptions::default()).await.unwrap();
    let (_way, old) = Older::to(&cluster.server(0).tcp_url().unwrap().replace("redis://", "")).await;
    let clustered = format!("redis-cluster://{old}");
    is_refused(&clustered, TOO_OLD).await;
    cluster.stop().await.unwrap();
    plain.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_replaced_by_an_older_one_is_named_with_its_version_until_it_is_upgraded() {
    let (plain, host) = one_server().await;
    let (way, url) = Older::to(&host).await;
    way.is_old.store(false, Ordering::Relaxed);
    let scratch = Scratch::with_redis(format!("redis://{url}")).await;
    let node = TestNode::start(&scratch, "a", CHANNEL).await;
    scratch.insert("acme", "R-", 1).await;
    until("it is sent", async || scratch.count(State::Succeeded).await == 1).await;
    way.is_old.store(true, Ordering::Relaxed);
    plain.kill_hard().await.unwrap();
    plain.restart(None).await.unwrap();
    scratch.insert("acme", "S-", 1).await;
    until("health names the version", async || {
        let health = node.get("/health/ready").await;
        health.status == 200 && health.text.contains("version 5.") && health.text.contains(TOO_OLD)
    })
    .await;
    assert_eq!(scratch.count(State::Ready).await, 1);
    way.is_old.store(false, Ordering::Relaxed);
    until("it is sent", async || scratch.count(State::Succeeded).await == 2).await;
    node.stop().await;
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
    config.group(&bucket);
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
    filled.map_err(|error| refundd::logs::chain(&error).to_string())
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
    for words in ["`elsewhere.invalid` on another host", "rediss-cluster://", "plain = \"accepted\""] {
        assert!(refused.contains(words) && !refused.contains("CHANGE-ME"), "{refused}");
    }
    cluster.stop().await.unwrap();
}
