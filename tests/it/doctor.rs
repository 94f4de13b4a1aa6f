//! `refundd doctor`: each finding is provoked on real servers, and a healthy set-up has none.

mod banks;
mod callers;
mod copies;
mod machine;
mod notify;
mod postgres;
mod redis;
mod upkeep;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use playground::{Authority, PretendBank, PrivatePostgres, PrivateRedis};
use refundd::store::Store;
use serde_json::Value;
use sqlx::{Connection, Executor, PgConnection};

use crate::cli::{file, refundd, text};

/// What the command says of a configuration, and its exit code.
fn examine(config: &str) -> (Value, i32) {
    examine_file(file(config).path(), &[])
}

fn examine_file(path: &Path, more: &[&str]) -> (Value, i32) {
    let mut tries = 0;
    loop {
        tries += 1;
        let output = refundd(path, &[&["doctor", "--json"], more].concat());
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
        // Many tests at once can keep a small machine from answering in time.
        let is_slow = report.to_string().contains("did not answer all questions within");
        if !is_slow || tries == 4 {
            return (report, output.status.code().unwrap());
        }
    }
}

fn findings(report: &Value) -> &Vec<Value> {
    report["findings"].as_array().unwrap()
}

/// The finding of this check whose text has these words.
fn finding<'r>(report: &'r Value, check: &str, words: &str) -> &'r Value {
    let is_it = |finding: &&Value| {
        let all = format!("{} {}", finding["subject"], finding["found"].as_str().unwrap());
        finding["check"] == check && all.contains(words)
    };
    findings(report)
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("nothing about {check} says `{words}`: {report:#}"))
}

/// A finding with this severity, which says why it matters and what to do.
fn is_found(report: &Value, severity: &str, check: &str, words: &str) {
    let finding = finding(report, check, words);
    assert_eq!(finding["severity"], severity, "{finding:#}");
    for part in ["why", "way_out"] {
        assert!(finding[part].as_str().is_some_and(|text| text.len() > 10), "{part}: {finding:#}");
    }
}

fn is_well(report: &Value, check: &str, words: &str) {
    let finding = finding(report, check, words);
    assert_eq!(finding["severity"], "ok", "{finding:#}");
}

/// A configuration for these servers; `more` are further sections.
fn config(postgres: &str, redis: &str, more: &str) -> String {
    format!(
        "[http]\nlisten = \"127.0.0.1:0\"\nmax_connections = 16\n[postgres]\nurl = \"{postgres}\"\nconnections = 4\n\
         [redis]\nurl = \"{redis}\"\nkey_prefix = \"refundd:doctor\"\n{more}"
    )
}

/// A configuration with this Postgres and without Redis.
fn config_of(url: &str) -> String {
    config(url, NO_REDIS, "")
}

