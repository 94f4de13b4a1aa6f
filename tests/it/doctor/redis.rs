//! Findings about Redis, and about clocks that differ.

use jiff::{SignedDuration, ToSpan, Zoned};
use playground::{Authority, PostgresOptions, PrivatePostgres, PrivateRedis, RedisOptions};

use super::{NO_POSTGRES, NO_REDIS, config, examine, finding, is_found, is_well};
use crate::server_tls::{BOTH, redis_with};

fn config_of(url: &str) -> String {
    config(NO_POSTGRES, url, "")
}

async fn say(redis: &PrivateRedis, words: &str) {
    let client = ::redis::Client::open(redis.admin_url()).unwrap();
    let mut admin = client.get_multiplexed_async_connection().await.unwrap();
    let mut words = words.split(' ');
    let mut command = ::redis::cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>());
    command.query_async::<::redis::Value>(&mut admin).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_evicts_or_is_full_or_is_a_replica_is_found() {
    let settings = vec![("maxmemory-policy".to_owned(), "allkeys-lru".to_owned())];
    let options = RedisOptions { settings, ..RedisOptions::default() };
    let redis = PrivateRedis::start_with(&options).await.unwrap();
    let (report, _) = examine(&config_of(&redis.url()));
    is_found(&report, "warning", "redis.settings", "maxmemory-policy = allkeys-lru");
    is_well(&report, "redis.rights", "cannot administer");
    say(&redis, "CONFIG SET maxmemory-policy noeviction").await;
    say(&redis, "CONFIG SET maxmemory 1mb").await;
    let (report, code) = examine(&config_of(&redis.url()));
    is_found(&report, "warning", "redis.settings", "of 1048576 bytes of memory are used");
    is_found(&report, "broken", "redis.rights", "OOM");
    assert_eq!(code, 1);
    say(&redis, "CONFIG SET maxmemory 0").await;
    redis.demote().await.unwrap();
    let (report, _) = examine(&config_of(&redis.url()));
    is_found(&report, "broken", "redis.reach", "is a replica");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_user_with_too_many_or_too_few_rights_is_found() {
    let redis = PrivateRedis::start().await.unwrap();
    let (report, _) = examine(&config_of(&redis.admin_url()));
    is_found(&report, "warning", "redis.rights", "may administer");
    let weak = "ACL SETUSER weak on >weak resetchannels ~refundd:* -@all +evalsha +eval +script|load +time +info +ping +llen";
    say(&redis, weak).await;
    let url = redis.url().replace("user=refundd&pass=CHANGE-ME", "user=weak&pass=weak");
    let (report, _) = examine(&config_of(&url));
    is_found(&report, "broken", "redis.rights", "ZADD");
    let found = finding(&report, "redis.rights", "ZADD")["found"].as_str().unwrap();
    assert!(!found.contains("LLEN:") && !found.contains("TIME:"), "the user may do these: {found}");
    // Keys outside of those that the user may use.
    let other = config_of(&redis.url()).replace("refundd:doctor", "other");
    let (report, _) = examine(&other);
    is_found(&report, "broken", "redis.rights", "no permissions to access one of the keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_kind_of_address_is_found() {
    let redis =
        PrivateRedis::start_with(&RedisOptions { tcp: true, ..RedisOptions::default() }).await.unwrap();
    let url = redis.tcp_url().unwrap().replace("redis://", "redis-cluster://");
    let (report, _) = examine(&config_of(&url));
    is_found(&report, "broken", "redis.reach", "no node of a cluster");
    assert!(!report.to_string().contains("CHANGE-ME"), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_without_a_redis_is_named() {
    let (report, _) = examine(&config_of(NO_REDIS));
    is_found(&report, "broken", "redis.reach", "[redis] url = \"redis://127.0.0.1:1\" does not answer");
    is_found(&report, "broken", "redis.reach", "127.0.0.1:1: ");
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_differ_are_found_with_their_distance() {
    let options = PostgresOptions { clock: true, ..PostgresOptions::for_tests() };
    let (postgres, redis) = tokio::join!(PrivatePostgres::start_with(&options), PrivateRedis::start());
    let (postgres, redis) = (postgres.unwrap(), redis.unwrap());
    let config = config(&postgres.url("postgres"), &redis.url(), "");
    let (report, _) = examine(&config);
    is_well(&report, "clocks", "Redis");
    is_well(&report, "clocks", "this machine");
    postgres.step_clock(SignedDuration::from_millis(-600_300)).unwrap();
    let (report, code) = examine(&config);
    is_found(&report, "broken", "clocks", "the clock of Redis is 600.");
    is_found(&report, "warning", "clocks", "the clock of this machine is 600.");
    assert_eq!(code, 1);
    postgres.step_clock(SignedDuration::from_millis(596_800)).unwrap();
    let (report, _) = examine(&config);
    is_found(&report, "warning", "clocks", "the clock of Redis is 3.");
    is_well(&report, "clocks", "this machine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_redis_that_ends_soon_or_ended_is_found_with_its_day() {
    let authority = Authority::new().unwrap();
    let soon = Zoned::now().date().checked_add(10.days()).unwrap();
    for (pem, severity, words) in [
        (authority.pem_until(soon).unwrap(), "warning", soon.to_string()),
        (authority.expired_pem().unwrap(), "broken", "ended at 2020-01-01".to_owned()),
    ] {
        let (_redis, port, _folder) = redis_with(pem, &authority, BOTH).await;
        let url = format!("rediss://localhost:{port}\"\nca_file = \"{}", authority.file().display());
        let (report, _) = examine(&config_of(&url));
        is_found(&report, severity, "redis.tls", &words);
    }
}

#[test]
fn a_certificate_of_redis_that_could_not_be_looked_at_is_a_warning() {
    let (report, _) = examine(&config_of("rediss://127.0.0.1:1"));
    is_found(&report, "warning", "redis.tls", "the end of the certificate of 127.0.0.1:1 cannot be read");
}
