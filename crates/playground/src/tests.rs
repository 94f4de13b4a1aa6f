//! Tests with real servers, and with a real process that starts servers and is killed.

#[cfg(target_os = "linux")]
mod install;
mod remains;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, PgConnection, Row};

use super::*;

const A_WHILE: Duration = Duration::from_secs(30);

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < A_WHILE, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Whether a process runs. A zombie does not run.
fn runs(pid: u32) -> bool {
    if Path::new("/proc/self/stat").exists() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        return stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'));
    }
    let out = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
    let stat = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    !stat.is_empty() && !stat.starts_with('Z')
}

#[tokio::test]
async fn a_promoted_standby_takes_over_the_address_with_all_that_was_committed() {
    let server = PrivatePostgres::start().await.unwrap();
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    sqlx::query("create table kept (n int)").execute(&mut connection).await.unwrap();
    for promotions in 1..=2 {
        sqlx::query("insert into kept values (1)").execute(&mut connection).await.unwrap();
        server.fail_over(Duration::ZERO).await.unwrap();
        connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
        let look = "select count(*), (select timeline_id from pg_control_checkpoint()) from kept";
        let row = sqlx::query(look).fetch_one(&mut connection).await.unwrap();
        assert_eq!((row.get::<i64, _>(0), row.get::<i32, _>(1)), (promotions.into(), 1 + promotions));
    }
    connection.close().await.unwrap();
    server.stop().await.unwrap();
}

/// Kills the process of a new connection. `None` while the server ends or refuses connections after another crash.
async fn killed_connection(server: &PrivatePostgres) -> Option<PgConnection> {
    let mut connection = PgConnection::connect(&server.url("postgres")).await.ok()?;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await.ok()?;
    let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    killed.success().then_some(connection)
}

