//! TLS to Postgres and Redis with roots and certificates of our own.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use playground::{Authority, PostgresOptions, PrivatePostgres, PrivateRedis, RedisOptions, place};
use refundd::bucket::Bucket;
use refundd::config::Config;
use refundd::daemon::open_store;
use refundd::logs::chain;
use sqlx::{Connection, Executor, PgConnection};

use crate::harness::until;

pub const BOTH: &str = "TLSv1.2 TLSv1.3";

/// A file in the data folder of Postgres, as Postgres demands it.
pub fn put(data: &Path, name: &str, text: &str) {
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(data).unwrap());
    std::fs::write(data.join(name), text).unwrap();
    std::fs::set_permissions(data.join(name), PermissionsExt::from_mode(0o600)).unwrap();
    chown(data.join(name), Some(owner), None).unwrap();
}

fn config(postgres: &str, redis: &str) -> Result<Config, String> {
    let text = format!("[postgres]\n{postgres}\n[redis]\n{redis}\n");
    Config::parse(&text, "test.toml", &|_| None).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_demands_a_client_certificate_is_used_with_the_right_one_only() {
    let options = PostgresOptions { tcp: true, ..PostgresOptions::for_tests() };
    let postgres = PrivatePostgres::start_with(&options).await.unwrap();
    postgres.create_database("payments", None).await.unwrap();
    let (authority, stranger, clients) =
        (Authority::new().unwrap(), Authority::new().unwrap(), Authority::new().unwrap());
    let data = postgres.folder().join("data");
    let (certificate, key) = authority.pem().unwrap();
    put(&data, "server.crt", &certificate);
    put(&data, "server.key", &key);
    put(&data, "clients.pem", &std::fs::read_to_string(clients.file()).unwrap());
    put(
        &data,
        "pg_hba.conf",
        "local all all trust\nhostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n",
    );
    let mut database = PgConnection::connect(&postgres.url("payments")).await.unwrap();
    database.execute("alter system set ssl_ca_file = 'clients.pem'").await.unwrap();
    database.execute("alter system set ssl = on").await.unwrap();
    database.execute("select pg_reload_conf()").await.unwrap();

    let port = postgres.port().unwrap();
    let of = |roots: &Authority, shown: Option<&Authority>| {
        let shown = shown.map_or_else(String::new, |authority| {
            let (certificate, key) = authority.client_files("node").unwrap();
            format!("certificate_file = {certificate:?}\nkey_file = {key:?}\n")
        });
        let lines = format!(
            "url = \"postgres://refundd@localhost:{port}/payments\"\ntls = \"verify-full\"\nca_file = {:?}\n{shown}",
            roots.file()
        );
        config(&lines, "url = \"redis://localhost\"").unwrap()
    };
    let store = open_store(&of(&authority, Some(&clients)).postgres, 2).unwrap();
    store.reach().await.unwrap();
    assert!(store.migrate().await.unwrap().is_enough());
    for (roots, shown) in [(&authority, None), (&authority, Some(&stranger)), (&stranger, Some(&clients))] {
        let store = open_store(&of(roots, shown).postgres, 2).unwrap();
        assert!(store.reach().await.is_err(), "{shown:?}");
    }
}

/// The error of a node that trusts `authority` and connects to this Postgres.
async fn refusal_of_postgres(port: u16, authority: &Authority) -> Option<String> {
    let lines = format!(
        "url = \"postgres://refundd@localhost:{port}/payments\"\ntls = \"verify-full\"\nca_file = \"{}\"",
        authority.file().display()
    );
    let store = open_store(&config(&lines, "url = \"redis://localhost\"").unwrap().postgres, 2).unwrap();
    store.reach().await.err().map(|error| chain(&error).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_whose_certificate_ended_or_names_another_or_that_speaks_tls_1_1_is_not_used() {
    let options = PostgresOptions { tcp: true, ..PostgresOptions::for_tests() };
    let postgres = PrivatePostgres::start_with(&options).await.unwrap();
    postgres.create_database("payments", None).await.unwrap();
    let (authority, data) = (Authority::new().unwrap(), postgres.folder().join("data"));
    put(&data, "pg_hba.conf", "local all all trust\nhostssl all all 127.0.0.1/32 trust\n");
    let (certificate, key) = authority.pem().unwrap();
    put(&data, "server.crt", &certificate);
    put(&data, "server.key", &key);
    let mut database = PgConnection::connect(&postgres.url("payments")).await.unwrap();
    database.execute("alter system set ssl = on").await.unwrap();
    database.execute("select pg_reload_conf()").await.unwrap();
    let port = postgres.port().unwrap();
    until("it is used with the right certificate", async || {
        refusal_of_postgres(port, &authority).await.is_none()
    })
    .await;
    for ((certificate, key), why) in [
        (authority.expired_pem().unwrap(), "expired"),
        (authority.pem_of("another.example").unwrap(), "not valid for name"),
    ] {
        put(&data, "server.crt", &certificate);
        put(&data, "server.key", &key);
        database.execute("select pg_reload_conf()").await.unwrap();
        until(why, async || {
            refusal_of_postgres(port, &authority).await.is_some_and(|said| said.contains(why))
        })
        .await;
    }
    put(&data, "server.crt", &certificate);
    put(&data, "server.key", &key);
    database.execute("alter system set ssl_min_protocol_version = 'TLSv1'").await.unwrap();
    database.execute("alter system set ssl_max_protocol_version = 'TLSv1.1'").await.unwrap();
    database.execute("select pg_reload_conf()").await.unwrap();
    until("it speaks TLS 1.1 only", async || {
        let said = refusal_of_postgres(port, &authority).await.unwrap_or_default();
        !said.is_empty() && !said.contains("not valid for name")
    })
    .await;
}

/// A Redis that speaks TLS with this certificate, and its port.
pub async fn redis_with(
    (certificate, key): (String, String),
    authority: &Authority,
    protocols: &str,
) -> (PrivateRedis, u16, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("server.crt"), certificate).unwrap();
    std::fs::write(path("server.key"), key).unwrap();
    let port = place::free_port().unwrap();
    let settings = [
        ("tls-port", port.to_string()),
        ("tls-cert-file", path("server.crt")),
        ("tls-key-file", path("server.key")),
        ("tls-ca-cert-file", authority.file().display().to_string()),
        ("tls-auth-clients", "no".to_owned()),
        ("tls-protocols", protocols.to_owned()),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let options = RedisOptions { settings, open: true, ..RedisOptions::default() };
    (PrivateRedis::start_with(&options).await.unwrap(), port, folder)
}

fn bucket(port: u16, roots: &Authority) -> Bucket {
    let lines = format!("url = \"rediss://localhost:{port}\"\nca_file = \"{}\"", roots.file().display());
    config("url = \"postgres://localhost\"", &lines).unwrap().redis.open().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_is_trusted_by_the_roots_that_the_file_names_and_by_no_others() {
    let (authority, stranger) = (Authority::new().unwrap(), Authority::new().unwrap());
    let (_redis, port, _folder) = redis_with(authority.pem().unwrap(), &authority, BOTH).await;
    bucket(port, &authority).time().await.unwrap();
    let refused = bucket(port, &stranger).time().await.unwrap_err();
    assert!(chain(&refused).to_string().contains("certificate"), "{}", chain(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_whose_certificate_ended_or_names_another_or_that_speaks_tls_1_1_is_not_used() {
    let authority = Authority::new().unwrap();
    for (pem, protocols, why) in [
        (authority.expired_pem().unwrap(), BOTH, "expired"),
        (authority.pem_of("another.example").unwrap(), BOTH, "not valid for name"),
        (authority.pem().unwrap(), "TLSv1.1", ""),
    ] {
        let (_redis, port, _folder) = redis_with(pem, &authority, protocols).await;
        let refused = bucket(port, &authority).time().await.unwrap_err();
        assert!(chain(&refused).to_string().contains(why), "{}", chain(&refused));
    }
}

#[test]
fn certificates_without_tls_or_without_their_key_are_refused() {
    let (authority, folder) = (Authority::new().unwrap(), tempfile::tempdir().unwrap());
    let (certificate, key) = authority.client_files("node").unwrap();
    let open = folder.path().join("open.key");
    std::fs::copy(&key, &open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o644)).unwrap();
    let ca = authority.file();
    let full = "url = \"postgres://db/p\"\ntls = \"verify-full\"";
    for (lines, rule) in [
        (
            format!("url = \"postgres://localhost/p\"\nca_file = {ca:?}"),
            "is only for TLS that checks the server's certificate",
        ),
        (
            format!("{full}\ncertificate_file = {certificate:?}"),
            "`certificate_file` and `key_file` go together",
        ),
        (format!("{full}\ncertificate_file = {certificate:?}\nkey_file = {open:?}"), "its mode is 0644"),
        (format!("{full}\ncertificate_file = {key:?}\nkey_file = {key:?}"), "no list of certificates"),
        (
            format!("url = \"postgres://db/p?sslmode=verify-full&sslrootcert=/x\"\nca_file = {ca:?}"),
            "name one thing",
        ),
    ] {
        let complaint = config(&lines, "url = \"redis://localhost\"").unwrap_err();
        assert!(complaint.contains(rule), "{complaint}");
    }
    let plain = format!("url = \"redis://localhost\"\nca_file = {ca:?}");
    let complaint = config("url = \"postgres://localhost\"", &plain).unwrap_err();
    assert!(complaint.contains("is only for an address that uses TLS"), "{complaint}");
}
