//! Nothing is sent because of a server or the nodes.

use std::io::Write;

use hyper::Method;
use jiff::SignedDuration;
use playground::forward::Forward;
use playground::{PrivateRedis, RedisOptions, Weather};
use refundd::caller::token::Token;
use refundd::config::Config;
use refundd::refund::State;
use sqlx::{Connection, Executor};

use super::watch::Watch;
use super::{LIMITED, health_says, healthy, status_says};
use crate::cli::{file, refundd, text};
use crate::harness::http::get;
use crate::harness::node::refund;
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn a_server_that_takes_no_writes_any_more() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    let name = &scratch.name;
    scratch.sql(&format!("alter database {name} set default_transaction_read_only = on")).await;
    SERVERS.postgres.terminate_backends(name).await.unwrap();
    watch.fires("RefunddPostgresAway").await;
    health_says(&node, 503, "default_transaction_read_only").await;
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 503);
    let status = refundd(file(&scratch.file("s", LIMITED)).path(), &["status"]);
    assert!(
        !status.status.success() && text(&status).contains("default_transaction_read_only"),
        "{status:?}"
    );
    let mut mender = scratch.connect().await;
    mender.execute("set default_transaction_read_only = off").await.unwrap();
    let mend = sqlx::AssertSqlSafe(format!("alter database {name} reset default_transaction_read_only"));
    mender.execute(mend).await.unwrap();
    watch.is_quiet().await;
    health_says(&node, 200, "\"ready\"").await;
    node.stop().await;
}

#[tokio::test]
async fn postgres_is_away_for_a_node_that_runs_and_for_one_that_starts() {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let config = |name: &str| {
        let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = scratch.file(name, LIMITED).replace(&scratch.database_url, &around);
        let text = text.replace("127.0.0.1:0", &listen.to_string());
        (text, listen)
    };
    let parsed =
        |text: &str| Config::parse(text, "t.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let (text_of_a, address) = config("a");
    let node = TestNode::run(parsed(&text_of_a)).await;
    let mut watch = Watch::at([address]);
    watch.is_quiet().await;
    way.set(Weather::Closed);
    watch.fires("RefunddPostgresAway").await;
    assert_eq!(get(address, "/health/ready").await.unwrap().0, 503);
    let status = refundd(file(&text_of_a).path(), &["status"]);
    assert!(!status.status.success() && text(&status).contains("Postgres"), "{status:?}");
    let (text_of_b, address) = config("b");
    let starting = TestNode::run(parsed(&text_of_b));
    let mut watch = Watch::at([address]);
    let mending = async {
        watch.fires("RefunddPostgresAway").await;
        let (code, said) = get(address, "/health/ready").await.unwrap();
        assert!(code == 503 && said.contains("starting"), "{said}");
        way.set(Weather::Fair);
    };
    let (other, ()) = tokio::join!(starting, mending);
    watch.is_quiet().await;
    for node in [node, other] {
        node.stop().await;
    }
}

/// Postgres answers, and the disk has no place for what it is to write.
#[tokio::test]
async fn the_disk_of_postgres_is_full() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    for sql in [
        "create function refundd.full_disk() returns trigger language plpgsql as $$ begin raise disk_full; end $$",
        "create trigger full_disk before insert or update on refundd.nodes for each row execute function refundd.full_disk()",
    ] {
        scratch.sql(sql).await;
    }
    watch.fires("RefunddPostgresAway").await;
    health_says(&node, 503, "took no heartbeat").await;
    scratch.sql("drop trigger full_disk on refundd.nodes").await;
    watch.is_quiet().await;
    health_says(&node, 200, "\"ready\"").await;
    node.stop().await;
}

#[tokio::test]
async fn redis_is_down() {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    redis.kill_hard().await.unwrap();
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddRedisAway").await;
    health_says(&node, 200, "Redis is away").await;
    status_says(&scratch, LIMITED, &["blocked", "Redis is away"]).await;
    assert_eq!(node.post("/v1/refunds", &refund("S-1", "acme")).await.status, 201, "refunds are still saved");
    redis.restart(None).await.unwrap();
    until("all are sent", async || scratch.count(State::Succeeded).await == 7).await;
    watch.is_quiet().await;
    node.stop().await;
}

/// One way in which Redis refuses: the commands that begin and end it, and what its error says.
async fn redis_refuses(begin: &[&str], end: &[&str], said: &str) {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    let mut client = client(&redis).await;
    say(&mut client, begin).await;
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddRedisAway").await;
    health_says(&node, 200, "degraded").await;
    health_says(&node, 200, said).await;
    status_says(&scratch, LIMITED, &["blocked", "Redis is away or refuses", said]).await;
    assert_eq!(node.post("/v1/refunds", &refund("S-1", "acme")).await.status, 201, "refunds are still saved");
    say(&mut client, end).await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 7).await;
    watch.is_quiet().await;
    node.stop().await;
}