/// Nobody listens there.
const NO_POSTGRES: &str = "postgres://u@127.0.0.1:1/p";
const NO_REDIS: &str = "redis://127.0.0.1:1";

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_set_up_has_no_findings_and_nothing_is_sent_or_spent() {
    let (postgres, redis) = tokio::join!(PrivatePostgres::start(), PrivateRedis::start());
    let (postgres, redis) = (postgres.unwrap(), redis.unwrap());
    postgres.create_database("payments", None).await.unwrap();
    let owner = Store::open(&postgres.url("payments"), None, 2).unwrap();
    owner.migrate().await.unwrap();
    postgres.admit_nodes("payments").await.unwrap();
    let mut connection = PgConnection::connect(&postgres.url("payments")).await.unwrap();
    // As Postgres 15 and later have it.
    connection.execute("revoke create on schema public from public").await.unwrap();
    let authority = Authority::new().unwrap();
    let here = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let bank = PretendBank::start_secure(here, authority.identity().unwrap()).unwrap();
    let channels = authority.secured(
        "[limit.acme]\npermits = 20\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\n\
         limits = [\"acme\"]\ninquiry = { url = \"http://{bank}/acme/refunds/{request_id}\" }\n",
    );
    let channels = channels.replace("{bank}", &bank.address().to_string());
    let config = file(&config(&postgres.node_url("payments"), &redis.url(), &channels));
    let (report, code) = examine_file(config.path(), &[]);
    assert_eq!((&report["broken"], &report["warnings"], code), (&0.into(), &0.into(), 0), "{report:#}");
    for (check, words) in [
        ("postgres.reach", "takes writes"),
        ("postgres.settings", "fsync = on"),
        ("postgres.settings", "connections"),
        ("postgres.schema", "version"),
        ("postgres.rights", "no others"),
        ("postgres.data", "one way on every host"),
        ("postgres.data", "no sequence is behind"),
        ("postgres.roles", "name roles"),
        ("postgres.roles", "and in another database"),
        ("postgres.snapshots", "older than 30 minutes"),
        ("postgres.partitions", "no row"),
        ("postgres.tls", "Unix socket"),
        ("redis.reach", "version"),
        ("redis.settings", "noeviction"),
        ("redis.rights", "cannot administer"),
        ("redis.tls", "this host"),
        ("clocks", "Redis"),
        ("clocks", "this machine"),
        ("bank", "is connected in"),
        ("bank", "ends in"),
        ("bank", "endpoint and inquiry.url"),
        ("host.files", "0600"),
        ("host.open_files", "16 for callers"),
        ("configuration", "is valid"),
    ] {
        is_well(&report, check, words);
    }
    let page = text(&refundd(config.path(), &["doctor"]));
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert!(page.contains("0 broken, 0 warnings"), "{page}");
    assert_eq!(bank.ledger().all().len(), 0, "no request may reach the bank");
    let permits: i64 =
        sqlx::query_scalar("select count(*) from refundd.permits").fetch_one(&mut connection).await.unwrap();
    assert_eq!(permits, 0);
    let client = ::redis::Client::open(redis.admin_url()).unwrap();
    let mut admin = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query_async(&mut admin).await.unwrap();
    assert_eq!(keys, Vec::<String>::new(), "the trial of rights leaves no key");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_do_not_answer_hide_no_other_finding() {
    // Accepts connections and never says a word.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = silent.local_addr().unwrap();
    let bank = PretendBank::start_here().unwrap();
    let channels = |timeout: &str| {
        format!(
            "[channel.gone]\nendpoint = \"http://127.0.0.1:1/refunds\"\nlimits = []\n[channel.silent]\n\
             endpoint = \"https://{silent}/refunds\"\nlimits = []\nconnect_timeout = \"{timeout}\"\n\
             [channel.well]\nendpoint = \"http://{}/well/refunds\"\nlimits = []\n",
            bank.address()
        )
    };
    for (postgres, redis) in [
        (NO_POSTGRES.to_owned(), NO_REDIS.to_owned()),
        (format!("postgres://u@{silent}/p"), format!("redis://{silent}")),
    ] {
        let began = std::time::Instant::now();
        let (report, code) = examine(&config(&postgres, &redis, &channels("1s")));
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
        assert_eq!(code, 1);
        is_found(&report, "broken", "postgres.reach", "Postgres");
        is_found(&report, "broken", "redis.reach", "Redis");
        is_found(&report, "broken", "bank", "`gone`");
        is_found(&report, "broken", "bank", "`silent`");
        is_found(&report, "broken", "bank", "agree on TLS with 127.0.0.1 within 1s");
        is_well(&report, "bank", "`well`");
        is_well(&report, "host.files", "0600");
    }
}

#[test]
fn clear_text_beyond_this_host_is_found_on_each_way() {
    let channel = "[channel.acme]\nendpoint = \"http://bank.invalid/refunds\"\nlimits = []\nplain_http = \"accepted\"\n";
    let text = config("postgres://u@db.invalid/p", "redis://cache.invalid", channel)
        .replace("connections = 4", "connections = 4\nplain = \"accepted\"")
        .replace("key_prefix", "plain = \"accepted\"\nkey_prefix");
    let (report, code) = examine(&text);
    assert_eq!(code, 1, "nobody is there");
    is_found(&report, "warning", "postgres.tls", "db.invalid");
    is_found(&report, "warning", "redis.tls", "cache.invalid");
    is_found(&report, "warning", "bank", "reached in clear text");
}

#[test]
fn a_configuration_that_cannot_be_used_is_reported_with_each_fault() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("authorization");
    std::fs::File::create(&secret).unwrap().write_all(b"Bearer canary-4f1d").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o644)).unwrap();
    let channel = format!(
        "[channel.acme]\nendpoint = \"http://127.0.0.1:9/\"\nlimits = []\ntime_limit = \"1s\"\nauthorization_file = \"{}\"\n",
        secret.display()
    );
    let (report, code) = examine(&config(NO_POSTGRES, NO_REDIS, &channel));
    assert_eq!((code, findings(&report).len()), (1, 2), "{report:#}");
    is_found(&report, "broken", "configuration", "time_limit");
    is_found(&report, "broken", "configuration", "chmod 600");
    assert!(!report.to_string().contains("canary"), "{report:#}");
    let missing = refundd(&folder.path().join("none.toml"), &["doctor"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing).contains("none.toml"), "{}", text(&missing));
}