#[tokio::test]
async fn a_statement_of_the_owner_waits_for_a_postgres_that_recovers_from_a_crash() {
    let server = PrivatePostgres::start_with(&PostgresOptions::for_tests()).await.unwrap();
    for _ in 0..5 {
        let began = Instant::now();
        let mut ended = loop {
            if let Some(connection) = killed_connection(&server).await {
                break connection;
            }
            assert!(began.elapsed() < A_WHILE, "no connection could be killed");
        };
        ended.execute("select pg_sleep(60)").await.unwrap_err();
        server.say("postgres", "create table if not exists kept (n int)").await.unwrap();
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_private_postgres_makes_databases_and_leaves_nothing() {
    let server = PrivatePostgres::start_with(&PostgresOptions::for_tests()).await.unwrap();
    let (folder, pid) = (server.folder().to_owned(), server.pid());
    server.create_database("original", None).await.unwrap();
    {
        let mut connection = PgConnection::connect(&server.url("original")).await.unwrap();
        sqlx::query("create table kept (n int)").execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
    server.create_database("a \"copy\"", Some("original")).await.unwrap();
    server.create_database("copy", Some("original")).await.unwrap();
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    connection.execute("drop database original with (force)").await.unwrap();
    connection.close().await.unwrap();

    server.restart().await.unwrap();
    assert!(!runs(pid));
    let pid = server.pid();
    let mut connection = PgConnection::connect(&server.url("copy")).await.unwrap();
    let row = sqlx::query(
        "select count(*), current_setting('max_connections'), current_setting('fsync') from kept",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(row.get::<i64, _>(0), 0);
    assert_eq!((row.get::<&str, _>(1), row.get::<&str, _>(2)), ("300", "off"));

    server.stop().await.unwrap();
    assert!(!runs(pid) && !folder.exists());
}

fn words_of(value: &::redis::Value) -> Vec<String> {
    ::redis::from_redis_value_ref::<String>(value)
        .map(|argument| vec![argument])
        .or_else(|_| ::redis::from_redis_value_ref(value))
        .unwrap()
}

#[tokio::test]
async fn a_private_redis_comes_back_at_its_address_empty_or_with_old_memory() {
    let server = PrivateRedis::start_with(&RedisOptions { tcp: true, open: true, ..Default::default() })
        .await
        .unwrap();
    let (folder, first) = (server.folder().to_owned(), server.pid());
    for url in [server.url(), server.tcp_url().unwrap()] {
        let client = ::redis::Client::open(url).unwrap();
        let ask = async |command: &str| {
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let mut words = command.split(' ');
            let mut cmd = ::redis::cmd(words.next().unwrap());
            words.for_each(|argument| {
                cmd.arg(argument);
            });
            let value: ::redis::Value = cmd.query_async(&mut connection).await.unwrap();
            words_of(&value)
        };
        assert_eq!(ask("LPUSH line a b").await, ["2"]);
        let old = server.snapshot().await.unwrap();
        assert_eq!(ask("LPUSH line c").await, ["3"]);
        server.kill_hard().await.unwrap();
        assert!(client.get_multiplexed_async_connection().await.is_err());
        server.restart(Some(&old)).await.unwrap();
        assert_eq!(ask("LRANGE line 0 -1").await, ["b", "a"]);
        server.restart(None).await.unwrap();
        assert!(ask("LRANGE line 0 -1").await.is_empty());
        assert_eq!(ask("CONFIG GET maxmemory-policy").await, ["maxmemory-policy", "noeviction"]);
    }
    let last = server.pid();
    assert_ne!(first, last);
    server.stop().await.unwrap();
    assert!(!runs(first) && !runs(last) && !folder.exists());
}

#[tokio::test]
async fn the_clock_of_a_private_redis_is_stepped_both_ways_and_outlives_its_process() {
    use jiff::SignedDuration;
    let options = RedisOptions { clock: true, ..Default::default() };
    let server = PrivateRedis::start_with(&options).await.unwrap_or_else(|error| panic!("{error}"));
    let client = ::redis::Client::open(server.admin_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    // A key with an expiry shows whether the server uses the stepped clock for it too.
    let () =
        ::redis::cmd("SET").arg("k").arg("v").arg("EX").arg(30).query_async(&mut connection).await.unwrap();
    for (by_ms, ahead_ms) in [(4_250, 4_250), (-10, 4_240), (-8_240, -4_000), (4_000, 0)] {
        let ahead = server.step_clock(SignedDuration::from_millis(by_ms)).await.unwrap();
        assert_eq!(ahead, SignedDuration::from_millis(ahead_ms));
    }
    let kept: Option<String> = ::redis::cmd("GET").arg("k").query_async(&mut connection).await.unwrap();
    assert_eq!(kept.as_deref(), Some("v"));
    server.step_clock(SignedDuration::from_secs(60)).await.unwrap();
    let kept: Option<String> = ::redis::cmd("GET").arg("k").query_async(&mut connection).await.unwrap();
    assert_eq!(kept, None, "it is a minute later for the server");
    server.restart(None).await.unwrap();
    assert_eq!(server.step_clock(SignedDuration::ZERO).await.unwrap(), SignedDuration::from_secs(60));
    let names = [format!("faketime_shm_{}", server.pid()), format!("sem.faketime_sem_{}", server.pid())];
    until("libfaketime's names are gone", || {
        names.iter().all(|name| !Path::new("/dev/shm").join(name).exists())
    });
    server.stop().await.unwrap();
    assert!(PrivateRedis::start().await.unwrap().step_clock(SignedDuration::from_secs(1)).await.is_err());
}

#[tokio::test]
async fn a_replica_takes_over_with_what_it_had_while_the_address_stays() {
    let pair = RedisPair::start(&RedisOptions { open: true, ..Default::default() }, 2).await.unwrap();
    let clients = [0, 1].map(|door| ::redis::Client::open(pair.url(door)).unwrap());
    let ask = async |door: usize, words: &str| {
        let mut connection = clients[door].get_multiplexed_async_connection().await.unwrap();
        let mut words = words.split(' ');
        let mut cmd = ::redis::cmd(words.next().unwrap());
        words.for_each(|argument| {
            cmd.arg(argument);
        });
        cmd.query_async::<i64>(&mut connection).await.unwrap()
    };
    assert_eq!(ask(0, "INCR n").await, 1);
    pair.attach().await.unwrap();
    pair.sever().await.unwrap();
    assert_eq!(ask(1, "INCR n").await, 2);
    let old = pair.primary().pid();
    pair.promote().await.unwrap();
    assert!(!runs(old));
    assert_eq!(ask(0, "INCR n").await, 2, "the replica did not have the last write");

    pair.attach().await.unwrap();
    pair.split(&[1]).await.unwrap();
    assert_eq!((ask(0, "INCR n").await, ask(1, "INCR n").await), (3, 3), "each counts alone");
    assert_eq!(ask(1, "INCR n").await, 4);
    pair.heal().await.unwrap();
    assert_eq!((ask(0, "INCR n").await, ask(1, "INCR n").await), (5, 6));
    pair.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_refuses_its_settings_says_so_with_its_log() {
    let options = PostgresOptions {
        settings: vec![("shared_buffers".to_owned(), "none".to_owned())],
        ..PostgresOptions::for_tests()
    };
    let error = PrivatePostgres::start_with(&options).await.unwrap_err();
    assert!(matches!(error, PlaygroundError::Died { .. }), "{error:?}");
    assert!(error.to_string().contains("shared_buffers"), "{error}");
}