async fn client(redis: &PrivateRedis) -> redis::aio::MultiplexedConnection {
    redis::Client::open(redis.admin_url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

async fn say(client: &mut redis::aio::MultiplexedConnection, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.query_async::<()>(client).await.unwrap();
}

#[tokio::test]
async fn redis_is_out_of_memory() {
    let set = |bytes| ["CONFIG", "SET", "maxmemory", bytes];
    redis_refuses(&set("1"), &set("0"), "command not allowed when used memory").await;
}

#[tokio::test]
async fn redis_refuses_scripts() {
    let set = |rule| ["ACL", "SETUSER", "refundd", rule];
    redis_refuses(&set("-evalsha"), &set("+evalsha"), "no permissions").await;
}

#[tokio::test]
async fn redis_is_a_replica() {
    let follow = |host, port| ["REPLICAOF", host, port];
    redis_refuses(&follow("127.0.0.1", "1"), &follow("NO", "ONE"), "read only replica").await;
}

/// A connection asks for `INFO` when it begins.
#[tokio::test]
async fn redis_refuses_to_say_what_it_is() {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    let mut own = client(&redis).await;
    say(&mut own, &["ACL", "SETUSER", "refundd", "-info"]).await;
    say(&mut own, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddRedisAway").await;
    health_says(&node, 200, "degraded").await;
    status_says(&scratch, LIMITED, &["blocked", "Redis is away or refuses", "can't run this command"]).await;
    say(&mut own, &["ACL", "SETUSER", "refundd", "+info"]).await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 6).await;
    watch.is_quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn redis_and_postgres_have_other_clocks() {
    let redis =
        PrivateRedis::start_with(&RedisOptions { clock: true, ..RedisOptions::default() }).await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    redis.step_clock(SignedDuration::from_secs(60)).await.unwrap();
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddClocksApart").await;
    health_says(&node, 200, "nothing is sent until they agree").await;
    status_says(&scratch, LIMITED, &["blocked", "nothing is sent until they agree"]).await;
    assert_eq!(scratch.count(State::Succeeded).await, 1);
    node.stop().await;
    redis.stop().await.unwrap();
}

/// Postgres answers and takes heartbeats, and no claim.
#[tokio::test]
async fn somebody_locks_the_ledger() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.permits in share mode").await.unwrap();
    scratch.insert("acme", "R-", 5).await;
    watch.fires("RefunddChannelBlocked").await;
    health_says(&node, 200, "channel acme is blocked").await;
    status_says(&scratch, LIMITED, &["blocked", "acme is blocked on node a: failed to claim"]).await;
    lock.rollback().await.unwrap();
    until("all are sent", async || scratch.count(State::Succeeded).await == 6).await;
    watch.is_quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_is_gone_and_then_the_last_one() {
    let scratch = Scratch::new().await;
    let nodes = ["a", "b"].map(|name| TestNode::start(&scratch, name, LIMITED));
    let [a, b] = futures_util::future::join_all(nodes).await.try_into().ok().unwrap();
    let mut watch = Watch::on([&a, &b]);
    watch.is_quiet().await;
    a.stop().await;
    watch.fires("RefunddNodeGone").await;
    b.stop().await;
    watch.fires("RefunddNoNode").await;
    scratch.insert("acme", "R-", 1).await;
    status_says(&scratch, LIMITED, &["not run", "no living node runs it"]).await;
}

/// A node that knows this token of the caller `shop`, and a watch on it.
async fn guarded(scratch: &Scratch, token: &Token, expires: jiff::Timestamp) -> (TestNode, Watch) {
    let mut tokens = tempfile::NamedTempFile::new().unwrap();
    writeln!(tokens, "{}", token.stored(expires)).unwrap();
    let channels = format!(
        "{LIMITED}[caller.shop]\ntokens_file = \"{}\"\nmay = [\"enqueue\"]\nchannels = [\"acme\"]\n",
        tokens.path().display()
    );
    let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text =
        scratch.file("a", &channels).replace("[http]\n", &format!("[http]\nadmin_listen = \"{admin}\"\n"));
    let node = TestNode::run(Config::parse(&text, "t.toml", &|_| None).unwrap()).await;
    // Prometheus reads the metrics at `admin_listen`, where nobody needs a token.
    let mut watch = Watch::at([admin]);
    watch.is_quiet().await;
    (node, watch)
}

#[tokio::test]
async fn a_program_goes_on_with_a_wrong_token() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = guarded(&scratch, &Token::mint().unwrap(), jiff::Timestamp::MAX).await;
    let refused = async || assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 401);
    refused().await;
    watch.is_quiet().await;
    for _ in 0..12 {
        refused().await;
    }
    watch.fires("RefunddCallersRefused").await;
    node.stop().await;
}

#[tokio::test]
async fn a_producer_of_few_refunds_asks_once_with_an_expired_token() {
    let scratch = Scratch::new().await;
    let token = Token::mint().unwrap();
    let (node, mut watch) = guarded(&scratch, &token, jiff::Timestamp::UNIX_EPOCH).await;
    let bearer = format!("Bearer {}", token.expose());
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    let body = refund("R-1", "acme").to_string();
    let answer = node.request_with(Method::POST, "/v1/refunds", &headers, &body).await;
    assert_eq!(answer.status, 401, "{answer:?}");
    watch.fires("RefunddTokenExpired").await;
    assert!(!watch.holds("RefunddCallersRefused"), "one alarm is enough");
    node.stop().await;
}

#[tokio::test]
async fn a_reload_is_refused() {
    let scratch = Scratch::new().await;
    let mut node = crate::harness::NodeProcess::start(&scratch, "a", LIMITED);
    let address = node.address().unwrap().parse().unwrap();
    let mut watch = Watch::at([address]);
    watch.is_quiet().await;
    node.rewrite("[node]\nname = 7\n");
    node.signal(rustix::process::Signal::HUP);
    node.wait_for_line("not taken over");
    watch.fires("RefunddReloadRefused").await;
}
